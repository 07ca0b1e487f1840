"""A supervisor that finds another cluster in its ZooKeeper: every run of the old cluster ends
before the host registers."""

from __future__ import annotations

import contextlib
import signal

import pytest
from job_host import JobHost, NewHost
from kazoo.client import KazooClient
from zookeeper_fixtures import eventually, eventually_async

from torrentdist.cluster import paths
from torrentdist.cluster.session.founding import found_cluster

pytestmark = [pytest.mark.anyio, pytest.mark.case("G5")]


async def with_a_worker(host: JobHost) -> None:
    """Starts a worker that ignores SIGTERM."""
    host.job("etl", "work.py", "stubborn", stop_grace_secs=1.0)
    await host.assign(("etl", 0))
    await host.running("etl")


def wipe(host: JobHost) -> None:
    """Deletes everything below the chroot, as an operator might. Daemons may write meanwhile."""
    client = KazooClient(hosts=",".join(host._servers))
    client.start(10)
    with contextlib.suppress(Exception):
        client.delete(f"{host._chroot}/cluster")
    for name in client.get_children(host._chroot):
        client.delete(f"{host._chroot}/{name}", recursive=True)
    client.stop()
    client.close()


async def registered(host: JobHost) -> bool:
    return await host.zk.exists(paths.supervisor(host.id)) is not None


async def alive_when_registered(host: JobHost) -> bool:
    """Returns whether the worker still ran at the moment when its host was registered."""
    seen: list[bool] = []

    async def look() -> bool:
        alive = host.alive("etl")  # looked at first, because the worker may end, but not begin, in between
        if await registered(host):
            seen.append(alive)
        return bool(seen)

    await eventually_async(look, 40.0)
    return seen[0]


async def replace_cluster(host: JobHost) -> None:
    """Replaces the cluster by another one with the same assignment, barriers and members. Only the
    id differs."""
    await host.zk.delete(paths.CLUSTER)
    for path in (paths.JOBS, paths.FAILOVERS, paths.ELECTION):
        with contextlib.suppress(Exception):
            await host.zk.delete(path)
    with host.zk.without_cluster():
        await host.zk.create(paths.CLUSTER, b'{"schema":1,"id":"another","announce_key":"k"}')


async def test_a_supervisor_that_starts_ends_the_runs_of_another_cluster_before_it_registers(new_host: NewHost) -> None:
    """If this failed, the new cluster would place the job again while the old worker still runs
    unseen."""
    host = await new_host(session_secs=20.0)  # long enough for the worker to outlive the supervisor's restart
    await with_a_worker(host)
    await host.end(signal.SIGKILL)
    await replace_cluster(host)
    with contextlib.suppress(Exception):
        await host.zk.delete(paths.supervisor(host.id))
    await host.start()

    assert not await alive_when_registered(host)


async def test_a_supervisor_that_runs_ends_them_too(host: JobHost) -> None:
    """If this failed, a daemon that is not restarted would join the new cluster with workers of the
    old one."""
    await with_a_worker(host)
    wipe(host)
    await eventually(lambda: "worker ended" in host.log, 20.0)
    before = await host.zk.children("/")
    waiting = host.gateway("/readyz")
    await found_cluster(host.zk)

    assert [] == before
    assert 503 == waiting.status_code
    assert not await alive_when_registered(host)
    await eventually(lambda: host.gateway("/readyz").json()["failing"].keys() == {"masters"}, 20.0)


async def test_the_same_cluster_keeps_its_workers(new_host: NewHost) -> None:
    """If this failed, a restart of a supervisor would end what runs."""
    host = await new_host(session_secs=20.0)
    await with_a_worker(host)
    await host.end(signal.SIGKILL)
    await host.start()
    await eventually_async(lambda: registered(host), 20.0)
    stints = host.oracle.stints("etl", 0)

    assert 1 == len(stints)
    assert host.alive("etl")
