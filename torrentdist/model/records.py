"""The records that live in ZooKeeper, and their encoding.

Always holds: a record carries its schema version; this release reads its own and the one before, refuses anything
else, and ignores no field silently that it would then write back without. In which of the two a record is written,
cluster/records/record_schema.py says.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

import msgspec

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest, JobId, MasterId, StoreId, SupervisorId
from torrentdist.model.jobs.job import JobSpec

SCHEMA = 2
OLDEST_READABLE = 1


class BundleState(StrEnum):
    UPLOADING = "uploading"
    AVAILABLE = "available"
    LOST = "lost"
    REMOVED = "removed"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    schema: int = SCHEMA


class BundleRecord(Record, frozen=True, kw_only=True):
    """/code-distributor/<bundle-id>"""

    id: BundleId
    digest: Digest
    size: int
    files: int
    state: BundleState
    min_replicas: int
    created_at: float
    """The leader's wall clock, for people only: nothing is decided by it."""
    pinned: bool = False


class ReplicaRecord(Record, frozen=True, kw_only=True):
    """/code-distributor/<bundle-id>/<master-id>"""

    master: MasterId
    store: StoreId
    digest: Digest


class MasterRecord(Record, frozen=True, kw_only=True):
    """/masters/<master-id>, ephemeral"""

    id: MasterId
    host: str
    port: int
    url: str
    swarm_port: int
    store: StoreId
    version: str
    started_at: float
    speaks: int = 1
    """The newest schema that it reads."""


class SupervisorRecord(Record, frozen=True, kw_only=True):
    """/supervisors/<supervisor-id>, ephemeral"""

    id: SupervisorId
    host: str
    gateway: str
    swarm_port: int
    store: StoreId
    version: str
    slots: int = 0
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    started_at: float = 0.0
    speaks: int = 1
    """The newest schema that it reads."""
    url: str = ""
    """Where others read its workers' output."""


class WorkerAssignment(msgspec.Struct, frozen=True, kw_only=True):
    job: JobId
    worker: int
    """0 to workers - 1: the resource that never has two holders."""
    active: bool = True
    """False: keep the place, but let nothing run."""
    of: int = 0
    """How many workers the job has now."""


class AssignmentRecord(Record, frozen=True, kw_only=True):
    """/assignments/<supervisor-id>: references only; the supervisor keeps these bundles and runs these workers."""

    generation: int = 0
    bundles: tuple[BundleId, ...] = ()
    workers: tuple[WorkerAssignment, ...] = ()
    draining: bool = False
    """Nothing new is placed here."""


class JobStatus(StrEnum):
    SUBMITTED = "submitted"
    REPLICATING = "replicating"
    ACTIVE = "active"
    INACTIVE = "inactive"
    REBALANCING = "rebalancing"
    KILLED = "killed"
    FINISHED = "finished"
    FAILED = "failed"


ENDED = (JobStatus.FINISHED, JobStatus.FAILED)


class PendingStep(StrEnum):
    REMOVE = "remove"
    """The end of a kill's delay."""
    REBALANCE = "rebalance"
    """The end of a rebalance's wait."""


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to a job at a moment of ZooKeeper's clock, whoever leads then."""

    step: PendingStep
    due: float
    workers: int = 0
    """The new worker count of a rebalance; 0: as it is."""


class JobRecord(Record, frozen=True, kw_only=True):
    """/jobs/<job-id>"""

    id: JobId
    name: str
    status: JobStatus
    bundle: BundleId
    spec: JobSpec | None = None
    """Normalised with the cluster's defaults."""
    workers: int = 0
    resume: JobStatus | None = None
    """What a rebalancing job was before and is again afterwards."""
    activate: bool = True
    """Whether it becomes active when it is replicated."""
    pending: Pending | None = None
    exits: dict[str, int] = msgspec.field(default_factory=dict)
    """Exit codes of the workers of a batch job that have ended for good, by worker number."""
    ended_on: dict[str, SupervisorId] = msgspec.field(default_factory=dict)
    """Supervisors that ran the workers of `exits`, by worker number. Not known of workers that ended under schema 1."""
    applications: dict[str, str] = msgspec.field(default_factory=dict)
    """The ids that Spark gave their last runs."""
    reason: str = ""
    """Why it failed."""
    created_at: float = 0.0
    dependencies: tuple[BundleId, ...] = ()
    """Further bundles without which it cannot run."""

    @property
    def live(self) -> bool:
        return self.status not in ENDED

    @property
    def needs(self) -> tuple[BundleId, ...]:
        return (self.bundle, *self.dependencies)


class JobEventKind(StrEnum):
    SUBMITTED = "submitted"
    REPLICATED = "replicated"
    ACTIVATED = "activated"
    DEACTIVATED = "deactivated"
    REBALANCING = "rebalancing"
    KILLED = "killed"
    FINISHED = "finished"
    FAILED = "failed"
    ASSIGNED = "assigned"
    MOVED = "moved"
    UNASSIGNED = "unassigned"
    FETCHED = "fetched"
    STARTED = "started"
    EXITED = "exited"


class JobEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a job's story."""

    at: float
    """The clock of where it happened, for people."""
    event: JobEventKind
    worker: int | None = None
    supervisor: SupervisorId | None = None
    detail: str = ""


class StoryRecord(Record, frozen=True, kw_only=True):
    """/jobs/<job-id>/story: what has happened to it, the last events only."""

    status: JobStatus
    """Of the job, as far as it is told."""
    events: tuple[JobEvent, ...] = ()


class FailoverRecord(Record, frozen=True, kw_only=True):
    """/failovers/<seq>"""

    previous: MasterId | None
    current: MasterId
    at: float
    reason: str


class ClusterRecord(Record, frozen=True, kw_only=True):
    """/cluster: which cluster this tree belongs to, and the key of its tracker URLs. Its schema is the one that all
    records are written in."""

    id: str
    announce_key: str


class RequestRecord(Record, frozen=True, kw_only=True):
    """/requests/<bucket>/<request-id>: a mutation that was claimed, and its answer once it is done."""

    content: str
    """The hash of everything that was asked for."""
    status: int = 0
    """Of the answer; 0: not done yet."""
    body: str = ""
    """JSON; empty also for a finished one whose answer was too large to keep."""


R = TypeVar("R", bound=Record)


def encode(record: Record) -> bytes:
    """In this release's schema, whichever it was read in."""
    return msgspec.json.encode(msgspec.structs.replace(record, schema=SCHEMA))


def decode(data: bytes, kind: type[R], *, path: str) -> R:
    """The record in `data`, or an `invalid_request` or `later_release` error that names the znode; never a half-read
    record."""
    try:
        schema = msgspec.json.decode(data, type=Record).schema
        if schema > SCHEMA:
            raise TorrentdistError("later_release", path=path, schema=schema, newest=SCHEMA)
        if schema < OLDEST_READABLE:
            detail = f"{path} has schema {schema}; this release reads {OLDEST_READABLE} to {SCHEMA}"
            raise TorrentdistError("invalid_request", detail=detail)
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as exc:
        raise TorrentdistError("invalid_request", detail=f"{path} is no {kind.__name__}: {exc}") from exc
