"""A supervisor runs what its assignment says: a real process, a real ZooKeeper, real workers, an oracle outside."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from job_host import SESSION_SECS, JobHost
from worker_oracle import Oracle
from zookeeper_fixtures import Connect, eventually, eventually_async

from torrentdist.cluster.term import LEASE_SHARE
from torrentdist.cluster.zookeeper import SessionId, ZooKeeper
from torrentdist.dev.zookeeper import EmbeddedZooKeeper
from torrentdist.model.ids import JobId
from torrentdist.model.job import OnIsolation, Restart, RestartPolicy
from torrentdist.model.views import WorkerState
from torrentdist.supervisor.guardian import clock
from torrentdist.supervisor.isolation import PROOF_SECS
from torrentdist.supervisor.reporting import HeartbeatAnswer

pytestmark = pytest.mark.anyio

NewHost = Callable[..., Awaitable[JobHost]]


@pytest.fixture
async def new_host(
    tmp_path: Path, zookeeper: EmbeddedZooKeeper, chroot: str, connect: Connect
) -> AsyncIterator[NewHost]:
    hosts: list[JobHost] = []

    async def make(name: str = "s1", oracle: Oracle | None = None) -> JobHost:
        host = JobHost(tmp_path, await connect(), zookeeper.addresses, chroot, name)
        hosts.append(host)
        await host.open(oracle)
        return host

    yield make
    for host in hosts:
        await host.close()


@pytest.fixture
async def host(new_host: NewHost) -> JobHost:
    return await new_host()


async def test_an_assigned_worker_runs_over_its_bundle_behind_its_barrier(host: JobHost) -> None:
    """If this fails, no job runs, or one runs without what excludes a second copy."""
    host.job("etl", workers=2)
    await host.assign(("etl", 0), ("etl", 1))
    await host.running("etl", 0)
    await host.running("etl", 1)
    stint = host.oracle.stints("etl", 1)[0]
    env = stint.said["env"]

    assert await host.barrier_owner("etl", 0) is not None
    assert ("etl", "1", "2", "1") == tuple(env[f"TORRENTDIST_{n}"] for n in ("JOB", "WORKER", "WORKERS", "SLOT"))
    assert str(host.data / "workers" / "etl" / "1") == stint.said["cwd"]
    assert f"{stint.said['cwd']}/bundle/work.py" == stint.said["argv"][0]
    await eventually(lambda: (r := host.masters.said("etl", 1)) is not None and r.pid == stint.pid)
    said = host.masters.said("etl", 1)
    assert said is not None
    assert (WorkerState.RUNNING, stint.fencing, 1) == (said.state, said.fencing, host.masters.heard[-1].generation)


async def test_a_worker_that_is_not_assigned_any_more_is_stopped_then_its_barrier_goes(host: JobHost) -> None:
    """If this fails, a moved worker runs twice, or never starts at its new place."""
    host.job("etl")
    await host.assign(("etl", 0))
    await host.running("etl")
    await host.assign()
    released: list[bool] = []

    async def free() -> bool:
        if await host.barrier_owner("etl") is None:
            released.append(host.alive("etl"))
        return bool(released)

    await eventually_async(free)
    await eventually(lambda: not (host.data / "workers" / "etl").exists())

    assert [False] == released
    assert host.oracle.stints("etl", 0)[0].stopped
    assert not host.statuses()


async def test_a_worker_that_ends_is_started_again_as_its_policy_says(host: JobHost) -> None:
    """If this fails, a crashed worker stays away, or a finished one runs for ever."""
    host.job("crashes", "work.py", "exit", "3", restart=Restart(backoff_secs=0.1, max_backoff_secs=5.0, limit=2))
    host.job("finishes", "work.py", "exit", "0")
    host.job("returns", "work.py", "exit", "0", restart=Restart(policy=RestartPolicy.ALWAYS, backoff_secs=0.1, limit=1))
    await host.assign(("crashes", 0), ("finishes", 0), ("returns", 0))

    def ended(job: str) -> bool:
        said = host.masters.said(job, 0)
        return said is not None and said.state is WorkerState.ENDED

    await eventually(lambda: all(ended(job) for job in ("crashes", "finishes", "returns")), 20.0)
    codes = {r.job: (r.exit_code, r.restarts) for r in host.masters.heard[-1].workers}
    stints = {job: host.oracle.stints(job, 0) for job in codes}

    assert {"crashes": (3, 2), "finishes": (0, 0), "returns": (0, 1)} == codes
    assert {"crashes": 3, "finishes": 1, "returns": 2} == {str(job): len(found) for job, found in stints.items()}
    fencing = [stint.fencing for stint in stints[JobId("crashes")]]
    assert sorted(set(fencing)) == fencing

    async def free() -> bool:
        return await host.barrier_owner("crashes") is None

    await eventually_async(free)


async def test_deactivated_it_stops_and_keeps_its_place_and_activated_it_starts_again(host: JobHost) -> None:
    """If this fails, deactivate kills what it should keep, or activate doesn't bring it back."""
    host.job("etl")
    await host.assign(("etl", 0))
    await host.running("etl")
    kept = host.data / "workers" / "etl" / "0" / "checkpoint"
    kept.write_text("half done")
    await host.assign(inactive=[("etl", 0)])
    await host.ended("etl")
    await eventually(lambda: (r := host.masters.said("etl", 0)) is not None and r.state is WorkerState.INACTIVE)
    await host.assign(("etl", 0))
    await host.running("etl")
    first, second = host.oracle.stints("etl", 0)

    assert first.stopped
    assert second.fencing > first.fencing
    assert "half done" == kept.read_text()
    said = host.masters.said("etl", 0)
    assert said is not None
    assert (0, 0) == (said.slot, said.restarts)


async def test_one_that_does_not_stop_is_killed_after_its_grace(host: JobHost) -> None:
    """If this fails, a stubborn worker blocks its place for ever, or a slow one gets no time to end well."""
    host.job("etl", "work.py", "stubborn", stop_grace_secs=1.0)
    await host.assign(("etl", 0))
    await host.running("etl")
    asked = clock()
    await host.assign()
    await host.ended("etl")
    (stint,) = host.oracle.stints("etl", 0)

    assert not stint.stopped
    assert 1.0 <= stint.last - asked + 0.1
    assert stint.last - asked < 3.0


@pytest.mark.case("A21")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda n: n.name)
async def test_a_restarted_supervisor_adopts_its_workers(host: JobHost, number: signal.Signals) -> None:
    """If this fails, every update of a supervisor interrupts every job."""
    host.job("etl", workers=2)
    await host.assign(("etl", 0), ("etl", 1))
    await host.running("etl", 0)
    await host.running("etl", 1)
    before = [host.oracle.stints("etl", k)[0].pid for k in (0, 1)]
    owner = await host.barrier_owner("etl", 0)
    await host.end(number)
    host.masters.heard.clear()
    await host.start()
    await eventually(lambda: (r := host.masters.said("etl", 1)) is not None and r.pid == before[1])
    # Longer than the lease that the first process left.
    until = clock() + SESSION_SECS
    await eventually(lambda: host.oracle.stints("etl", 0)[-1].last > until, 2 * SESSION_SECS)
    after = [[s.pid for s in host.oracle.stints("etl", k)] for k in (0, 1)]

    assert [[pid] for pid in before] == after
    assert owner is not None
    assert owner == await host.barrier_owner("etl", 0)
    assert "worker adopted" in host.log
    await host.assign(("etl", 1))
    await host.ended("etl", 0)
    assert host.alive("etl", 1)


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
    """If this fails, a supervisor that comes back too late believes in barriers that others may have."""
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
    """Behind its back, before it has timed out."""
    thief = ZooKeeper(host.zk._config, SessionId(seat["session"], base64.b64decode(seat["password"])))
    await thief.start(5.0)
    await thief.close()


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
    tmp_path: Path, own_zookeeper: EmbeddedZooKeeper, connect: Connect
) -> None:
    """If this fails, every restart of ZooKeeper stops every job."""
    zk = await connect(servers=own_zookeeper.addresses, chroot="/a")
    host = JobHost(tmp_path, zk, own_zookeeper.addresses, "/a")
    try:
        await host.open()
        host.job("etl")
        await host.assign(("etl", 0))
        await host.running("etl")
        own_zookeeper.servers[0].pause()
        host.masters.blind = True
        until = clock() + 2 * SESSION_SECS
        await eventually(lambda: host.oracle.stints("etl", 0)[-1].last > until, 3 * SESSION_SECS)
        host.masters.blind = False
        sees_again = clock()
        await host.ended("etl")
        (stint,) = host.oracle.stints("etl", 0)

        assert stint.last - sees_again < PROOF_SECS + SESSION_SECS / 6
    finally:
        own_zookeeper.servers[0].resume()
        await host.close()


async def test_a_worker_waits_for_a_barrier_that_another_host_holds(new_host: NewHost) -> None:
    """If this fails, a worker that moves runs twice for a moment, or waits longer than it has to."""
    first = await new_host("s1")
    second = await new_host("s2", first.oracle)
    for host in (first, second):
        host.job("etl", "work.py", "stubborn", stop_grace_secs=1.0)
    await first.assign(("etl", 0))
    await first.running("etl")
    await second.assign(("etl", 0))
    await eventually(lambda: (r := second.masters.said("etl", 0)) is not None and r.detail == "for its barrier")
    await first.assign()
    await eventually(lambda: len(first.oracle.stints("etl", 0)) == 2, 10.0)
    before, after = first.oracle.stints("etl", 0)

    assert before.last < after.start
    assert after.start - before.last < 1.0
    assert before.fencing < after.fencing


async def test_a_lost_guardian_takes_its_worker_along(host: JobHost) -> None:
    """If this fails, the out-of-memory killer makes a worker that nobody can end."""
    host.job("etl")
    await host.assign(("etl", 0))
    await host.running("etl")
    os.kill(host.statuses()[0]["guardian"], signal.SIGKILL)
    await eventually(lambda: len(host.oracle.stints("etl", 0)) == 2)
    first, second = host.oracle.stints("etl", 0)

    assert first.last < second.start
    assert not first.stopped


async def test_output_is_read_at_the_gateway(host: JobHost) -> None:
    """If this fails, nobody sees what a worker prints."""
    host.job("etl")
    await host.assign(("etl", 0))
    await host.running("etl")
    answer = await asyncio.to_thread(host.gateway, "/v1/host/jobs/etl/0/log?follow=5")
    rest = await asyncio.to_thread(host.gateway, f"/v1/host/jobs/etl/0/log?offset={answer.headers['X-Next-Offset']}")

    assert "hello from etl.0\n" == answer.text
    assert ("0", "17", "") == (answer.headers["X-Offset"], answer.headers["X-Next-Offset"], rest.text)
    assert 404 == (await asyncio.to_thread(host.gateway, "/v1/host/jobs/etl/7/log")).status_code


async def test_peers_are_told_in_a_file(host: JobHost) -> None:
    """If this fails, the workers of a job cannot find each other."""
    host.job("etl")
    host.masters.answer = HeartbeatAnswer(interval=0.2, peers={JobId("etl"): {"0": "h1", "1": "h2"}})
    await host.assign(("etl", 0))
    await host.running("etl")
    path = Path(host.oracle.stints("etl", 0)[0].said["env"]["TORRENTDIST_PEERS_FILE"])
    await eventually(path.exists)
    found = await asyncio.to_thread(path.read_bytes)

    assert {"job": "etl", "workers": {"0": "h1", "1": "h2"}} == msgspec.json.decode(found)
