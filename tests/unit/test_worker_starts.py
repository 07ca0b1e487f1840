"""The start of a worker on a host."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from torrentdist.launcher.launcher_client import OwnStarter
from torrentdist.model.ids import BundleId, JobId
from torrentdist.model.jobs.job import JobSpec
from torrentdist.supervisor.jobs.assignment_loop import AssignmentLoop
from torrentdist.supervisor.jobs.local_state import JobFacts, LocalState, LocalStateFile, RunRecord, WorkerPlace
from torrentdist.supervisor.jobs.worker_starts import KnownApplications, WorkerStarts
from torrentdist.supervisor.process.guardian_processes import GuardianStatus
from torrentdist.supervisor.process.running import Running
from torrentdist.supervisor.process.spark_applications import Application, Applications
from torrentdist.supervisor.process.worker_homes import Homes
from torrentdist.supervisor.worker.worker_types import Barrier, Key

KEY = JobId("daily"), 0
FACTS = JobFacts(incarnation="2", bundle=BundleId("b"), workers=1, spec=JobSpec(name="daily", command=("main.py",)))


async def unexpected(key: Key, run: RunRecord, status: GuardianStatus | None) -> None:
    pytest.fail(f"the run of {key} ended")


def test_a_start_that_fails_over_a_files_odd_name_is_undone(tmp_path: Path) -> None:
    """One file that a job leaves would end the supervisor of each host that the job comes to."""
    state = LocalState(places=(WorkerPlace(job=KEY[0], worker=KEY[1], slot=0),), jobs={KEY[0]: FACTS})
    local = LocalStateFile(tmp_path, state, lambda: None)
    running = Running(OwnStarter(), unexpected, lambda: None)

    async def fencing() -> int:
        raise PermissionError(1, "Operation not permitted", "work/\udcff")

    barriers = SimpleNamespace(session=1, state_of=lambda _: Barrier.HELD, use=lambda _: None, fencing=fencing)
    table: Any = SimpleNamespace(local=local, running=running)
    leases: Any = SimpleNamespace(barriers=barriers)
    nothing: Any = None

    async def play() -> None:
        known = KnownApplications(Applications("host", lambda: None), nothing)
        starts = WorkerStarts(table, leases, Homes(tmp_path, nothing), nothing, nothing, known)
        starts.begin(KEY)
        while running.get(KEY) is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await starts.close()

    asyncio.run(play())

    assert "Operation not permitted" in local.state.places[0].detail


def test_a_state_that_cannot_be_written_does_not_count(tmp_path: Path) -> None:
    """Each later change of the state would fail, too, and the supervisor end."""
    place = WorkerPlace(job=KEY[0], worker=KEY[1], slot=0)
    local = LocalStateFile(tmp_path, LocalState(places=(place,)), lambda: None)

    with pytest.raises(UnicodeEncodeError):
        asyncio.run(local.commit(lambda state: msgspec.structs.replace(state, cluster="\udcff")))

    assert "" == local.state.cluster


def test_a_job_with_a_strange_answer_keeps_no_other_from_its_host(tmp_path: Path) -> None:
    """If this fails, no worker of any job that comes after it in the alphabet starts on the hosts
    of one strange job."""
    jobs = [JobId(name) for name in ("broken", "odd", "plain")]
    places = tuple(WorkerPlace(job=job, worker=0, slot=slot) for slot, job in enumerate(jobs))
    known = asyncio.Event()
    local = LocalStateFile(tmp_path, LocalState(places=places), known.set)

    async def answer(job: JobId) -> JobFacts:
        if job == "broken":
            raise ZeroDivisionError
        return msgspec.structs.replace(FACTS, incarnation="\udcff") if job == "odd" else FACTS

    async def play() -> None:
        loop = asyncio.create_task(AssignmentLoop(local, answer).run())
        waiting = asyncio.create_task(known.wait())
        await asyncio.wait({loop, waiting}, timeout=10, return_when=asyncio.FIRST_COMPLETED)
        for task in (loop, waiting):
            task.cancel()
        await asyncio.wait({loop, waiting})

    asyncio.run(play())

    assert {jobs[2]: FACTS} == local.state.jobs


def test_a_new_run_does_not_have_the_application_of_the_one_before(tmp_path: Path) -> None:
    """The record of a job whose driver ends early, or has no web page, would name an application of
    an earlier run, or of an earlier job of that id."""
    state = LocalState(places=(WorkerPlace(job=KEY[0], worker=KEY[1], slot=0),), jobs={KEY[0]: FACTS})
    running = SimpleNamespace(begin=lambda *_: None, keys=list)
    barriers = SimpleNamespace(session=1, state_of=lambda _: Barrier.HELD, use=lambda _: None)
    table: Any = SimpleNamespace(local=SimpleNamespace(state=state), running=running)
    leases: Any = SimpleNamespace(barriers=barriers)
    nothing: Any = None
    applications = Applications("host", lambda: None)
    applications._known[KEY] = "run-1", Application("app-1", "http://host:4040")

    async def play() -> None:
        known = KnownApplications(applications, nothing)
        starts = WorkerStarts(table, leases, Homes(tmp_path, nothing), nothing, nothing, known)
        starts.begin(KEY)
        await starts.close()

    asyncio.run(play())

    assert Application() == applications.of(KEY)
