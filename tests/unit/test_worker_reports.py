"""What a supervisor reports of a worker: its state, and what it waits for."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from torrentdist.model.ids import JobId
from torrentdist.model.wire.job_messages import WorkerState
from torrentdist.supervisor.jobs.local_state import WorkerPlace
from torrentdist.supervisor.jobs.worker_table import FOR_BUNDLES, report_of, state_of
from torrentdist.supervisor.process.spark_applications import Application
from torrentdist.supervisor.worker.worker_types import Barrier, Launch, Life, Worker

NOW = 100.0
READY = Worker((JobId("etl"), 0), assigned=True, launch=Launch("1"), bundles_here=True, barrier=Barrier.HELD)


@pytest.mark.parametrize(
    ("worker", "expected"),
    [
        (READY, (WorkerState.WAITING, "")),
        (replace(READY, barrier=Barrier.ASKED), (WorkerState.WAITING, "for its barrier")),
        (replace(READY, bundles_here=False), (WorkerState.WAITING, FOR_BUNDLES)),
        (replace(READY, launch=None), (WorkerState.WAITING, "for the job's record")),
        (replace(READY, confirmed=False), (WorkerState.WAITING, "for this host's assignment")),
        (replace(READY, active=False), (WorkerState.INACTIVE, "")),
        (replace(READY, assigned=False), (WorkerState.INACTIVE, "")),
        (replace(READY, life=Life(ended=True)), (WorkerState.ENDED, "")),
        (replace(READY, life=Life(not_before=NOW + 0.1)), (WorkerState.BACKOFF, "")),
        (replace(READY, life=Life(not_before=NOW)), (WorkerState.WAITING, "")),
    ],
)
def test_a_worker_that_does_not_run_says_why(worker: Worker, expected: tuple[WorkerState, str]) -> None:
    """An operator would wait for a barrier that is there, or look for a bundle that is not
    missing."""
    assert expected == state_of(worker, NOW)


@pytest.mark.parametrize(
    ("worker", "expected"), [(replace(READY, bundles_here=False), f"{FOR_BUNDLES}: not enough room"), (READY, "")]
)
def test_a_worker_that_waits_for_its_bundles_says_why_they_do_not_come(worker: Worker, expected: str) -> None:
    """The user of a job would not learn that a host has no room for its bundle."""
    place = WorkerPlace(job=JobId("etl"), worker=0, slot=0)

    assert expected == report_of(place, worker, None, Application(), "not enough room", NOW).detail
