"""A stolen certificate of a supervisor, in search of a bundle that this host may not have."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import libtorrent as lt
import msgspec
import pytest
from cluster_clients import trusting
from cluster_fixtures import Cluster, running_cluster, until
from kazoo.client import KazooClient
from swarm_members import joined, stock_session, wire_params

from torrentdist.bundle.metafile import Metafile, parse_metafile
from torrentdist.host.process.daemon_address import read_address
from torrentdist.model.access.swarm_certificate_messages import SwarmCertificatesView
from torrentdist.model.access.swarm_membership import SwarmMembership
from torrentdist.model.access.zookeeper_identity import parse_credentials
from torrentdist.model.ids import JobId
from torrentdist.security.authority.certificates import new_key
from torrentdist.security.authority.pem_texts import public_key_pem
from torrentdist.security.authority.swarm_authority import memberships_of
from torrentdist.security.job_token import key_of_host, token_of_job
from torrentdist.security.passes import host_key, new_pass

pytestmark = pytest.mark.case("F6")

THIEF, OTHER = "supervisor-1", "supervisor-2"
MARK = b"what only one host may read"


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose first supervisor may have `own-1`, and nothing that is not assigned to it."""
    work = tmp_path_factory.mktemp("limited")
    with running_cluster(work=work, masters=1, supervisors=2, tls=True) as cluster:
        cluster.http.close()
        cluster.http = httpx.Client(
            trust_env=False, timeout=60.0, headers=cluster.dev.headers(), verify=trusting(cluster)
        )
        for bundle in ("own-1", "foreign-1"):
            source = work / bundle
            source.mkdir()
            (source / "text").write_bytes(MARK + bundle.encode())
            cluster.upload(source, bundle, 1)
        cluster.run("host", "allow", THIEF, "--assigned-only").ok()
        cluster.run("bundle", "distribute", "own-1", "--supervisors", THIEF, "--wait", "100%").ok()
        cluster.run("bundle", "distribute", "foreign-1", "--supervisors", OTHER, "--wait", "100%").ok()
        yield cluster


@pytest.fixture
def thief(limited: Cluster) -> Iterator[httpx.Client]:
    """The certificate of the first supervisor, without any token."""
    headers = {"X-Torrentdist": "1"}
    url = limited.url("master-1")
    with httpx.Client(
        trust_env=False, timeout=60.0, base_url=url, verify=trusting(limited, THIEF), headers=headers
    ) as http:
        yield http


def digest_of(cluster: Cluster, bundle: str) -> str:
    return str(cluster.get("master-1", f"/v1/bundles/{bundle}")["digest"])


def metafile(cluster: Cluster, bundle: str) -> bytes:
    return cluster.http.get(f"{cluster.url('master-1')}/v1/bundles/{bundle}/metafile").content


def supervisor_url(cluster: Cluster, name: str) -> str:
    found = cluster.get("master-1", "/v1/cluster")["supervisors"]
    return next(str(each["url"]) for each in found if each["id"] == name)


def test_no_route_gives_a_host_what_it_may_not_have(limited: Cluster, thief: httpx.Client) -> None:
    """If this fails, whoever steals one host's certificate reads every bundle of the cluster."""
    raw, digest = metafile(limited, "foreign-1"), digest_of(limited, "foreign-1")
    secrets = [MARK, parse_metafile(raw).files[0].root, digest.encode(), b"foreign-1"]
    names = {"digest": digest, "path": "text", "name": "none"}
    described = limited.get("master-1", "/openapi.json")
    leaked, refused = [], set()
    for path, methods in described["paths"].items():
        url = re.sub(r"\{(\w+)(:\w+)?\}", lambda match: names.get(match[1], "foreign-1"), path)
        if "get" not in methods or path.startswith("/ui/"):
            continue
        answer = thief.get(url, params={"timeout": "0"})
        if path == "/v1/audit":  # it repeats what the thief itself asked for
            assert {THIEF} >= {entry["who"] for entry in answer.json() if entry["bundle"] != "own-1"}
            continue
        if any(secret in answer.content and secret not in url.encode() for secret in secrets):
            leaked.append(url)
        if answer.status_code == 403 and answer.json()["error"] == "not_for_host":
            refused.add(path)
    reused = thief.post("/v1/reuse", content=raw)

    assert [] == leaked
    assert {
        "/v1/bundles/{id}/metafile",
        "/v1/bundles/{id}/files/{path}",
        "/v1/metafiles/{digest}",
        "/v1/metafiles/{digest}/plugin",
        "/v1/bundles/{id}/recipe",
        "/v1/recipes/{digest}",
    } <= refused
    assert (403, "not_for_host") == (reused.status_code, reused.json()["error"])
    assert 403 == thief.get("/v1/snapshot").status_code


def test_a_host_gets_what_is_assigned_to_it(limited: Cluster, thief: httpx.Client) -> None:
    """If this fails, a host whose gateway is limited cannot do its work."""
    digest = digest_of(limited, "own-1")
    paths = ["/v1/bundles/own-1/metafile", f"/v1/metafiles/{digest}", "/v1/bundles/own-1/files/text"]

    assert [200] * 3 == [thief.get(path).status_code for path in paths]


def keys_of_thief(cluster: Cluster) -> list[str]:
    """What the stolen identity in ZooKeeper reads or holds that passes could be made of."""
    own = parse_credentials((cluster.dir / "ca" / "hosts" / THIEF / "zookeeper.auth").read_text(), "")
    zk = KazooClient(cluster.dev.state.zookeeper, auth_data=[("digest", each.line) for each in own])
    zk.start(10)
    try:
        record = json.loads(zk.get("/torrentdist/cluster")[0])
    finally:
        zk.stop()
        zk.close()
    passwords = [each.password for each in own]
    return [record["announce_key"], *passwords, *map(host_key, passwords)]


def test_another_host_gives_a_metafile_for_a_masters_pass_alone(limited: Cluster) -> None:
    """If this fails, a thief who is refused by the masters asks the next host, with a pass of its
    own making."""
    digest = digest_of(limited, "foreign-1")
    path, url = f"/v1/metafiles/{digest}", supervisor_url(limited, OTHER)
    given = limited.http.get(f"{limited.url('master-1')}/v1/jobs/j/pass").json()["hosts"].values()
    own = [*given, *(new_pass(key, path, time.time(), 900.0) for key in keys_of_thief(limited))]
    with httpx.Client(trust_env=False, timeout=60.0, base_url=url, verify=trusting(limited, THIEF)) as peer:
        bare = peer.get(path)
        passes = [peer.get(path, params={"pass": text}) for text in own]
        at_itself = httpx.get(
            f"{supervisor_url(limited, THIEF)}{path}",
            params={"pass": own[-2]},
            verify=trusting(limited),
            trust_env=False,
            timeout=60.0,
        )
    with httpx.Client(trust_env=False, timeout=60.0, base_url=url, verify=trusting(limited, "master-1")) as master:
        good = master.get(path).status_code

    assert {403} == {answer.status_code for answer in (bare, *passes)}
    assert 200 == good
    assert 404 == at_itself.status_code  # so these passes are well made


def test_an_announce_names_no_peers_of_it(limited: Cluster, thief: httpx.Client) -> None:
    """If this fails, a thief is led to the hosts that have a bundle, and they to the thief."""
    digests = [digest_of(limited, name) for name in ("own-1", "foreign-1")]
    swarms: list[dict[str, Any]] = [{"digest": digest, "complete": False, "size": 1} for digest in digests]
    announce = {"peer": THIEF, "role": "supervisor", "port": 4, "swarms": swarms}
    answer = thief.post("/v1/swarm", json=announce).json()

    assert {digests[0]} == set(answer["swarms"])


def arrived(cluster: Cluster, meta: Metafile, shown: SwarmMembership, dest: Path) -> int:
    """Dials a master as a libtorrent peer. Returns how many bytes it has when it is refused, or has
    everything."""
    address = read_address(cluster.dir / "master-1")
    assert address is not None
    ends = (lt.peer_disconnected_alert, lt.peer_error_alert)
    with stock_session(listen_interfaces="127.0.0.1:0s", min_reconnect_time=1) as session:
        handle = joined(session, wire_params(meta, shown.ca, dest), shown, address.swarm_port)

        def is_over() -> bool:
            return handle.status().is_seeding or any(isinstance(alert, ends) for alert in session.pop_alerts())

        until(is_over, "it has everything, or is refused")
        return handle.status().total_done


@pytest.mark.case("I6")
def test_its_certificate_of_the_swarm_opens_no_other_swarm(
    limited: Cluster, thief: httpx.Client, tmp_path: Path
) -> None:
    """If this fails, a thief that has a metafile, or has been dialled once, gets the bundle from
    any host. The thief is a real libtorrent peer that knows everything else."""
    key, metas = new_key(), {name: parse_metafile(metafile(limited, name)) for name in ("own-1", "foreign-1")}
    body = {
        "public_key": public_key_pem(key.public_key()).decode(),
        "digests": [meta.digest for meta in metas.values()],
    }
    answer = thief.post("/v1/swarm-certificates", json=body).json()
    (shown,) = memberships_of(key, msgspec.convert(answer, SwarmCertificatesView).memberships)
    covered = [name for name, meta in metas.items() if shown.covers(meta.digest)]
    got = {name: arrived(limited, meta, shown, tmp_path / name) for name, meta in metas.items()}

    assert ["own-1"] == covered
    assert {"own-1": metas["own-1"].size, "foreign-1": 0} == got
    assert 3600 < shown.expires_at - time.time() <= 86_400


def test_its_gateway_streams_what_the_pattern_allows(limited: Cluster, tmp_path: Path) -> None:
    """If this fails, a local user is given what the host may not have, or is refused what an
    operator has allowed."""
    (gateway,) = [s["gateway"] for s in limited.get("master-1", "/v1/cluster")["supervisors"] if s["id"] == THIEF]
    url = f"{gateway}/bundles/foreign-1/files/text"
    with httpx.Client(trust_env=False, timeout=60.0) as user:
        refused = user.get(url)
        limited.run("host", "allow", THIEF, "--bundles", "foreign-?").ok()
        shown_as = [host for host in limited.run("host", "ls").ok() if host["id"] == THIEF]
        given = user.get(url)
    limited.run("host", "allow", THIEF, "--assigned-only").ok()

    assert (403, "not_for_host") == (refused.status_code, refused.json()["error"])
    assert ["foreign-?"] == [host["bundles"] for host in shown_as]
    assert MARK + b"foreign-1" == given.content


def test_equal_content_under_a_foreign_id_takes_nothing_away(
    limited: Cluster, tmp_path: Path, thief: httpx.Client
) -> None:
    """If this fails, a host is refused content that is assigned to it, for having another name
    too."""
    (tmp_path / "text").write_bytes(MARK + b"own-1")
    limited.upload(tmp_path, "foreign-name", 1)
    paths = ["/v1/bundles/own-1/metafile", f"/v1/metafiles/{digest_of(limited, 'own-1')}"]

    assert [200, 200] == [thief.get(path).status_code for path in paths]
    assert 403 == thief.get("/v1/bundles/foreign-name/metafile").status_code


def test_a_job_brings_its_bundles_to_its_host(limited: Cluster, tmp_path: Path, thief: httpx.Client) -> None:
    """If this fails, a worker that is placed on a limited host never starts."""
    source = tmp_path / "job"
    source.mkdir()
    (source / "job.toml").write_text('name = "own-job"\nworkers = 2\ncommand = ["sleep", "600"]\n')
    limited.run("job", "submit", source).ok()
    view = limited.run("job", "show", "own-job").ok()
    until(lambda: thief.get(f"/v1/bundles/{view['bundle']}/metafile").status_code == 200, "the host may have it")
    until(
        lambda: {"running"} == {worker["state"] for worker in limited.run("job", "show", "own-job").ok()["workers"]},
        "both workers run", 60.0,
    )  # fmt: skip


JOB = """
name = "tokens"
command = ["sh", "-c", "cat $TORRENTDIST_JOB_TOKEN_FILE; echo; sleep 600"]
"""


@pytest.mark.case("F1")
def test_a_job_has_a_token_where_its_host_has_none(limited: Cluster, tmp_path: Path) -> None:
    """If this fails, a job on a host without the operators' token cannot prove which job it is; or
    one host's jobs can pass for those of another."""
    limited.run("supervisor", "drain", THIEF).ok()
    limited.reconfigure(OTHER, {"api": {"token_file": ""}})
    source = tmp_path / "job"
    source.mkdir()
    (source / "job.toml").write_text(JOB)
    job = limited.run("job", "submit", source).ok()["id"]
    until(lambda: "job:" in limited.run("job", "logs", job).stdout, "the worker has its token", 60.0)
    (token,) = set(re.findall(r"job:[\w.-]+:[0-9a-f]{64}", limited.run("job", "logs", job).stdout))
    passwords = parse_credentials((limited.dir / "ca" / "hosts" / THIEF / "zookeeper.auth").read_text(), "")
    forged = token_of_job(key_of_host(host_key(passwords[0].password)), JobId(job))
    url = limited.url("master-1")
    with httpx.Client(trust_env=False, timeout=60.0, verify=trusting(limited)) as http:
        asked = [
            http.get(f"{url}{path}", headers={"Authorization": f"Bearer {text}"}).status_code
            for text in (token, forged)
            for path in (f"/v1/jobs/{job}?any=true", "/v1/bundles/own-1")
        ]
    limited.run("job", "kill", job, "--wait", "0s").ok()
    limited.run("supervisor", "undrain", THIEF).ok()

    assert [200, 403, 401, 401] == asked
