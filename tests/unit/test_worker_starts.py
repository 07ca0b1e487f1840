"""The start of a worker on a host."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from torrentdist.model.ids import BundleId, JobId
from torrentdist.model.jobs.job import JobSpec
from torrentdist.supervisor.jobs.local_state import JobFacts, LocalState, WorkerPlace
from torrentdist.supervisor.jobs.worker_starts import KnownApplications, WorkerStarts
from torrentdist.supervisor.process.spark_applications import Application, Applications
from torrentdist.supervisor.process.worker_homes import Homes
from torrentdist.supervisor.worker.worker_types import Barrier

KEY = JobId("daily"), 0
FACTS = JobFacts(incarnation="2", bundle=BundleId("b"), workers=1, spec=JobSpec(name="daily", command=("main.py",)))


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
