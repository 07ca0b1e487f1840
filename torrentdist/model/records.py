"""The records in ZooKeeper, and their encoding.

Always: a record contains its schema version. This release reads its own schema and the one before,
and refuses any other. It never silently drops a field that it would have to write back.
Never: decide which schema is written; cluster/records/record_schema.py does.
Longer than most files: the records of the whole tree stand here.
"""

from enum import StrEnum
from typing import Annotated, TypeVar

import msgspec

from torrentdist.model.access.envelope import Envelope
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest, JobId, MasterId, StoreId, SupervisorId
from torrentdist.model.jobs.job import JobSpec
from torrentdist.model.policies.bundle_terms import BundleTerms
from torrentdist.model.wire.view import decode_json

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
    """The record at /code-distributor/<bundle-id>."""

    id: BundleId
    digest: Digest
    size: int
    files: int
    state: BundleState
    min_replicas: int
    created_at: float
    """The leader's wall-clock time, for display only."""
    pinned: bool = False
    signatures: tuple[Envelope, ...] = ()
    """What signers say about its id and digest. Nobody has to believe them without their keys."""
    recipe: str = ""
    """The hash of its recipe, which the masters keep next to the metafile. Empty: there is none."""
    owner: str = ""
    """The name of the sender who uploaded it."""
    sources: tuple[str, ...] = ("*",)
    """Patterns of the bundles from which masters may take parts of it: of those that its uploader
    may read."""


class ReplicaRecord(Record, frozen=True, kw_only=True):
    """The record at /code-distributor/<bundle-id>/<master-id>."""

    master: MasterId
    store: StoreId
    digest: Digest


_Text = Annotated[str, msgspec.Meta(max_length=300)]
_Moment = Annotated[float, msgspec.Meta(ge=0.0, le=2.0**37)]


class OwnCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """What a daemon says about the certificate with which it started."""

    serial: _Text
    expires_at: _Moment


class MasterRecord(Record, frozen=True, kw_only=True):
    """The record at /masters/<master-id>, which is ephemeral."""

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
    certificate: OwnCertificate | None = None


class SupervisorRecord(Record, frozen=True, kw_only=True):
    """The record at /supervisors/<supervisor-id>, which is ephemeral. The host itself writes it."""

    id: SupervisorId
    host: _Text
    gateway: _Text
    swarm_port: Annotated[int, msgspec.Meta(ge=0, le=65535)]
    store: StoreId
    version: _Text
    slots: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0
    labels: Annotated[dict[_Text, _Text], msgspec.Meta(max_length=100)] = msgspec.field(default_factory=dict)
    started_at: float = 0.0
    speaks: int = 1
    """The newest schema that this daemon reads."""
    url: _Text = ""
    """URL at which others read its workers' output."""
    certificate: OwnCertificate | None = None


class WorkerAssignment(msgspec.Struct, frozen=True, kw_only=True):
    job: JobId
    worker: int
    """Number from 0 to workers - 1. It names the resource that never has two holders."""
    active: bool = True
    """False keeps the place without running anything."""
    of: int = 0
    """Current number of workers of the job."""


class AssignmentRecord(Record, frozen=True, kw_only=True):
    """The record at /assignments/<supervisor-id>: references to the bundles that the supervisor
    keeps and to the workers that it runs."""

    generation: int = 0
    bundles: tuple[BundleId, ...] = ()
    workers: tuple[WorkerAssignment, ...] = ()
    draining: bool = False
    """Whether no new worker is placed here."""
    terms: dict[BundleId, BundleTerms] = msgspec.field(default_factory=dict)
    """How to fetch those of the bundles for which somebody said it."""


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
    """A step of a job that is due at a time on ZooKeeper's clock, whichever master leads then."""

    step: PendingStep
    due: float
    workers: int = 0
    """New number of workers for a rebalance; 0: unchanged."""


class JobRecord(Record, frozen=True, kw_only=True):
    """The record at /jobs/<job-id>."""

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
    """Whether it becomes active once it is replicated."""
    pending: Pending | None = None
    exits: dict[str, int] = msgspec.field(default_factory=dict)
    """Exit codes of workers that have ended for good, by worker number."""
    ended_on: dict[str, SupervisorId] = msgspec.field(default_factory=dict)
    """Supervisors that ran the workers of `exits`, by worker number. Unknown for workers that ended
    under schema 1, and where all of them would be too much for the record."""
    applications: dict[str, str] = msgspec.field(default_factory=dict)
    """Ids that Spark assigned to their latest runs."""
    reason: str = ""
    created_at: float = 0.0
    dependencies: tuple[BundleId, ...] = ()
    """Additional bundles that the job needs."""
    signature: Envelope | None = None
    """What the submitter has signed about it."""

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
    """Time on the clock of the host where it happened, for display."""
    event: JobEventKind
    worker: int | None = None
    supervisor: SupervisorId | None = None
    detail: str = ""


class StoryRecord(Record, frozen=True, kw_only=True):
    """The record at /jobs/<job-id>/story: the latest events of a job."""

    status: JobStatus
    """The status of the job as far as the story goes."""
    events: tuple[JobEvent, ...] = ()


class FailoverRecord(Record, frozen=True, kw_only=True):
    """The record at /failovers/<seq>."""

    previous: MasterId | None
    current: MasterId
    at: float
    reason: str


class ClusterRecord(Record, frozen=True, kw_only=True):
    """The record at /cluster: id and tracker key of the cluster. Its schema is that of all."""

    id: str
    announce_key: str
    """Part of the secret behind passes and the keys in tracker URLs. Every host can read it."""
    newer_since: float = 0.0
    """ZooKeeper's time since which every registered daemon can read a newer schema; 0: none is that
    new."""


class RequestRecord(Record, frozen=True, kw_only=True):
    """The record at /requests/<bucket>/<request-id>: a claimed change, and its answer when done."""

    content: str
    """Hash of everything that was requested."""
    status: int = 0
    """HTTP status of the answer; 0: not done yet."""
    body: str = ""
    """JSON of the answer. Also empty if the answer was too large to keep."""


R = TypeVar("R", bound=Record)


def encode(record: Record) -> bytes:
    """Encodes a record in this release's schema."""
    return msgspec.json.encode(msgspec.structs.replace(record, schema=SCHEMA))


def decode(data: bytes, kind: type[R], *, path: str) -> R:
    """Decodes a whole record. Raises `invalid_request` or `later_release` with the path."""
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
