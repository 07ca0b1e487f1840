"""A supervisor runs what its assignment says: a real process, a real ZooKeeper, real workers, an
oracle outside."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import msgspec
import pytest
from job_host import JobHost, Masters
from zookeeper_fixtures import eventually, eventually_async

from torrentdist.cluster import paths
from torrentdist.launcher.run.run_lease import clock
from torrentdist.model.ids import BundleId, JobId
from torrentdist.model.jobs.job import Restart, RestartPolicy
from torrentdist.model.wire.job_messages import HeartbeatAnswer, WorkerState

pytestmark = pytest.mark.anyio


async def test_an_assigned_worker_runs_over_its_bundle_behind_its_barrier(host: JobHost) -> None:
    """If this fails, no job runs, or one runs without the barrier that excludes a second copy."""
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
    await eventually(lambda: (r := host.masters.said("etl", 1)) is not None and r.pid == host.oracle.holder("etl", 1))
    said = host.masters.said("etl", 1)
    assert said is not None
    assert (WorkerState.RUNNING, stint.fencing, 1) == (said.state, said.fencing, host.masters.heard[-1].generation)


async def test_relative_paths_work_as_on_the_authors_machine(host: JobHost) -> None:
    """If this fails, `python3 main.py` does not find main.py, the modules beside it or its data, or
    it changes the store."""
    host.job("etl", "python3", "main.py")
    await host.assign(("etl", 0))
    await host.running("etl")
    content = (host.data / "workers" / "etl" / "0" / "bundle").resolve()

    assert "./work.py" == host.oracle.stints("etl", 0)[0].said["argv"][0]
    assert {path.name for path in (host.dir / "source").iterdir()} == {path.name for path in content.iterdir()}


async def test_a_start_that_fails_unexpectedly_keeps_no_barrier(host: JobHost) -> None:
    """If this fails, a worker that cannot start says nothing, and no other host can have it until
    its supervisor restarts."""
    host.job("etl")
    view = host.masters.jobs["etl"]
    assert view.spec is not None
    empty = msgspec.structs.replace(view.spec, command=())
    host.masters.jobs["etl"] = msgspec.structs.replace(view, spec=empty)
    await host.assign(("etl", 0))
    await eventually(lambda: (r := host.masters.said("etl", 0)) is not None and "unpack" in r.detail)
    held = await host.barrier_owner("etl")
    await host.assign()

    assert held is not None
    await eventually_async(lambda: is_free(host, "etl"))


async def is_free(host: JobHost, job: str) -> bool:
    return await host.barrier_owner(job) is None


@pytest.mark.parametrize("restarts", [True, False])
async def test_a_host_that_comes_back_starts_nothing_that_it_is_not_told_of(host: JobHost, restarts: bool) -> None:
    """If this fails, a job that was killed a week ago runs again on a host that was away. It takes
    long: a supervisor starts twice, or its session ends."""
    host.job("etl")
    await host.assign(("etl", 0))
    await host.running("etl")
    if restarts:
        await host.end(signal.SIGKILL)
        [status] = host.statuses()
        os.kill(status["guardian"], signal.SIGKILL)
    else:
        host.send(signal.SIGSTOP)
    await host.ended("etl")
    await host.zk.delete(paths.assignment(host.id))
    host.masters.heard.clear()
    if restarts:
        await host.start()
    else:
        await eventually_async(lambda: is_free(host, "etl"))
        host.send(signal.SIGCONT)
    await eventually(lambda: len(host.masters.heard) > 15)
    before = len(host.oracle.stints("etl", 0))
    await host.assign(("etl", 0))
    await host.running("etl")

    assert 1 == before


async def test_a_worker_in_backoff_says_why(host: JobHost) -> None:
    """If this fails, a job loops through restarts, and only its log tells why."""
    programs = {"fails": "import no_such_module", "silent": "import os; os._exit(3)"}
    for job, program in programs.items():
        host.job(job, "python3", "-c", program, restart=Restart(backoff_secs=60.0))
    await host.assign(*((job, 0) for job in programs))
    await eventually(
        lambda: all((r := host.masters.said(j, 0)) is not None and r.state is WorkerState.BACKOFF for j in programs)
    )
    said = {report.job: (report.exit_code, report.detail) for report in host.masters.heard[-1].workers}

    assert {"fails": (1, "ModuleNotFoundError: No module named 'no_such_module'"), "silent": (3, "")} == said


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
    await eventually(lambda: not (host.data / "workers" / "etl").exists() and not host.statuses())

    assert [False] == released
    assert host.oracle.stints("etl", 0)[0].stopped


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


@pytest.mark.alone
async def test_one_that_does_not_stop_is_killed_after_its_grace(host: JobHost) -> None:
    """If this fails, a stubborn worker blocks its place for ever, or a slow one gets no time to end
    well."""
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


async def test_output_is_read_at_the_gateway(host: JobHost) -> None:
    """If this fails, a user cannot see what a worker prints."""
    host.job("etl")
    await host.assign(("etl", 0))
    await host.running("etl")
    answer = await asyncio.to_thread(host.gateway, "/v1/host/jobs/etl/0/log?follow=5")
    rest = await asyncio.to_thread(host.gateway, f"/v1/host/jobs/etl/0/log?offset={answer.headers['X-Next-Offset']}")

    assert "hello from etl.0\n" == answer.text
    assert ("0", "17", "") == (answer.headers["X-Offset"], answer.headers["X-Next-Offset"], rest.text)
    assert 404 == (await asyncio.to_thread(host.gateway, "/v1/host/jobs/etl/7/log")).status_code


@pytest.mark.case("A22")
async def test_heartbeats_follow_the_leader_and_workers_need_none(host: JobHost) -> None:
    """If this fails, a new leader hears nothing of healthy workers, or they end with the old
    one."""
    host.job("etl")
    await host.assign(("etl", 0))
    await host.running("etl")
    other = Masters()
    await other.open()
    try:
        host.masters.leader = "http://127.0.0.1:1"
        host.masters.heard.clear()
        until = clock() + 1.0
        await eventually(lambda: host.oracle.stints("etl", 0)[-1].last > until)
        assert [] == host.masters.heard
        host.masters.leader = other.url
        await eventually(lambda: other.said("etl", 0))
        said, stints = other.said("etl", 0), host.oracle.stints("etl", 0)
    finally:
        await other.close()

    assert said is not None
    assert (1, said.pid) == (len(stints), host.oracle.holder("etl", 0))


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


async def test_a_silent_worker_is_restarted_as_one_that_failed(host: JobHost) -> None:
    """If this fails, a worker that hangs keeps its place for ever, and its job stands still."""
    restart = Restart(backoff_secs=0.1, limit=1)
    host.job("hangs", heartbeat_secs=0.5, heartbeat_start_secs=0.5, restart=restart)
    await host.assign(("hangs", 0))
    await eventually(lambda: (r := host.masters.said("hangs", 0)) is not None and r.state is WorkerState.ENDED, 30.0)
    said = host.masters.said("hangs", 0)

    assert said is not None
    assert (1, 1, "it was silent") == (said.restarts, said.exit_code, said.detail)
    assert [True, True] == [stint.stopped for stint in host.oracle.stints("hangs", 0)]


async def test_a_backoff_outlives_its_supervisor(host: JobHost) -> None:
    """If this fails, a supervisor that restarts forgets the backoff, and a crashing worker hammers
    its servers."""
    host.job("crashes", "work.py", "exit", "3", restart=Restart(backoff_secs=60.0))

    def waits() -> bool:
        said = host.masters.said("crashes", 0)
        return said is not None and said.state is WorkerState.BACKOFF

    await host.assign(("crashes", 0))
    await eventually(waits, 20.0)
    await host.end(signal.SIGKILL)
    host.masters.heard.clear()
    await host.start()
    await eventually(waits, 20.0)

    assert 1 == len(host.oracle.stints("crashes", 0))


@pytest.mark.case("A21")
async def test_a_place_is_given_up_in_the_middle_of_a_fetch(host: JobHost) -> None:
    """If this fails, a bundle that does not arrive blocks a host that has other work meanwhile."""
    host.job("etl")
    host.masters.jobs["etl"] = msgspec.structs.replace(host.masters.jobs["etl"], bundle=BundleId("on-its-way"))
    host.job("other")
    await host.assign(("etl", 0))
    await eventually(lambda: (r := host.masters.said("etl", 0)) is not None and "for its bundles" in r.detail, 20.0)
    await host.assign(("other", 0))
    await host.running("other")
    await eventually(lambda: host.masters.said("etl", 0) is None)

    assert [] == host.oracle.stints("etl", 0)
    assert not (host.data / "workers" / "etl").exists()
