"""The lease of a host's workers is renewed, whatever else the host does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from zookeeper_fixtures import eventually

from torrentdist.launcher.launcher_client import OwnStarter
from torrentdist.launcher.run.run_lease import clock, read_lease
from torrentdist.model.ids import BundleId, JobId
from torrentdist.model.jobs.job import JobSpec
from torrentdist.supervisor.exclusivity.barriers import Barriers
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


def test_a_lease_that_is_half_written_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A guardian would end its worker, because it read the lease while its host renewed it."""
    path, whole = tmp_path / "lease.json", '{"runs": {"r1": [100.0, 200.0]}}'
    path.write_text(whole[:20])
    monkeypatch.setattr(time, "sleep", lambda secs: path.write_text(whole))

    assert (100.0, 200.0) == read_lease(str(path), "r1")
