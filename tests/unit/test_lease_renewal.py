"""The lease of a host's workers is renewed, whatever else the host does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from simulation.operating_system import simulated
from simulation.virtual_loop import VirtualLoop
from zookeeper_fixtures import eventually

from torrentdist.cluster import paths
from torrentdist.cluster.session.founding import found_cluster
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.launcher.launcher_client import OwnStarter
from torrentdist.launcher.run.run_lease import clock, read_lease
from torrentdist.model.configuration.config import ZooKeeperConfig
from torrentdist.model.ids import BundleId, JobId
from torrentdist.model.jobs.job import JobSpec
from torrentdist.supervisor.exclusivity.barriers import Barriers, Seat
from torrentdist.supervisor.exclusivity.lease_file import ToProve
from torrentdist.supervisor.exclusivity.lease_keeper import LeaseKeeper
from torrentdist.supervisor.jobs.local_state import JobFacts, LocalState, LocalStateFile, RunRecord, WorkerPlace
from torrentdist.supervisor.jobs.worker_loop import WorkerLoop
from torrentdist.supervisor.jobs.worker_starts import KnownApplications, WorkerEnds, WorkerStarts
from torrentdist.supervisor.jobs.worker_table import WorkerTable
from torrentdist.supervisor.process.guardian_processes import GuardianStatus
from torrentdist.supervisor.process.launching import new_run
from torrentdist.supervisor.process.running import Running
from torrentdist.supervisor.process.worker_homes import Homes
from torrentdist.supervisor.worker.heartbeat_files import HeartbeatWatch

KEY = JobId("etl"), 0
SESSION_SECS = 10.0
FACTS = JobFacts(
    incarnation="1", bundle=BundleId("b"), workers=1, spec=JobSpec(name="etl", command=("run.sh",), heartbeat_secs=60.0)
)


async def unexpected(key: tuple[JobId, int], run: RunRecord, status: GuardianStatus | None) -> None:
    pytest.fail(f"the run of {key} ended")


def loop_of(directory: Path, run: RunRecord, homes: Homes | None = None, *more: WorkerPlace) -> WorkerLoop:
    """Returns the loop of a host that runs one worker, while masters say that they see no
    ZooKeeper either."""
    place = WorkerPlace(job=KEY[0], worker=KEY[1], slot=0, run=run)
    local = LocalStateFile(directory, LocalState(places=(*more, place), jobs={KEY[0]: FACTS}), lambda: None)
    running = Running(OwnStarter(), unexpected, lambda: None)
    running.begin(KEY, run, directory)
    handle = running.get(KEY)
    assert handle is not None
    handle.pid = 1
    zk: Any = SimpleNamespace(identity=SimpleNamespace(host="s1", host_user="s1"))
    isolation: Any = SimpleNamespace(proven=clock() + 1000.0, for_next_process=lambda barriers: ToProve())
    nothing: Any = None
    services: Any = SimpleNamespace(content=lambda bundle: None)
    barriers, heartbeats = Barriers(zk, nothing, nothing, nothing), HeartbeatWatch()
    homes = homes or Homes(directory, nothing)
    table = WorkerTable(local, running, barriers, heartbeats, services)
    leases = LeaseKeeper(barriers, isolation, directory / "lease", table.runs)
    starts = WorkerStarts(table, leases, homes, services, nothing, KnownApplications(nothing, nothing))
    return WorkerLoop(table, leases, starts, WorkerEnds(local, homes, heartbeats), asyncio.Event())


def test_a_lease_is_renewed_while_all_threads_are_busy(tmp_path: Path) -> None:
    """If this fails, a host that reads large files ends its workers."""
    run, go_on = new_run(FACTS, session=1), threading.Event()

    def lease() -> float:
        return read_lease(str(tmp_path / "lease"), run.id)[0]

    async def scenario() -> float:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        busy = loop.run_in_executor(None, go_on.wait, 30.0)
        rounds = asyncio.create_task(loop_of(tmp_path, run).run())
        try:
            with contextlib.suppress(TimeoutError):
                await eventually(lambda: lease() > clock(), 5.0)
            return lease()
        finally:
            go_on.set()
            rounds.cancel()
            await asyncio.gather(busy, rounds, return_exceptions=True)

    assert asyncio.run(scenario()) > clock()


@pytest.mark.skipif(os.getuid() != 0, reason="another user's files take root")
def test_a_lease_is_renewed_while_what_another_worker_left_is_removed(tmp_path: Path) -> None:
    """If this fails, the end of one job ends the workers of all others on its hosts, because its
    files take long to remove."""
    run, go_on = new_run(FACTS, session=1), threading.Event()
    work = tmp_path / "workers" / "etl" / "1"
    work.mkdir(parents=True)
    os.chown(work, 20000, 20000)
    removing = threading.Event()

    def remove(path: str, uid: int) -> None:
        removing.set()
        go_on.wait(30.0)

    def lease() -> float:
        return read_lease(str(tmp_path / "lease"), run.id)[0]

    async def scenario() -> float:
        left = WorkerPlace(job=KEY[0], worker=1, slot=1, assigned=False)
        rounds = asyncio.create_task(loop_of(tmp_path, run, Homes(tmp_path, remove), left).run())
        try:
            with contextlib.suppress(TimeoutError):
                await eventually(lambda: removing.is_set() and lease() > clock(), 5.0)
            return lease() if removing.is_set() else 0.0
        finally:
            go_on.set()
            rounds.cancel()
            await asyncio.gather(rounds, return_exceptions=True)

    assert asyncio.run(scenario()) > clock()


def test_a_lease_is_renewed_before_its_host_looks_for_another_proof() -> None:
    """If this fails, each host asks the masters every few seconds whether its workers may run on,
    although ZooKeeper answers."""
    loop = VirtualLoop(random.Random(1))
    with simulated(loop, 1):
        late = loop.run_until_complete(_longest_delay(loop))

    assert late < SESSION_SECS / 40  # as in isolation.py


async def _longest_delay(loop: VirtualLoop) -> float:
    """Returns how long after the time for it a lease was renewed, at most."""
    zk = ZooKeeper(ZooKeeperConfig(servers=["zookeeper:2181"], chroot="/cluster", session_timeout_secs=SESSION_SECS))
    await zk.start(10.0)
    await found_cluster(zk)

    async def save(_: Seat) -> None: ...

    barriers = Barriers(zk, save, lambda: None, lambda: None)
    running = asyncio.create_task(barriers.run())
    barriers.take(paths.worker_resource(*KEY))
    await eventually(lambda: barriers.leased)
    until, late = loop.time() + 60.0, 0.0
    while loop.time() < until:
        await asyncio.sleep(0.01)
        late = max(late, loop.time() - barriers.lease.renewal)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await zk.close()
    return late


def test_a_lease_that_is_half_written_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A guardian would end its worker, because it read the lease while its host renewed it."""
    path, whole = tmp_path / "lease.json", '{"runs": {"r1": [100.0, 200.0]}}'
    path.write_text(whole[:20])
    monkeypatch.setattr(time, "sleep", lambda secs: path.write_text(whole))

    assert (100.0, 200.0) == read_lease(str(path), "r1")
