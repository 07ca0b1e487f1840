"""A mutual cluster in which every host has a ZooKeeper identity of its own: jobs, moves, and hosts
that are shut out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from cluster_fixtures import Cluster, make_source, running_cluster, until
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from zookeeper_fixtures import write_auth

from torrentdist.cluster.rebalance import join
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.model.configuration.config import ZooKeeperConfig


@pytest.fixture
def mutual(tmp_path: Path) -> Iterator[Cluster]:
    """2 masters and 2 supervisors, as `dev up --tls` starts them."""
    with running_cluster({}, work=tmp_path / "work", masters=2, supervisors=2, tls=True) as cluster:
        cluster.http.close()
        cluster.http = httpx.Client(
            trust_env=False, timeout=10.0, headers=cluster.dev.headers(), verify=cluster.dev.trust()
        )
        yield cluster


def hosts_at_work(cluster: Cluster, job: str) -> list[str]:
    """Returns the supervisors on which a job's workers run."""
    return [w["supervisor"] for w in cluster.run("job", "show", job).ok()["workers"] if w["state"] == "running"]


@pytest.mark.case("F6")
def test_a_job_runs_moves_and_leaves_a_host_that_is_shut_out(mutual: Cluster, tmp_path: Path) -> None:
    """If this fails, identities stop the cluster from running jobs, or a revoked host keeps its
    work."""
    source = make_source(tmp_path / "source", 81)
    (source / "job.toml").write_text('name = "wc"\ncommand = ["sh", "-c", "sleep 600"]\n')
    mutual.run("job", "submit", source, "--name", "wc").ok()
    (job,) = (job["id"] for job in mutual.run("job", "ls").ok())
    until(lambda: len(hosts_at_work(mutual, job)) == 1, "the worker runs", 60.0)
    (first,) = hosts_at_work(mutual, job)
    mutual.run("supervisor", "drain", first).ok()
    until(lambda: hosts_at_work(mutual, job) not in ([], [first]), "the worker has moved", 60.0)
    (second,) = hosts_at_work(mutual, job)
    mutual.run("supervisor", "undrain", first).ok()
    mutual.run("host", "revoke", second, "--unknown").ok()
    until(lambda: hosts_at_work(mutual, job) == [first], "the worker has left the revoked host", 120.0)
    left = {s["id"] for s in mutual.run("cluster").ok()["supervisors"]}

    assert {first} == left
    assert {first, second} == {"supervisor-1", "supervisor-2"}


@pytest.mark.case("F16")
def test_members_of_a_group_work_with_the_groups_identity_alone(mutual: Cluster, tmp_path: Path) -> None:
    """If this fails, resource groups cannot be used beside identities, or their members can write
    what is not theirs."""
    mutual.run("group", "add", "ingest", "queue-1").ok()
    auth = mutual.run("group", "identity", "ingest").ok()["auth"]
    servers = mutual.dev.state.zookeeper.split(",")
    file = write_auth(tmp_path / "auth", auth.rstrip())

    async def work() -> list[str]:
        given: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()

        async def on_start(resources: object) -> None:
            given.set_result(list(resources))  # type: ignore[call-overload]

        async def on_stop() -> None: ...

        zk = ZooKeeper(ZooKeeperConfig(servers=servers, auth_file=file))
        await zk.start(20.0)
        async with await join(zk, "ingest", on_start=on_start, on_stop=on_stop, member_id="me"):
            async with asyncio.timeout(30.0):
                resources = await given
            members = [
                m["id"] for m in (await asyncio.to_thread(mutual.run, "group", "show", "ingest")).ok()["members"]
            ]
        await zk.close()
        return [*resources, *members]

    assert ["queue-1", "me"] == asyncio.run(work())
    thief = KazooClient(servers[0], auth_data=[("digest", line) for line in auth.split()])
    thief.start(20)
    try:
        for path in ("/groups/ingest/resources/more", "/groups/jobs/barriers/x", "/groups/other", "/assignments/x"):
            with pytest.raises(NoAuthError):
                thief.create(f"/torrentdist{path}")
    finally:
        thief.stop()
        thief.close()
