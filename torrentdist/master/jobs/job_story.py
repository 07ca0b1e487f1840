"""Derives the next events of a job's story from its record, places and reports. Pure.

Always: nothing else goes in, so a new leader continues the story and repeats no event. Only the
last events are kept.
"""

from collections.abc import Iterator, Mapping

import msgspec

from torrentdist.cluster.records.snapshot import JobEntry
from torrentdist.master.jobs.lifecycle import keeps_places
from torrentdist.model.ids import SupervisorId
from torrentdist.model.records import JobEvent, JobEventKind, JobRecord, JobStatus, StoryRecord
from torrentdist.model.wire.job_messages import WorkerReport
from torrentdist.model.wording import counted

MOST_EVENTS = 300
SHORT_DETAIL = 80
"""Characters of a detail in a story that would be too large otherwise."""
NEAR_SECS = 0.001
"""Times that differ by less count as equal, because they travel as decimal numbers."""

K = JobEventKind
PLACED = (K.ASSIGNED, K.MOVED, K.UNASSIGNED)
TOLD_AS = {
    JobStatus.ACTIVE: K.ACTIVATED,
    JobStatus.INACTIVE: K.DEACTIVATED,
    JobStatus.REBALANCING: K.REBALANCING,
    JobStatus.KILLED: K.KILLED,
    JobStatus.FINISHED: K.FINISHED,
    JobStatus.FAILED: K.FAILED,
}
NOT_STARTED = (JobStatus.SUBMITTED, JobStatus.REPLICATING)

Places = Mapping[int, SupervisorId]
Reports = Mapping[int, WorkerReport]
"""Reports about one job's workers, by worker number."""


def continued(
    story: StoryRecord | None, entry: JobEntry, places: Places, reports: Reports, *, now: float, lacking: str = ""
) -> StoryRecord:
    """Returns the story with its new events, or the same object if there are none.

    `lacking`: what the job's replication lacks.
    """
    old = story or StoryRecord(status=JobStatus.SUBMITTED)
    new = [
        *_lifecycle(story, entry, lacking),
        *_places(old, entry.record, places, now),
        *_reported(old, places, reports),
    ]
    if not new and story is not None and story.status is entry.record.status:
        return story
    new.sort(key=lambda event: event.at)
    return StoryRecord(status=entry.record.status, events=(*old.events, *new)[-MOST_EVENTS:])


def shortened(story: StoryRecord) -> StoryRecord:
    """Returns the story with the beginnings of its details alone."""
    return StoryRecord(
        status=story.status,
        events=tuple(msgspec.structs.replace(event, detail=_beginning(event.detail)) for event in story.events),
    )


def _beginning(detail: str) -> str:
    return detail if len(detail) <= SHORT_DETAIL else detail[: SHORT_DETAIL - 1] + "…"


def _lifecycle(story: StoryRecord | None, entry: JobEntry, lacking: str) -> Iterator[JobEvent]:
    job, told = entry.record, JobStatus.SUBMITTED if story is None else story.status
    if story is None:
        yield JobEvent(at=job.created_at, event=K.SUBMITTED, detail=f"bundle {job.bundle}")
    if told is job.status or job.status in NOT_STARTED:
        return
    if told in NOT_STARTED and job.status is not JobStatus.FAILED:
        yield JobEvent(at=entry.mtime, event=K.REPLICATED, detail=lacking and f"not waited for longer: {lacking}")
    yield JobEvent(at=entry.mtime, event=TOLD_AS[job.status], detail=_about(job))


def _about(job: JobRecord) -> str:
    if job.pending is not None and job.pending.workers:
        return f"to {counted(job.pending.workers, 'worker')}"
    return job.reason


def _places(story: StoryRecord, job: JobRecord, places: Places, now: float) -> Iterator[JobEvent]:
    if not keeps_places(job):
        return
    last: dict[int, SupervisorId | None] = {}
    for event in story.events:
        if event.worker is not None and event.event in PLACED:
            last[event.worker] = event.supervisor if event.event is not K.UNASSIGNED else None
    full = len(story.events) == MOST_EVENTS
    for worker in range(job.workers):
        here = places.get(worker)
        before = last.get(worker)
        if worker not in last and full:  # it was told, and is not kept any more
            continue
        if here is not None and here != before:
            moved = f"from {before}" if before is not None else ""
            yield JobEvent(at=now, event=K.MOVED if moved else K.ASSIGNED, worker=worker, supervisor=here, detail=moved)
        elif here is None and before is not None and str(worker) not in job.exits:
            yield JobEvent(at=now, event=K.UNASSIGNED, worker=worker, supervisor=before, detail="no slot")


def _reported(story: StoryRecord, places: Places, reports: Reports) -> Iterator[JobEvent]:
    told: dict[tuple[JobEventKind, int | None, SupervisorId | None], float] = {}
    for event in story.events:
        told[event.event, event.worker, event.supervisor] = event.at
    oldest = story.events[0].at if len(story.events) == MOST_EVENTS else 0.0
    for worker, report in reports.items():
        host = places.get(worker)
        said = (
            (K.FETCHED, report.fetched_at, ""),
            (K.STARTED, report.since, f"pid {report.pid}" if report.pid else ""),
            (K.EXITED, report.ended_at, _ending(report)),
        )
        for kind, at, detail in said:
            if at > max(oldest, told.get((kind, worker, host), 0.0) + NEAR_SECS):
                yield JobEvent(at=at, event=kind, worker=worker, supervisor=host, detail=detail)


def _ending(report: WorkerReport) -> str:
    code = "" if report.exit_code is None else f"exit code {report.exit_code}"
    return ", ".join(filter(None, (code, report.detail)))
