"""The table of a job's life: what each event does to a job in each state. Pure.

Always: TABLE is complete. An event that it does not list is an error if a user asked for it, and
has no effect if the system sent it. The record holds the time, by ZooKeeper's clock, at which a
pending step is due. So a failover neither restarts nor forgets it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import SupervisorId
from torrentdist.model.records import ENDED, JobRecord, JobStatus, Pending, PendingStep


@dataclass(frozen=True)
class Event:
    """Something that happens to a job. `now` is by ZooKeeper's clock."""

    now: float


class UserEvent(Event):
    """An event that a user asks for."""


@dataclass(frozen=True)
class Activate(UserEvent):
    pass


@dataclass(frozen=True)
class Deactivate(UserEvent):
    pass


@dataclass(frozen=True)
class Rebalance(UserEvent):
    wait: float
    workers: int = 0
    """Number of workers from then on; 0: as many as before."""


@dataclass(frozen=True)
class Kill(UserEvent):
    wait: float


@dataclass(frozen=True)
class Replicating(Event):
    pass


@dataclass(frozen=True)
class Replicated(Event):
    pass


@dataclass(frozen=True)
class Rejected(Event):
    reason: str


@dataclass(frozen=True)
class WorkerEnded(Event):
    """One worker of a batch job has ended and will not start again."""

    worker: int
    exit_code: int
    application: str = ""
    detail: str = ""
    """The reason for the failure, if the worker gave one."""
    supervisor: SupervisorId | None = None
    """The supervisor that ran it; None if unknown."""


@dataclass(frozen=True)
class Due(Event):
    """A pending step is due."""


class Step(StrEnum):
    """The effect of an event. The table and the documentation use these names."""

    REPLICATE = "replicating"
    START = "active, or inactive if it was submitted so"
    FAIL = "failed"
    ACTIVATE = "active"
    DEACTIVATE = "inactive"
    REBALANCE = "rebalancing"
    RESUME = "what it was before"
    KILL = "killed"
    RE_ARM = "killed, with the new delay"
    REMOVE = "gone"
    COUNT_EXIT = "finished or failed, once all workers have ended"
    NOTHING = "no change"


S = JobStatus

TABLE: Mapping[tuple[JobStatus, type[Event]], Step] = {
    (S.SUBMITTED, Replicating): Step.REPLICATE,
    (S.SUBMITTED, Rejected): Step.FAIL,
    (S.REPLICATING, Replicated): Step.START,
    (S.REPLICATING, Rejected): Step.FAIL,
    (S.ACTIVE, Activate): Step.NOTHING,
    (S.ACTIVE, Deactivate): Step.DEACTIVATE,
    (S.ACTIVE, Rebalance): Step.REBALANCE,
    (S.ACTIVE, Kill): Step.KILL,
    (S.ACTIVE, WorkerEnded): Step.COUNT_EXIT,
    (S.INACTIVE, Activate): Step.ACTIVATE,
    (S.INACTIVE, Deactivate): Step.NOTHING,
    (S.INACTIVE, Rebalance): Step.REBALANCE,
    (S.INACTIVE, Kill): Step.KILL,
    (S.REBALANCING, Kill): Step.KILL,
    (S.REBALANCING, Due): Step.RESUME,
    (S.KILLED, Kill): Step.RE_ARM,
    (S.KILLED, Due): Step.REMOVE,
}


_PASSIVE = {Activate: "activated", Deactivate: "deactivated", Rebalance: "rebalanced", Kill: "killed"}


class Gone:
    """Result of an event that removes the job."""


GONE = Gone()


def apply(job: JobRecord, event: Event) -> JobRecord | Gone:
    """Returns the job after the event, or the same object if nothing changes. Raises `job_state` if
    a user may not ask for it."""
    step = TABLE.get((job.status, type(event)))
    if step is None:
        if isinstance(event, UserEvent):
            note = "it has ended, and nothing of it runs any more" if job.status in ENDED else ""
            raise TorrentdistError(
                "job_state", id=job.id, status=job.status.value, asked=_PASSIVE[type(event)], note=note
            )
        return job
    if isinstance(event, Due) and (job.pending is None or event.now < job.pending.due):
        return job
    if step is Step.REMOVE:
        return GONE
    changes = _changes(step, job, event)
    return msgspec.structs.replace(job, **changes) if changes else job


def _changes(step: Step, job: JobRecord, event: Event) -> dict[str, Any]:
    match step, event:
        case Step.REPLICATE, _:
            return {"status": S.REPLICATING}
        case Step.START, _:
            return {"status": S.ACTIVE if job.activate else S.INACTIVE}
        case Step.FAIL, Rejected(reason=reason):
            return {"status": S.FAILED, "reason": reason}
        case Step.ACTIVATE, _:
            return {"status": S.ACTIVE}
        case Step.DEACTIVATE, _:
            return {"status": S.INACTIVE}
        case Step.REBALANCE, Rebalance(now, wait, workers):
            pending = Pending(step=PendingStep.REBALANCE, due=now + wait, workers=workers)
            return {"status": S.REBALANCING, "resume": job.status, "pending": pending}
        case Step.RESUME, _:
            workers = (job.pending.workers if job.pending else 0) or job.workers
            return {"status": job.resume or S.ACTIVE, "resume": None, "pending": None, "workers": workers}
        case ((Step.KILL | Step.RE_ARM), Kill(now, wait)):
            return {
                "status": S.KILLED,
                "resume": None,
                "pending": Pending(step=PendingStep.REMOVE, due=now + wait),
            }
        case Step.COUNT_EXIT, WorkerEnded():
            return _ended(job, event)
        case _:
            return {}


def _ended(job: JobRecord, event: WorkerEnded) -> dict[str, Any]:
    exits = {**job.exits, str(event.worker): event.exit_code}
    if exits == job.exits:
        return {}
    known = {str(event.worker): event.application} if event.application else {}
    place = {str(event.worker): event.supervisor} if event.supervisor is not None else {}
    changed = {
        "exits": exits,
        "ended_on": {**job.ended_on, **place},
        "applications": {**job.applications, **known},
    }
    if len(exits) < job.workers:
        return changed
    failed = sorted(name for name, value in exits.items() if value != 0)
    status = S.FAILED if failed else S.FINISHED
    why = f": {event.detail}" if event.detail and failed[:1] == [str(event.worker)] else ""
    reason = f"worker {failed[0]} ended with exit code {exits[failed[0]]}{why}" if failed else ""
    return {**changed, "status": status, "reason": reason}


def runs(job: JobRecord) -> bool:
    """Whether the job's workers may run. The workers of a killed job are stopped during its
    delay."""
    return job.status is S.ACTIVE or (job.status is S.REBALANCING and job.resume is S.ACTIVE)


def keeps_places(job: JobRecord) -> bool:
    """Whether the job's workers have places on supervisors."""
    return job.status in (S.ACTIVE, S.INACTIVE, S.REBALANCING, S.KILLED)
