"""Measures that were decided for a run that ended before they were taken."""

from __future__ import annotations

import asyncio
import fcntl
from pathlib import Path

import pytest

from torrentdist.launcher.launcher_client import HostIsolation, OwnStarter
from torrentdist.launcher.run.run_files import LOCK
from torrentdist.launcher.run.run_lease import clock
from torrentdist.model.ids import BundleId, JobId
from torrentdist.model.jobs.job import JobSpec
from torrentdist.supervisor.jobs import placement
from torrentdist.supervisor.jobs.local_state import JobFacts, LocalState, LocalStateFile, RunRecord, WorkerPlace
from torrentdist.supervisor.jobs.worker_starts import WorkerEnds
from torrentdist.supervisor.process.guardian_processes import GuardianStatus
from torrentdist.supervisor.process.launching import new_run
from torrentdist.supervisor.process.running import SIGNALS, Running
from torrentdist.supervisor.process.worker_homes import Homes
from torrentdist.supervisor.worker.heartbeat_files import HeartbeatWatch

KEY = JobId("etl"), 0
FACTS = JobFacts(incarnation="1", bundle=BundleId("etl-1"), workers=1, spec=JobSpec(name="etl", command=("true",)))


async def unexpected(key: tuple[JobId, int], run: RunRecord, status: GuardianStatus | None) -> None:
    pytest.fail(f"the run of {key} ended twice")


class Senseless:
    """A launcher whose answer to a start makes no sense."""

    def isolation(self) -> HostIsolation:
        return HostIsolation(namespaces=True)

    def start(self, home: str, run: str, told: int) -> tuple[int, int]:
        raise ValueError("no pid")

    def remove(self, path: str, uid: int) -> None:
        pytest.fail("nothing is to be removed")


@pytest.mark.anyio
async def test_a_run_that_may_have_started_keeps_its_place(tmp_path: Path) -> None:
    """If this fails, a worker whose launcher answers nonsense runs on, and a second one starts."""
    running = Running(Senseless(), unexpected, lambda: None)
    running.begin(KEY, new_run(FACTS, session=1), tmp_path)
    with (tmp_path / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as a guardian that is alive
        await running.launch(KEY)
        await asyncio.sleep(0)  # the task that looks for its guardian begins
        kept = running.get(KEY)
        await running.close()

    assert kept is not None


def test_a_run_that_has_just_ended_is_left_alone() -> None:
    """If this fails, a supervisor ends by itself when a worker ends while a round decides."""
    running = Running(OwnStarter(), unexpected, lambda: None)
    running.carry_over(KEY, 7)

    assert [False] * 3 == [running.end(KEY, measure) for measure in SIGNALS]
    assert running.get(KEY) is None


@pytest.mark.anyio
async def test_a_run_without_a_status_is_started_again_after_a_pause(tmp_path: Path) -> None:
    """If this fails, a worker whose guardian cannot start is started again and again, as fast as
    the disk and ZooKeeper allow."""
    run, began = new_run(FACTS, session=1), clock()
    place = WorkerPlace(job=KEY[0], worker=KEY[1], slot=0, run=run)
    local = LocalStateFile(tmp_path, LocalState(places=(place,), jobs={KEY[0]: FACTS}), lambda: None)
    await WorkerEnds(local, Homes(tmp_path), HeartbeatWatch()).ended(KEY, run, None)
    [place] = local.state.places

    assert not placement.life_of(place).ended
    assert began < placement.life_of(place).not_before
