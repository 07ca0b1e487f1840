"""No worker of a job outlives its barrier, whatever happens to its supervisor and its guardian; and
restarted supervisors adopt their workers."""

from __future__ import annotations

import base64
import os
import signal
from typing import Any

import msgspec
import pytest
from job_host import RESTART_SESSION_SECS, SESSION_SECS, JobHost, NewHost
from zookeeper_fixtures import eventually, eventually_async

from torrentdist.cluster import paths
from torrentdist.cluster.election.term import LEASE_SHARE
from torrentdist.cluster.session.znode_operations import Create, Delete
from torrentdist.cluster.session.zookeeper_session import SessionId, ZooKeeper
from torrentdist.dev.embedded_zookeeper import EmbeddedZooKeeper
from torrentdist.launcher.run.run_lease import clock
from torrentdist.supervisor.exclusivity.barriers import RECHECK_SECS

pytestmark = pytest.mark.anyio


def watches_of(zookeeper: EmbeddedZooKeeper, session: int) -> set[str]:
    """Returns the paths that this session watches in ZooKeeper."""
    by_session = zookeeper.servers[0].command("wchc").split("0x")
    (own,) = [part for part in by_session if part and int(part.split()[0], 16) == session % 2**64]
    return set(own.split()[1:])


@pytest.mark.case("A21")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda n: n.name)
async def test_a_restarted_supervisor_adopts_its_workers(
    new_host: NewHost, zookeeper: EmbeddedZooKeeper, chroot: str, number: signal.Signals
) -> None:
    """If this fails, every update of a supervisor interrupts every job, or supervisors watch more
    than they need."""
    host = await new_host(session_secs=RESTART_SESSION_SECS)
    host.job("etl", workers=2)
    await host.assign(("etl", 0), ("etl", 1))
    await host.running("etl", 0)
    await host.running("etl", 1)
    before, pid = [host.oracle.stints("etl", k)[0].run for k in (0, 1)], host.oracle.holder("etl", 1)
    owner = await host.barrier_owner("etl", 0)
    await host.end(number)
    host.masters.heard.clear()
    await host.start()
    await eventually(lambda: (r := host.masters.said("etl", 1)) is not None and r.pid == pid)
    # Longer than the lease that the first process left.
    until = clock() + LEASE_SHARE * RESTART_SESSION_SECS
    await eventually(lambda: host.oracle.stints("etl", 0)[-1].last > until, 2 * RESTART_SESSION_SECS)
    after = [[s.run for s in host.oracle.stints("etl", k)] for k in (0, 1)]

    assert [[run] for run in before] == after
    assert owner is not None
    assert owner == await host.barrier_owner("etl", 0)
    assert "worker adopted" in host.log
    await host.assign(("etl", 1))
    await host.ended("etl", 0)
    assert host.alive("etl", 1)
    watched = {paths.assignment(host.id), paths.REMOVALS}
    assert {chroot + path for path in watched} == watches_of(zookeeper, owner)


async def test_a_worker_that_ended_while_its_supervisor_was_away_starts_once(new_host: NewHost) -> None:
    """If this fails, a restarted supervisor releases the barrier of the worker that it is just
    starting."""
    host = await new_host(session_secs=RESTART_SESSION_SECS)
    host.job("etl")
    await host.assign(("etl", 0))
    await host.running("etl")
    await host.end(signal.SIGKILL)
    os.kill(host.statuses()[0]["guardian"], signal.SIGTERM)
    await eventually(lambda: host.statuses()[0]["state"] == "gone", RESTART_SESSION_SECS)
    await host.start()
    await eventually(lambda: len(host.oracle.stints("etl", 0)) > 1, RESTART_SESSION_SECS)
    heard = len(host.masters.heard)
    await eventually(lambda: len(host.masters.heard) > heard + 10, RESTART_SESSION_SECS)

    assert 2 == len(host.oracle.stints("etl", 0))
    assert "the barrier is lost" not in host.log


async def test_without_a_supervisor_workers_end_before_their_barrier(host: JobHost) -> None:
    """If this fails, a dead supervisor's worker runs on while another host starts the same one."""
    host.job("etl")
    await host.assign(("etl", 0))
    await host.running("etl")
    await host.end(signal.SIGKILL)
    alive_when_free: list[bool] = []

    async def free() -> bool:
        if await host.barrier_owner("etl") is None:
            alive_when_free.append(host.alive("etl"))
        return bool(alive_when_free)

    await eventually_async(free, 4 * SESSION_SECS)

    assert [False] == alive_when_free
    (stint,) = host.oracle.stints("etl", 0)
    assert stint.stopped


@pytest.mark.case("E1")
async def test_a_supervisor_that_is_paused_loses_its_workers_in_time(host: JobHost) -> None:
    """If this fails, a host that swaps or hangs runs workers that were given to others."""
    host.job("etl")
    await host.assign(("etl", 0))
    await host.running("etl")
    alive_when_free: list[bool] = []

    async def free() -> bool:
        if await host.barrier_owner("etl") is None:
            alive_when_free.append(host.alive("etl"))
        return bool(alive_when_free)

    host.send(signal.SIGSTOP)
    await eventually_async(free, 4 * SESSION_SECS)
    host.send(signal.SIGCONT)

    assert [False] == alive_when_free
    await eventually(lambda: len(host.oracle.stints("etl", 0)) == 2, 15.0)
    first, second = host.oracle.stints("etl", 0)
    assert first.last < second.start
    assert first.fencing < second.fencing


async def test_a_session_that_cannot_be_taken_up_ends_what_ran_in_it(host: JobHost) -> None:
    """If this fails, a supervisor that comes back too late relies on barriers that others may
    have."""
    host.job("etl")
    await host.assign(("etl", 0))
    await host.running("etl")
    await host.end(signal.SIGKILL)
    seat = msgspec.json.decode((host.data / "session.json").read_bytes())
    await end_session(host, seat)
    await host.start()
    await eventually(lambda: len(host.oracle.stints("etl", 0)) == 2, 15.0)
    first, second = host.oracle.stints("etl", 0)

    assert first.last < second.start
    assert 0o600 == (host.data / "session.json").stat().st_mode & 0o777


async def end_session(host: JobHost, seat: dict[str, Any]) -> None:
    """Ends the supervisor's session without its knowledge, before the session has timed out."""
    thief = ZooKeeper(host.zk._config, SessionId(seat["session"], base64.b64decode(seat["password"])))
    await thief.start(5.0)
    await thief.close()


@pytest.mark.alone
async def test_a_worker_waits_for_a_barrier_that_another_host_holds(
    new_host: NewHost, zookeeper: EmbeddedZooKeeper, chroot: str
) -> None:
    """If this fails, a worker that moves runs twice for a moment, or waits longer than it has
    to."""
    first = await new_host("s1")
    second = await new_host("s2", first.oracle)
    for host in (first, second):
        host.job("etl", "work.py", "stubborn", stop_grace_secs=1.0)
    await first.assign(("etl", 0))
    await first.running("etl")
    await second.assign(("etl", 0))
    await eventually(lambda: (r := second.masters.said("etl", 0)) is not None and r.detail == "for its barrier")
    waits_in = msgspec.json.decode((second.data / "session.json").read_bytes())["session"]
    barrier = paths.JOB_GROUP.barrier("etl.0")
    watched = {chroot + path for path in (paths.assignment(second.id), paths.REMOVALS, barrier)}
    await eventually(lambda: watches_of(zookeeper, waits_in) == watched)
    await first.assign()
    await eventually(lambda: len(first.oracle.stints("etl", 0)) == 2, 10.0)
    before, after = first.oracle.stints("etl", 0)

    assert before.last < after.start
    assert after.start - before.last < 2.5
    assert before.fencing < after.fencing


@pytest.mark.case("C8")
async def test_a_barrier_that_somebody_took_away_is_missed(host: JobHost) -> None:
    """If this fails, an administrator's mistake makes a worker run twice, and nothing reports
    it."""
    host.job("etl")
    await host.assign(("etl", 0))
    await host.running("etl")
    barrier = paths.JOB_GROUP.barrier("etl.0")
    await host.zk.commit([Delete(barrier), Create(barrier, ephemeral=True)])
    await host.ended("etl", timeout=3 * RECHECK_SECS)
    owner = await host.barrier_owner("etl")
    await host.zk.delete(barrier)
    await eventually(lambda: len(host.oracle.stints("etl", 0)) == 2)

    assert host.zk.session_id == owner
    assert await host.barrier_owner("etl") not in (None, owner)


async def test_a_lost_guardian_takes_its_worker_along(host: JobHost) -> None:
    """If this fails, a worker whose guardian the out-of-memory killer took can never be ended."""
    host.job("etl")
    await host.assign(("etl", 0))
    await host.running("etl")
    os.kill(host.statuses()[0]["guardian"], signal.SIGKILL)
    await eventually(lambda: len(host.oracle.stints("etl", 0)) == 2)
    first, second = host.oracle.stints("etl", 0)

    assert first.last < second.start
    assert not first.stopped
