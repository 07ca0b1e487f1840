"""The records that live in ZooKeeper, and their encoding.

Always: a record carries its schema version. This release reads its own schema and the one before,
refuses any other, and never drops a field silently that it would write back without. Never: decide
which schema is written; cluster/records/record_schema.py does.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

import msgspec

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest, JobId, MasterId, StoreId, SupervisorId
from torrentdist.model.jobs.job import JobSpec
from torrentdist.model.json_decoding import decode_json

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
    """The leader's wall clock, shown to people only."""
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
    """The newest schema that this daemon reads."""


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
    """URL at which others read its workers' output."""


class WorkerAssignment(msgspec.Struct, frozen=True, kw_only=True):
    job: JobId
    worker: int
    """Number from 0 to workers - 1: the resource that never has two holders."""
    active: bool = True
    """False keeps the place without running anything."""
    of: int = 0
    """Number of workers of the job now."""


class AssignmentRecord(Record, frozen=True, kw_only=True):
    """/assignments/<supervisor-id>: references only; the supervisor keeps these bundles and runs
    these workers."""

    generation: int = 0
    bundles: tuple[BundleId, ...] = ()
    workers: tuple[WorkerAssignment, ...] = ()
    draining: bool = False
    """Whether nothing new is placed here."""


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
    """A step of a job that is due at a moment of ZooKeeper's clock, whoever leads then."""

    step: PendingStep
    due: float
    workers: int = 0
    """New number of workers of a rebalance. 0: unchanged."""


class JobRecord(Record, frozen=True, kw_only=True):
    """/jobs/<job-id>"""

    id: JobId
    name: str
    status: JobStatus
    bundle: BundleId
    spec: JobSpec | None = None
    """The specification, completed with the cluster's defaults."""
    workers: int = 0
    resume: JobStatus | None = None
    """The status that a rebalancing job returns to."""
    activate: bool = True
    """Whether it becomes active when it is replicated."""
    pending: Pending | None = None
    exits: dict[str, int] = msgspec.field(default_factory=dict)
    """Exit codes of ended workers of a batch job, by worker number."""
    ended_on: dict[str, SupervisorId] = msgspec.field(default_factory=dict)
    """Supervisors that ran the workers of `exits`, by worker number. Not known of workers that
    ended under schema 1."""
    applications: dict[str, str] = msgspec.field(default_factory=dict)
    """Ids that Spark gave their last runs."""
    reason: str = ""
    """Why the job failed."""
    created_at: float = 0.0
    dependencies: tuple[BundleId, ...] = ()
    """Further bundles that the job needs."""

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
    """Clock of the host where it happened, shown to people."""
    event: JobEventKind
    worker: int | None = None
    supervisor: SupervisorId | None = None
    detail: str = ""


class StoryRecord(Record, frozen=True, kw_only=True):
    """/jobs/<job-id>/story: what has happened to it, the last events only."""

    status: JobStatus
    """The status of the job as far as the story goes."""
    events: tuple[JobEvent, ...] = ()


class FailoverRecord(Record, frozen=True, kw_only=True):
    """/failovers/<seq>"""

    previous: MasterId | None
    current: MasterId
    at: float
    reason: str


class ClusterRecord(Record, frozen=True, kw_only=True):
    """/cluster: which cluster this tree belongs to, and the key of its tracker URLs. Its schema is
    the one that all records are written in."""

    id: str
    announce_key: str


class RequestRecord(Record, frozen=True, kw_only=True):
    """/requests/<bucket>/<request-id>: a mutation that was claimed, and its answer once it is
    done."""

    content: str
    """Hash of everything that was asked for."""
    status: int = 0
    """HTTP status of the answer. 0: not done yet."""
    body: str = ""
    """JSON of the answer. Also empty if the answer was too large to keep."""


R = TypeVar("R", bound=Record)


def encode(record: Record) -> bytes:
    """Encodes a record in this release's schema."""
    return msgspec.json.encode(msgspec.structs.replace(record, schema=SCHEMA))


def decode(data: bytes, kind: type[R], *, path: str) -> R:
    """Decodes a record. Raises `invalid_request` or `later_release` with the path; never returns
    half a record."""
    try:
        schema = decode_json(data, Record).schema
        if schema > SCHEMA:
            raise TorrentdistError("later_release", path=path, schema=schema, newest=SCHEMA)
        if schema < OLDEST_READABLE:
            detail = f"{path} has schema {schema}; this release reads {OLDEST_READABLE} to {SCHEMA}"
            raise TorrentdistError("invalid_request", detail=detail)
        return decode_json(data, kind)
    except msgspec.MsgspecError as exc:
        raise TorrentdistError("invalid_request", detail=f"{path} is no {kind.__name__}: {exc}") from exc
