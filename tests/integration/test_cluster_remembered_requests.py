"""Mutations during the death of leaders, and clients that read their own writes: real masters,
killed with -9."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from cluster_fixtures import Cluster, make_source, running_cluster, until
from kazoo.client import KazooClient
from zookeeper_fixtures import records_client

from torrentdist.client.masters.master_client import MasterClient
from torrentdist.http.api_calls import Request
from torrentdist.model.configuration.config import ClientConfig


def version_of(records: KazooClient, bundle: str) -> int:
    _, stat = records.get(f"/code-distributor/{bundle}")
    return int(stat.version)


def send_unread(cluster: Cluster, leader: str, method: str, path: str, request_id: str, body: bytes = b"") -> None:
    """Sends a mutation and hangs up, like a client that dies before the answer."""
    parts = urlsplit(cluster.url(leader))
    proof = "".join(f"{name}: {value}\r\n" for name, value in cluster.dev.headers().items())
    headers = f"Host: {parts.netloc}\r\n{proof}X-Request-Id: {request_id}\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((parts.hostname, parts.port or 80), timeout=5.0) as connection:
        connection.sendall(f"{method} {path} HTTP/1.1\r\n{headers}".encode() + body)


def retry(cluster: Cluster, method: str, path: str, request_id: str, body: bytes | None = None) -> Any:
    """Repeats a mutation as the client does: finds the leader and sends the same id."""

    async def once() -> Any:
        config = ClientConfig(masters=cluster.dev.masters(), deadline_secs=30.0, token_file=str(cluster.dev.token_file))
        async with MasterClient(config) as client:
            headers = {"X-Request-Id": request_id}
            return await client.mutate(Request(method, path, headers=headers, content=body), dict[str, Any])

    return asyncio.run(once())


def state_at(cluster: Cluster, name: str, bundle: str) -> dict[str, Any]:
    found: dict[str, Any] = cluster.get(name, f"/v1/bundles/{bundle}") or {}
    return found


@pytest.fixture(scope="module")
def _trio() -> Iterator[Cluster]:
    with running_cluster(masters=3, supervisors=1, session_secs=2.0) as cluster:
        yield cluster


@pytest.fixture
def trio(_trio: Cluster) -> Cluster:
    """Three masters with a short session, so that failovers are short. They are repaired before
    each test."""
    _trio.heal()
    return _trio


def test_a_request_is_made_once_across_a_failover(trio: Cluster, tmp_path: Path) -> None:
    """B7: if this failed, a retry after a failover would undo what came in between, or report a
    failure."""
    for n, bundle in enumerate(("pinned", "gone", "spread")):
        trio.upload(make_source(tmp_path / bundle, n), bundle)
    leader, (standby, _) = trio.leader(), trio.standbys()
    send_unread(trio, leader, "PUT", "/v1/bundles/pinned/pin", "b7-pin")
    send_unread(trio, leader, "DELETE", "/v1/bundles/gone", "b7-remove")
    send_unread(trio, leader, "POST", "/v1/bundles/spread/distribute", "b7-distribute")
    until(lambda: state_at(trio, standby, "pinned").get("pinned"), "the pin is made")
    until(lambda: not state_at(trio, standby, "gone"), "the removal is made")
    until(lambda: (trio.get(standby, "/v1/bundles/spread/hosts") or {}).get("hosts"), "the distribution is made")
    trio.kill(leader)
    retry(trio, "DELETE", "/v1/bundles/pinned/pin", "b7-somebody-else")
    with records_client(trio.tree) as records:
        before = [version_of(records, bundle) for bundle in ("pinned", "gone", "spread")]
        pinned = retry(trio, "PUT", "/v1/bundles/pinned/pin", "b7-pin")
        removed = retry(trio, "DELETE", "/v1/bundles/gone", "b7-remove")
        spread = retry(trio, "POST", "/v1/bundles/spread/distribute", "b7-distribute")
        after = [version_of(records, bundle) for bundle in ("pinned", "gone", "spread")]
        assignment, stat = records.get("/assignments/supervisor-1")
    survivor = trio.leader()

    assert leader != survivor
    assert (True, "removed", ["supervisor-1"]) == (
        pinned["pinned"],
        removed["state"],
        [host["supervisor"] for host in spread["hosts"]],
    )
    assert before == after
    assert not state_at(trio, survivor, "pinned")["pinned"]
    assert (b'"generation":1' in assignment, stat.version) == (True, 0)


def test_five_failovers_in_a_row_and_a_mutation_after_each(trio: Cluster, tmp_path: Path) -> None:
    """B10: if this failed, a mutation sent just as the leader dies would be lost, made twice or
    reported wrongly. It takes long: five leaders die and start again."""
    leaders, answers, versions = [], [], []
    with records_client(trio.tree) as records:
        for n in range(5):
            bundle = f"row-{n}"
            trio.upload(make_source(tmp_path / bundle, 10 + n), bundle, replicas=2)
            before = version_of(records, bundle)
            leader = trio.leader()
            send_unread(trio, leader, "DELETE", f"/v1/bundles/{bundle}", f"b10-{n}")
            if n % 2:
                standby = trio.standbys()[0]
                until(lambda s=standby, b=bundle: not state_at(trio, s, b), "the removal is made")  # type: ignore[misc]
            trio.kill(leader)  # every other time before the answer can have been made
            answers.append(retry(trio, "DELETE", f"/v1/bundles/{bundle}", f"b10-{n}")["state"])
            versions.append(version_of(records, bundle) - before)
            leaders.append((leader, trio.leader()))
            trio.start(leader)

    assert ["removed"] * 5 == answers
    assert [1] * 5 == versions
    assert all(before != after for before, after in leaders)


def test_every_job_has_an_id_of_its_own_across_failovers(trio: Cluster, tmp_path: Path) -> None:
    """A19: if this failed, a job submitted to a dying leader would exist twice, or a new job would
    inherit an old one's workers, output and story."""
    source = make_source(tmp_path / "code", 40)
    (source / "job.toml").write_text('name = "again"\ncommand = ["sleep", "60"]\n')
    trio.upload(source, "code", replicas=2)
    body = b'{"bundle": "code", "activate": false}'
    seen, made = [], []
    for n in range(2):
        leader, standby = trio.leader(), trio.standbys()[0]
        send_unread(trio, leader, "POST", "/v1/jobs", f"a19-{n}", body)
        if n == 0:  # the other time before the answer can have been made
            until(lambda s=standby: trio.get(s, "/v1/jobs/again?any=true"), "the job is made")  # type: ignore[misc]
            seen.append(trio.get(standby, "/v1/jobs/again?any=true")["id"])
        trio.kill(leader)
        made.append(retry(trio, "POST", "/v1/jobs", f"a19-{n}", body)["id"])
        listed = [job["id"] for job in trio.get(trio.leader(), "/v1/jobs")]
        until(lambda: trio.get(trio.leader(), "/v1/jobs/again")["status"] == "inactive", "it is replicated")
        trio.run("job", "kill", "again", "-w", "0").ok()
        until(lambda: not trio.get(trio.leader(), "/v1/jobs"), "its name is free")
        trio.start(leader)

        assert [made[-1]] == listed

    assert 2 == len(set(made))
    assert seen == made[:1]


def test_who_has_written_reads_it_at_every_master(trio: Cluster, tmp_path: Path) -> None:
    """B11: if this failed, a bundle just uploaded would be missing, or one just removed would be
    there, depending on the master that answers."""
    trio.upload(make_source(tmp_path / "own", 20), "own")
    leader = trio.leader()
    stale = []
    for n in range(60):
        method = "DELETE" if n % 2 else "PUT"
        wrote = trio.http.request(method, f"{trio.url(leader)}/v1/bundles/own/pin")
        for name in trio.masters():
            seen = {"X-Zxid": wrote.headers["X-Zxid"]}
            read = trio.http.get(f"{trio.url(name)}/v1/bundles/own", headers=seen)
            if read.json()["pinned"] is not (method == "PUT") or int(read.headers["X-Zxid"]) < int(seen["X-Zxid"]):
                stale.append((n, name))

    assert [] == stale


def test_a_request_id_stands_for_one_request(trio: Cluster, tmp_path: Path) -> None:
    """B7: if this failed, a client that reuses an id would believe that something was done which
    was not."""
    trio.upload(make_source(tmp_path / "reused", 30), "reused")
    url, same = trio.url(trio.leader()), {"X-Request-Id": "b7-reused"}

    first = trio.http.put(f"{url}/v1/bundles/reused/pin", headers=same)
    again = trio.http.put(f"{url}/v1/bundles/reused/pin", headers=same)
    other = trio.http.delete(f"{url}/v1/bundles/reused/pin", headers=same)
    bad = trio.http.delete(f"{url}/v1/bundles/reused/pin", headers={"X-Request-Id": "a/b"})

    assert (200, first.content) == (again.status_code, again.content)
    assert (409, "request_reused") == (other.status_code, other.json()["error"])
    assert (400, "invalid_id") == (bad.status_code, bad.json()["error"])
