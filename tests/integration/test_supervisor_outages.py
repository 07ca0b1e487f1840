"""While ZooKeeper is away, workers run on if every master sees the outage, and end if their host is
cut off alone."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from job_host import RESTART_SESSION_SECS, SESSION_SECS, JobHost
from zookeeper_fixtures import Connect, TcpProxy, eventually, eventually_async

from torrentdist.cluster.election.term import LEASE_SHARE
from torrentdist.dev.embedded_zookeeper import EmbeddedZooKeeper
from torrentdist.launcher.run.run_lease import clock
from torrentdist.model.jobs.job import OnIsolation
from torrentdist.supervisor.exclusivity.isolation import PROOF_SECS

pytestmark = pytest.mark.anyio


@pytest.fixture
async def running(tmp_path: Path, own_zookeeper: EmbeddedZooKeeper, connect: Connect) -> AsyncIterator[JobHost]:
    """A host with a running worker, and a ZooKeeper of its own that a test may freeze."""
    host = JobHost(tmp_path, await connect(servers=own_zookeeper.addresses, chroot="/a"), own_zookeeper.addresses, "/a")
    try:
        await host.open()
        host.job("etl")
        await host.assign(("etl", 0))
        await host.running("etl")
        yield host
    finally:
        own_zookeeper.servers[0].resume()
        await host.close()


@pytest.mark.case("D10")
async def test_a_host_that_is_cut_off_alone_stops_its_workers_in_time(
    tmp_path: Path, own_zookeeper: EmbeddedZooKeeper, connect: Connect
) -> None:
    """If this fails, a worker runs on behind a barrier that ZooKeeper has given up."""
    host = JobHost(tmp_path, await connect(servers=own_zookeeper.addresses, chroot="/a"), own_zookeeper.addresses, "/a")
    try:
        await host.open()
        host.job("etl")
        host.job("lenient", on_isolation=OnIsolation.RUN)
        await host.assign(("etl", 0), ("lenient", 0))
        await host.running("etl")
        await host.running("lenient")
        own_zookeeper.servers[0].pause()
        frozen = clock()
        await host.ended("etl")
        (stint,) = host.oracle.stints("etl", 0)

        assert stint.stopped
        assert stint.last - frozen < SESSION_SECS * LEASE_SHARE
        until = frozen + 2 * SESSION_SECS
        await eventually(lambda: host.oracle.stints("lenient", 0)[-1].last > until, 3 * SESSION_SECS)
        own_zookeeper.servers[0].resume()
        await host.running("etl", timeout=20.0)
    finally:
        own_zookeeper.servers[0].resume()
        await host.close()


@pytest.mark.case("D10")
@pytest.mark.case("A22")
async def test_an_outage_that_all_masters_see_ends_no_worker(
    running: JobHost, own_zookeeper: EmbeddedZooKeeper
) -> None:
    """If this fails, every restart of ZooKeeper stops every job."""
    own_zookeeper.servers[0].pause()
    running.masters.blind, running.masters.newest = True, 1
    until = clock() + 2 * SESSION_SECS
    await eventually(lambda: running.oracle.stints("etl", 0)[-1].last > until, 3 * SESSION_SECS)
    running.masters.blind = False
    sees_again = clock()
    await running.ended("etl")
    (stint,) = running.oracle.stints("etl", 0)

    assert stint.last - sees_again < PROOF_SECS + SESSION_SECS / 6


@pytest.mark.case("D10")
async def test_an_outage_longer_than_every_session_ends_no_worker(
    tmp_path: Path, connect: Connect, proxy: TcpProxy, chroot: str
) -> None:
    """If this fails, every job stops when ZooKeeper is frozen, or cut off from all, for a while."""
    host = JobHost(tmp_path, await connect(), [proxy.address], chroot)
    try:
        await host.open()
        host.job("etl")
        host.job("moved")
        await host.assign(("etl", 0), ("moved", 0))
        await host.running("etl")
        await host.running("moved")
        runs = [host.oracle.stints(name, 0)[0].run for name in ("etl", "moved")]
        host.masters.blind, host.masters.newest = True, 1
        proxy.cut()
        until = clock() + 2 * SESSION_SECS
        await eventually(lambda: host.oracle.stints("etl", 0)[-1].last > until, 3 * SESSION_SECS)
        between = await host.barrier_owner("etl")
        proxy.mend()
        host.masters.blind = False
        until = clock() + PROOF_SECS + SESSION_SECS
        await eventually(lambda: host.oracle.stints("etl", 0)[-1].last > until, 5 * SESSION_SECS)
        after = await host.barrier_owner("etl")
        written = msgspec.json.decode((host.data / "workers.json").read_bytes())
        sessions = {place["run"]["session"] for place in written["places"]}

        assert {after} == sessions, "a restarted supervisor would not know that they are its own"
        assert (None, False) == (between, after is None)
        await host.assign(("etl", 0))
        await host.ended("moved")
        assert runs == [stint.run for name in ("etl", "moved") for stint in host.oracle.stints(name, 0)]
        assert host.alive("etl")
    finally:
        proxy.mend()
        await host.close()


@pytest.mark.case("D10")
@pytest.mark.case("A21")
async def test_a_supervisor_restarted_in_an_outage_adopts_its_workers(
    tmp_path: Path, connect: Connect, proxy: TcpProxy, chroot: str
) -> None:
    """If this fails, updating a host while ZooKeeper is away ends its workers."""
    host = JobHost(tmp_path, await connect(), [proxy.address], chroot)
    host.session_secs = RESTART_SESSION_SECS
    try:
        await host.open()
        host.job("etl")
        await host.assign(("etl", 0))
        host.masters.newest = 1
        for _ in range(4):  # on a very busy machine a restart can take longer than the lease, which shows nothing
            await host.running("etl", timeout=3 * RESTART_SESSION_SECS)
            host.masters.blind = True
            proxy.cut()
            await host.end(signal.SIGKILL)
            stop, end = msgspec.json.decode((host.data / "guard" / "lease.json").read_bytes())["kept"]
            await host.start()
            if clock() < stop - 2.0:
                break
            proxy.mend()
            host.masters.blind = False
            await eventually(lambda over=end: clock() > over + 1.0, 2 * RESTART_SESSION_SECS)  # type: ignore[misc]
        runs = len(host.oracle.stints("etl", 0))
        until = end + 1.0
        await eventually(lambda: host.oracle.stints("etl", 0)[-1].last > until, 2 * RESTART_SESSION_SECS)
        proxy.mend()
        host.masters.blind = False

        async def again() -> bool:
            return await host.barrier_owner("etl") is not None

        await eventually_async(again, 2 * RESTART_SESSION_SECS)
        until = clock() + PROOF_SECS + RESTART_SESSION_SECS / 6
        await eventually(lambda: host.oracle.stints("etl", 0)[-1].last > until, 2 * RESTART_SESSION_SECS)

        assert runs == len(host.oracle.stints("etl", 0))
        assert "worker adopted" in host.log
    finally:
        proxy.mend()
        await host.close()
