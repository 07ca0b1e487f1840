"""Makes the views of jobs that users see, from records, places and reports. Pure."""

from collections.abc import Callable, Container, Iterable, Mapping

import msgspec

from torrentdist.cluster.records.snapshot import ClusterSnapshot, JobEntry
from torrentdist.master.jobs.job_duties import placement
from torrentdist.master.jobs.job_operations import lacking
from torrentdist.master.jobs.lifecycle import failure, keeps_places, runs
from torrentdist.master.jobs.scheduling import Placement
from torrentdist.master.reads.paging import WHOLE, Page
from torrentdist.model.ids import JobId, SupervisorId
from torrentdist.model.records import JobRecord, JobStatus
from torrentdist.model.wire.job_messages import JobView, WorkerReport, WorkerState, WorkerView
from torrentdist.model.wire.view import view_of
from torrentdist.model.wording import counted

Reports = Mapping[tuple[JobId, int], WorkerReport]
"""Reports about workers, each by the host that has the worker now."""


def of_the_places(
    heard: Mapping[SupervisorId, Iterable[WorkerReport]], places: Mapping[tuple[JobId, int], SupervisorId]
) -> Reports:
    """Returns the reports of workers by the hosts that have them now. A host that died, or has lost
    a worker, is still heard for a while."""
    return {
        (report.job, report.worker): report
        for host, reports in heard.items()
        for report in reports
        if places.get((report.job, report.worker)) == host
    }


def job_view(
    snapshot: ClusterSnapshot,
    entry: JobEntry,
    reports: Reports,
    heard: Container[SupervisorId],
    server_now: float | None,
    places: Placement | None = None,
) -> JobView:
    """Returns the view of one job.

    `heard`: supervisors that have reported to this master; the state of others' workers is unknown.
    `places`: of all workers, if they are known.
    """
    job = entry.record
    places = placement(snapshot) if places is None else places
    workers = [_worker_view(job, k, places.get((job.id, k)), reports, heard) for k in range(job.workers)]
    due_in = max(0.0, job.pending.due - server_now) if job.pending is not None and server_now is not None else None
    return view_of(
        JobView,
        job,
        dependencies=list(job.dependencies),
        wanted=job.workers,
        workers=workers,
        due_in=due_in,
        reason=job.reason or _note(snapshot, job, workers),
    )


def job_list(
    snapshot: ClusterSnapshot,
    reports: Reports,
    heard: Container[SupervisorId],
    server_now: float | None,
    page: Page = WHOLE,
    listed: Callable[[JobId], bool] = lambda _: True,
) -> list[JobView]:
    """Returns the views of the jobs that `listed` accepts. A page is in the order of ids, the whole
    list in that of names and ages."""
    entries = [snapshot.jobs[id_] for id_ in page.of(snapshot.jobs, listed)]
    if page == WHOLE:
        entries.sort(key=lambda entry: (entry.record.name, entry.record.created_at))
    places = placement(snapshot)
    views = (job_view(snapshot, entry, reports, heard, server_now, places) for entry in entries)
    return [msgspec.structs.replace(view, signature=None) for view in views]


def _note(snapshot: ClusterSnapshot, job: JobRecord, workers: list[WorkerView]) -> str:
    """Says what keeps the job from running as its user asked."""
    of_workers = [_shortage(workers), failure(job), _failing(workers)] if keeps_places(job) else []
    return "; ".join(filter(None, [*of_workers, lacking(snapshot, job) if job.live else ""]))


def _failing(workers: list[WorkerView]) -> str:
    """Says why workers wait before they start again. The first one's reason stands for all."""
    failing = [worker for worker in workers if worker.state is WorkerState.BACKOFF]
    if not failing:
        return ""
    first = failing[0]
    code = "" if first.exit_code is None else f"exit code {first.exit_code}"
    others = f" and {len(failing) - 1} more" if len(failing) > 1 else ""
    why = ": ".join(filter(None, (code, first.detail)))
    did = "did not start and will be tried again" if first.exit_code is None else "ended and will be started again"
    return f"worker {first.worker}{others} {did}" + (f": {why}" if why else "")


def failing_jobs(
    snapshot: ClusterSnapshot, reports: Iterable[WorkerReport], loops: Iterable[WorkerReport]
) -> dict[str, str]:
    """Returns the jobs that have failed and were not submitted again under their name, and those
    whose workers fail again and again, each with what its last output says. `loops`: the last ends
    of workers that are restarted all the time."""
    newest: dict[str, float] = {}
    for record in (entry.record for entry in snapshot.jobs.values()):
        newest[record.name] = max(record.created_at, newest.get(record.name, 0.0))
    found = {
        str(id_): f"it failed: {entry.record.reason or failure(entry.record) or 'no reason is known'}"
        for id_, entry in snapshot.jobs.items()
        if entry.record.status is JobStatus.FAILED and entry.record.created_at == newest[entry.record.name]
    }
    for report in (*loops, *(report for report in reports if report.state is WorkerState.BACKOFF)):
        entry = snapshot.jobs.get(report.job)
        if entry is not None and runs(entry.record):
            times = f" after {counted(report.restarts, 'restart')}" if report.restarts else ""
            code = "" if report.exit_code is None else f"exit code {report.exit_code}"
            why = ": ".join(filter(None, (code, report.detail)))
            found[str(report.job)] = f"its worker ends again and again{times}" + (f": {why}" if why else "")
    return found


def _shortage(workers: list[WorkerView]) -> str:
    without = sum(worker.state is WorkerState.UNASSIGNED for worker in workers)
    return f"{without} of {len(workers)} workers have no slot" if without else ""


def _worker_view(
    job: JobRecord, k: int, place: SupervisorId | None, reports: Reports, heard: Container[SupervisorId]
) -> WorkerView:
    if (code := job.exits.get(str(k))) is not None:
        application = job.applications.get(str(k), "")
        return WorkerView(
            worker=k,
            supervisor=job.ended_on.get(str(k)),
            slot=0,
            state=WorkerState.ENDED,
            pid=0,
            exit_code=code,
            application=application,
        )
    if place is None:
        return WorkerView(worker=k, supervisor=None, slot=0, state=WorkerState.UNASSIGNED, pid=0)
    report = reports.get((job.id, k))
    if report is None and place not in heard:
        return WorkerView(worker=k, supervisor=place, slot=None, state=None, pid=None, restarts=None)
    if report is None:
        return WorkerView(worker=k, supervisor=place, slot=0, state=WorkerState.WAITING, pid=0)
    return view_of(WorkerView, report, worker=k, supervisor=place)
