"""What a host reports of a worker: its place, what runs there, and what it waits for. Pure."""

from __future__ import annotations

from torrentdist.model.wire.job_messages import WorkerReport
from torrentdist.supervisor.jobs.local_state import WorkerPlace
from torrentdist.supervisor.process.running import Handle
from torrentdist.supervisor.process.spark_applications import Application
from torrentdist.supervisor.worker import worker_plan
from torrentdist.supervisor.worker.worker_plan import FOR_BUNDLES, Worker


def report_of(
    place: WorkerPlace, worker: Worker, handle: Handle | None, application: Application, trouble: str, now: float
) -> WorkerReport:
    """`trouble`: why its bundles are not here."""
    state, waits = worker_plan.state_of(worker, now)
    if waits == FOR_BUNDLES and trouble:
        waits = f"{waits}: {trouble}"
    return WorkerReport(
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
