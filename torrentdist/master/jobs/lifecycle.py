"""The table of a job's life: what each event does to a job in each state. Pure.

Always: TABLE is complete. An event that it does not list is an error if a user asked for it, and
has no effect if the system sent it. The record holds the time, by ZooKeeper's clock, at which a
pending step is due. So a failover neither restarts nor forgets it.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import SupervisorId
from torrentdist.model.jobs.job import RestartPolicy
from torrentdist.model.records import ENDED, JobRecord, JobStatus, Pending, PendingStep

MOST_TEXT_BYTES = 250_000
"""Most bytes of the hosts of ended workers in a job's record, and of their applications. A record
has to fit into one write."""
ENTRY_BYTES = 10
"""Bytes of an entry beside its text: the number of the worker, and punctuation."""


class Event(msgspec.Struct, frozen=True):
    """Something that happens to a job. `now` is by ZooKeeper's clock."""

    now: float


class UserEvent(Event, frozen=True):
    """An event that a user asks for."""


class Activate(UserEvent, frozen=True):
    pass


class Deactivate(UserEvent, frozen=True):
    pass


class Rebalance(UserEvent, frozen=True):
    wait: float
    workers: int = 0
    """Number of workers from then on; 0: as many as before."""


class Kill(UserEvent, frozen=True):
    wait: float


class Replicating(Event, frozen=True):
    pass


class Replicated(Event, frozen=True):
    pass


class Rejected(Event, frozen=True):
    reason: str


class WorkerEnded(Event, frozen=True):
    """One worker has ended and will not start again."""

    worker: int
    exit_code: int
    application: str = ""
    detail: str = ""
    """The reason for the failure, if the worker gave one."""
    supervisor: SupervisorId | None = None
    """The supervisor that ran it; None if unknown."""


class Due(Event, frozen=True):
    """A pending step is due."""


class Step(StrEnum):
    """The effect of an event. The table and the documentation use these names."""

    REPLICATE = "replicating"
    START = "active, or inactive if it was submitted so"
    FAIL = "failed"
    ACTIVATE = "active"
    DEACTIVATE = "inactive"
    REBALANCE = "rebalancing"
    RESUME = "what it was before, or finished or failed if all workers have ended"
    KILL = "killed"
    RE_ARM = "killed, with the new delay"
    REMOVE = "gone"
    COUNT_EXIT = "finished or failed, once all workers have ended"
    NOTE_EXIT = "no change; the end counts when the wait is over"
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
    (S.INACTIVE, WorkerEnded): Step.COUNT_EXIT,
    (S.REBALANCING, Kill): Step.KILL,
    (S.REBALANCING, Due): Step.RESUME,
    (S.REBALANCING, WorkerEnded): Step.NOTE_EXIT,
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
            assert job.pending is not None  # what comes due is pending
            workers = job.pending.workers or job.workers
            changes = {"status": job.resume or S.ACTIVE, "resume": None, "pending": None, "workers": workers}
            return {**changes, **_outcome(msgspec.structs.replace(job, workers=workers))}
        case ((Step.KILL | Step.RE_ARM), Kill(now, wait)):
            return {
                "status": S.KILLED,
                "resume": None,
                "pending": Pending(step=PendingStep.REMOVE, due=now + wait),
            }
        case _, WorkerEnded(worker=k, exit_code=code) if job.exits.get(str(k)) == code:
            return {}
        case Step.COUNT_EXIT, WorkerEnded():
            noted = _noted(job, event)
            return {**noted, **_outcome(msgspec.structs.replace(job, **noted), event)}
        case Step.NOTE_EXIT, WorkerEnded():
            return _noted(job, event)
        case _:
            return {}


def _noted(job: JobRecord, event: WorkerEnded) -> dict[str, Any]:
    return {
        "exits": {**job.exits, str(event.worker): event.exit_code},
        "ended_on": _bounded(job.ended_on, event.worker, event.supervisor),
        "applications": _bounded(job.applications, event.worker, event.application),
    }


def _bounded(known: Mapping[str, str], worker: int, text: str | None) -> Mapping[str, str]:
    """Adds what is known of one worker, unless all of it would be too much for the record."""
    if not text:
        return known
    others = {k: said for k, said in known.items() if k != str(worker)}
    size = sum(len(said) + ENTRY_BYTES for said in (*others.values(), text))
    return others if size > MOST_TEXT_BYTES else {**others, str(worker): text}


def _outcome(job: JobRecord, last: WorkerEnded | None = None) -> dict[str, Any]:
    """Returns how a job ends, once each of its workers has. Workers that a rebalance has taken away
    do not count."""
    if any(str(k) not in job.exits for k in range(job.workers)):
        return {}
    reason = failure(job, last)
    return {"status": S.FAILED if reason else S.FINISHED, "reason": reason}


def failure(job: JobRecord, last: WorkerEnded | None = None) -> str:
    """Returns why the first failed worker will not start again; empty if none has failed. `last`:
    the latest end, if its reason is known.

    A worker whose policy is `always` ends for good only when restart.limit is reached. So it has
    failed whatever its exit code is.
    """
    restart = job.spec.restart if job.spec is not None else None
    always = restart is not None and restart.policy is RestartPolicy.ALWAYS
    exits = {k: job.exits[str(k)] for k in range(job.workers) if str(k) in job.exits}
    failed = [k for k, code in exits.items() if code != 0 or always]
    if not failed:
        return ""
    why = f": {last.detail}" if last is not None and last.detail and last.worker == failed[0] else ""
    limit = ""
    if restart is not None and restart.policy is not RestartPolicy.NEVER:
        limit = f"; its restart.limit of {restart.limit} is reached"
    return f"worker {failed[0]} ended with exit code {exits[failed[0]]}{why}{limit}"


def runs(job: JobRecord) -> bool:
    """Whether the job's workers may run. The workers of a killed job are stopped during its
    delay."""
    return job.status is S.ACTIVE or (job.status is S.REBALANCING and job.resume is S.ACTIVE)


def keeps_places(job: JobRecord) -> bool:
    """Whether the job's workers have places on supervisors."""
    return job.status in (S.ACTIVE, S.INACTIVE, S.REBALANCING, S.KILLED)
