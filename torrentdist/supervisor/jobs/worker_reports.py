"""Builds the report of a worker: its place, what runs there, and what it waits for.
Pure: no I/O and no clock.
"""

from __future__ import annotations

from torrentdist.model.jobs.report_bounds import bounded
from torrentdist.model.wire.job_messages import WorkerReport, WorkerState
from torrentdist.supervisor.jobs.local_state import WorkerPlace
from torrentdist.supervisor.process.running import Handle
from torrentdist.supervisor.process.spark_applications import Application
from torrentdist.supervisor.worker.worker_types import Barrier, Measure, Worker

FOR_BUNDLES = "for its bundles"


def report_of(
    place: WorkerPlace, worker: Worker, handle: Handle | None, application: Application, trouble: str, now: float
) -> WorkerReport:
    """Returns the report of one worker. `trouble` says why its bundles could not be fetched."""
    state, waits = state_of(worker, now)
    if waits == FOR_BUNDLES and trouble:
        waits = f"{waits}: {trouble}"
    report = WorkerReport(
        job=place.job,
        worker=place.worker,
        state=state,
        pid=handle.pid if handle is not None else 0,
        slot=place.slot,
        exit_code=place.exit_code,
        restarts=place.restarts,
        fencing=place.fencing,
        since=handle.run.since if handle is not None else 0.0,
        fetched_at=place.fetched_at,
        ended_at=place.ended_at,
        detail=place.detail or waits,
        application=application.id,
        ui=application.ui if handle is not None else "",
    )
    return bounded(report)


def state_of(worker: Worker, now: float) -> tuple[WorkerState, str]:
    """Returns the state of a worker, and what it is waiting for."""
    if worker.run is not None:
        return (WorkerState.RUNNING if worker.run.measure is Measure.NONE else WorkerState.STOPPING), ""
    if worker.life.ended:
        return WorkerState.ENDED, ""
    if not worker.assigned or not worker.active:
        return WorkerState.INACTIVE, ""
    if worker.launch is None:
        return WorkerState.WAITING, "for the job's record"
    if not worker.bundles_here:
        return WorkerState.WAITING, FOR_BUNDLES
    if now < worker.life.not_before:
        return WorkerState.BACKOFF, ""
    return WorkerState.WAITING, "" if worker.barrier is Barrier.HELD else "for its barrier"
