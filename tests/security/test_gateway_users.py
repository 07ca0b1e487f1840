"""F5: programs of several users of a host, each with a connection of its own to one gateway."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from cluster_fixtures import Cluster, running_cluster, until

from torrentdist.testing.sample_trees import write_tree

pytestmark = [
    pytest.mark.case("F5"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users"),
]
OWN, HIDDEN = "mine-1", "secret-1"
EVERYTHING, NOTHING, PATTERN, PATTERNS, ABSENT = "21001", "21002", "21003", "21004", "21005"
TABLE = {EVERYTHING: True, NOTHING: False, PATTERN: "mine-*", PATTERNS: ["lib-*", "secret-*"], "daemon": "mine-*"}
PROGRAM = """
import encodings.idna, http.client, json, os, sys  # all of them, before the user may read no file
host, port, user, *paths = sys.argv[1:]
gateway = http.client.HTTPConnection(host, int(port), timeout=60)
if user.startswith("late:"):  # connects as root, and asks as another user
    gateway.connect()
os.setgroups([])
os.setgid(int(user.removeprefix("late:")))
os.setuid(int(user.removeprefix("late:")))
answers = []
for path in paths:
    gateway.request("GET", path, headers={"X-User": "root", "X-Forwarded-For": "10.0.0.1"})
    answer = gateway.getresponse()
    answers.append([answer.status, answer.read().decode(errors="replace")])
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with two bundles on a host that lets several users read."""
    work = tmp_path_factory.mktemp("users")
    with running_cluster({"supervisor": {"gateway_users": TABLE}}, work=work, masters=1, supervisors=1) as cluster:
        for bundle in (OWN, HIDDEN):
            write_tree(work / bundle, {"text": bundle.encode()})
            cluster.upload(work / bundle, bundle, 1)
            cluster.run("bundle", "distribute", bundle, "--wait", "100%").ok()
        yield cluster


def ask(cluster: Cluster, user: str, *paths: str) -> list[tuple[int, str]]:
    """Returns the gateway's answers to a program of this user, on one connection."""
    host, _, port = cluster.url("supervisor-1").removeprefix("http://").partition(":")
    done = subprocess.run([sys.executable, "-I", "-c", PROGRAM, host, port, user, *paths], capture_output=True)
    assert done.returncode == 0, done.stderr
    return [(status, body) for status, body in json.loads(done.stdout)]


def read(cluster: Cluster, user: str) -> list[int]:
    """Returns how the gateway answers a user who asks for a file of each bundle, and for the own
    one again."""
    paths = [f"/bundles/{bundle}/files/text" for bundle in (OWN, HIDDEN, OWN)]
    return [status for status, _ in ask(cluster, user, *paths)]


@pytest.mark.parametrize(
    ("user", "answers"),
    [
        (EVERYTHING, [200, 200, 200]),
        (NOTHING, [403, 403, 403]),
        (PATTERN, [200, 404, 200]),
        (PATTERNS, [404, 200, 404]),
        ("1", [200, 404, 200]),  # daemon
        (ABSENT, [403, 403, 403]),
        ("0", [403, 403, 403]),
    ],
)
def test_each_user_reads_what_the_table_says(shared: Cluster, user: str, answers: list[int]) -> None:
    """A user of the host who is not in the table, or only with a pattern, would read everything; or
    root would, whom no table names."""
    assert answers == read(shared, user)


def test_a_refused_user_learns_nothing(shared: Cluster) -> None:
    """Lists and errors would name what a user may not read."""
    paths = ["/bundles", f"/bundles/{HIDDEN}", f"/simple/{HIDDEN}/", f"/hub/api/models/{HIDDEN}", f"/maven/{HIDDEN}/x"]
    absent = [path.replace(HIDDEN, "secret-2") for path in paths]
    of_pattern = [ask(shared, PATTERN, *which) for which in (paths, absent)]
    of_absent = [ask(shared, ABSENT, *which) for which in (paths, absent)]

    assert [(status, body.replace(HIDDEN, "secret-2")) for status, body in of_pattern[0]] == of_pattern[1]
    assert of_absent[0] == of_absent[1]
    assert {403} == {status for status, _ in of_absent[0]}


def test_a_connection_belongs_to_the_user_who_made_it(shared: Cluster) -> None:
    """A program that gives up its rights after it has connected is refused as before; nor does a
    user become another one by a header."""
    assert [403, 403, 403] == read(shared, f"late:{EVERYTHING}")


def test_a_changed_table_holds_from_the_next_start(shared: Cluster) -> None:
    """A user who was taken out of the table would go on reading by an older connection."""
    shared.reconfigure("supervisor-1", {"supervisor": {"gateway_users": {ABSENT: True, PATTERN: "secret-*"}}})
    until(lambda: shared.status("supervisor-1", "/livez") == 200, "the gateway answers")
    changed = {user: read(shared, user)[:2] for user in (EVERYTHING, PATTERN, ABSENT, "1")}
    shared.dev.signal("supervisor-1", signal.SIGTERM)
    shared.dev.start("supervisor-1")
    shared.dev.wait_started("supervisor-1")
    back = {user: read(shared, user)[:2] for user in (EVERYTHING, ABSENT)}

    assert {EVERYTHING: [403, 403], PATTERN: [404, 200], ABSENT: [200, 200], "1": [403, 403]} == changed
    assert {EVERYTHING: [200, 200], ABSENT: [403, 403]} == back
