"""Pages of the console that ask other processes: a job's output, a host's room, and the masters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_fixtures import Cluster, make_source, running_cluster, until

from torrentdist.testing.sample_trees import some_bytes, write_tree

PART_BYTES = 100_000
HTML = {"Accept": "text/html"}
TALK = """#!/bin/sh
n=0
while true; do n=$((n + 1)); echo "line $n <b>"; printf 'to the terminal \\033[31m\\n' >&2; sleep 0.2; done
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two masters, and a host that runs a job that writes."""
    work = tmp_path_factory.mktemp("talking")
    with running_cluster(work=work, masters=2, supervisors=1) as running:
        job = work / "talk"
        job.mkdir()
        (job / "talk.sh").write_text(TALK)
        (job / "talk.sh").chmod(0o755)
        (job / "job.toml").write_text('name = "talk"\ncommand = ["talk.sh"]\nworkers = 1\n')
        running.run("job", "submit", job).ok()
        yield running


def twin(cluster: Cluster, path: str, master: str = "master-1", **query: str) -> Any:
    return cluster.http.get(f"{cluster.url(master)}{path}", params=query).json()


def test_output_is_shown_while_it_is_written(cluster: Cluster) -> None:
    """An operator would have to find the host of a worker, and log in there."""
    until(lambda: "line 3" in twin(cluster, "/ui/jobs/talk/output", stream="stdout", worker="0")["text"], "it writes")
    host = cluster.supervisors()[0]
    query = {"host": host, "worker": "0", "stream": "stdout", "timeout": "2.5"}
    parts: set[str] = set()

    def it_grows() -> bool:
        told = cluster.http.get(f"{cluster.url('master-2')}/ui/live/jobs/talk/output", params=query).text
        parts.update(part for part in told.split("\n\n") if "line" in part)
        return len(parts) >= 2

    until(it_grows, "the page shows more output")
    errors = twin(cluster, "/ui/jobs/talk/output", host=host, worker="0", stream="stderr")
    page = cluster.http.get(f"{cluster.url('master-1')}/ui/jobs/talk/output", headers=HTML).text

    assert all("&lt;b&gt;" in part for part in parts)
    assert "\x1b" not in errors["text"]
    assert {(host, "stdout"), (host, "stderr")} == {(line["supervisor"], line["stream"]) for line in errors["lines"]}
    assert "torrentdist job logs talk-" in page


def test_a_host_tells_its_room_and_masters_their_latency(cluster: Cluster, tmp_path: Path) -> None:
    """The disk of a host would fill unseen, and a slow ZooKeeper would look like slow masters."""
    cluster.upload(make_source(tmp_path / "kept", 3), "kept", replicas=2)
    cluster.run("bundle", "distribute", "kept", "--wait", "100%").ok()
    state = twin(cluster, f"/ui/hosts/{cluster.supervisors()[0]}", "master-2")["state"]
    masters = twin(cluster, "/ui/masters")["masters"]

    assert state["published_bytes"] > 200_000
    assert state["free_bytes"] > 0
    assert {} == state["errors"]
    assert all(0 < master["write_secs"] < 10 for master in masters)


def test_events_tell_who_did_what_and_can_be_filtered(cluster: Cluster) -> None:
    """Nobody could say who killed a job last night."""
    leader = cluster.leader()
    every = twin(cluster, "/ui/events", leader)
    submitted = twin(cluster, "/ui/events", leader, what="POST /v1/jobs")
    before = twin(cluster, "/ui/events", leader, until="2001-01-01")
    elsewhere = twin(cluster, "/ui/events", cluster.standbys()[0], what="POST /v1/jobs")
    wrong = cluster.http.get(f"{cluster.url(leader)}/ui/events", params={"since": "yesterday"})
    old = cluster.http.get(f"{cluster.url(leader)}/ui/audit?who=x", follow_redirects=False)

    assert every == sorted(every, key=lambda line: line["at"], reverse=True)
    assert {"leads", "started"} <= {line["what"] for line in every}
    assert submitted
    assert all(line["result"] == "ok" for line in submitted if line["what"] == "submit")
    assert submitted == elsewhere
    assert [] == before
    assert 400 == wrong.status_code
    assert (307, "/ui/events?who=x") == (old.status_code, old.headers["location"])


def test_the_page_of_a_distribution_moves_and_ends(cluster: Cluster, tmp_path: Path) -> None:
    """An operator who follows a distribution would see the figures of the moment at which the page
    was opened."""
    cluster.upload(make_source(tmp_path / "moving", 4), "moving", replicas=2)
    cluster.run("bundle", "distribute", "moving", "--rate", "100k", "--wait", "0").ok()
    leader = cluster.leader()
    until(lambda: any(one["bundle"] == "moving" for one in twin(cluster, "/ui/distributions", leader)), "it is known")
    [run] = [one["run"] for one in twin(cluster, "/ui/distributions", leader) if one["bundle"] == "moving"]
    parts: set[str] = set()

    def it_has_ended() -> bool:
        page = cluster.http.get(f"{cluster.url(leader)}/ui/live/distributions/{run}", params={"timeout": "2.5"}).text
        parts.update(part for part in page.split("\n\n") if "event: tick" not in part)
        return any("1 of 1" in part and "it runs" not in part for part in parts)

    until(it_has_ended, "the page shows its end", 60)

    assert any("0 of 1" in part and "it runs" in part for part in parts)


def version(top: Path, *seeds: int) -> Path:
    """Makes a bundle of one file per seed."""
    write_tree(top, {f"part-{seed}.bin": some_bytes(PART_BYTES, seed) for seed in seeds})
    return top


def test_a_bundle_tells_what_is_new_in_it(cluster: Cluster, tmp_path: Path) -> None:
    """An operator could not tell what the next version costs every host. Later versions, which have
    all of it, would hide that it was new."""
    cluster.upload(version(tmp_path / "1", 1, 2, 3, 4), "parts-1", replicas=2)
    preview = cluster.run("upload", version(tmp_path / "2", 1, 2, 3, 5), "--id", "parts-2", "--dry-run").ok()
    cluster.upload(tmp_path / "2", "parts-2", replicas=2)
    cluster.upload(version(tmp_path / "3", 1, 2, 3, 5), "parts-3", replicas=2)
    figures = ("size", "new_bytes", "reused_bytes", "reused_from")

    def told(bundle: str, master: str) -> Any:
        return twin(cluster, f"/ui/bundles/{bundle}", master)["earlier"]

    for master in cluster.masters():
        until(lambda m=master: told("parts-2", m) is not None, "it has compared")  # type: ignore[misc]
        assert {name: preview[name] for name in figures} | {"not_compared": 0} == told("parts-2", master)
        assert (4 * PART_BYTES, []) == tuple(told("parts-1", master)[key] for key in ("new_bytes", "reused_from"))
        assert (0, ["parts-2"]) == tuple(told("parts-3", master)[key] for key in ("new_bytes", "reused_from"))
    page = cluster.http.get(f"{cluster.url('master-2')}/ui/bundles/parts-2", headers=HTML).text
    assert '(25%); the rest is in <a href="/ui/bundles/parts-1">parts-1</a>' in page


def test_bundles_tell_what_goes_next_for_room(cluster: Cluster, tmp_path: Path) -> None:
    """An operator would learn only afterwards which bundle a rule or a full disk takes."""
    for number in (1, 2, 3):
        cluster.upload(make_source(tmp_path / f"rare-{number}", number), f"rare-{number}", replicas=2)
    cluster.run("bundle", "pin", "rare-1").ok()
    cluster.run("bundle", "distribute", "rare-3", "--wait", "100%").ok()
    cluster.run("bundle", "retention", "rare-*", "--keep", "2").ok()

    def told(master: str) -> dict[str, Any]:
        return {line["id"]: line["room"] for line in twin(cluster, "/ui/bundles", master, q="rare-")}

    def same(*, stays: list[str], rules_keep: list[str]) -> Any:
        return {"rules": ["rare-*"], "goes": "", "rules_keep": rules_keep, "stays": stays}

    expected = {
        "rare-1": same(stays=["pinned"], rules_keep=["pinned"]),
        "rare-2": same(stays=[], rules_keep=["newest"]),
        "rare-3": same(stays=["assigned"], rules_keep=["newest"]),
    }
    for master in cluster.masters():
        until(lambda m=master: told(m) == expected, "it tells what stays, and why")  # type: ignore[misc]
        assert expected["rare-2"] == twin(cluster, "/ui/bundles/rare-2", master)["room"]
    page = cluster.http.get(f"{cluster.url('master-1')}/ui/bundles", params={"q": "rare-"}, headers=HTML).text
    assert ["stays", "may go", "stays"] == re.findall('<td data-of="For room">(stays|may go|goes next)</td>', page)
