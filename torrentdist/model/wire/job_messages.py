"""Messages about jobs and their workers."""

from enum import StrEnum

import msgspec

from torrentdist.model.access.envelope import Envelope
from torrentdist.model.ids import BundleId, JobId, SupervisorId
from torrentdist.model.jobs.job import JobSpec
from torrentdist.model.records import JobEvent, JobStatus
from torrentdist.model.wire.view import View


class SubmitBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The body of POST /v1/jobs: the bundle of the job, and what the submitter overrides."""

    bundle: str
    name: str | None = None
    workers: int | None = None
    conf: dict[str, str] = {}
    activate: bool = True
    id: str = ""
    """The job's id, which a signed job has before it is submitted. Empty: the leader chooses it."""
    signature: Envelope | None = None
    """The submitter's signature over the job."""


class WorkerState(StrEnum):
    UNASSIGNED = "unassigned"
    WAITING = "waiting"
    """It has a place and has not started: its bundles are still arriving, or its barrier is not
    free."""
    RUNNING = "running"
    STOPPING = "stopping"
    INACTIVE = "inactive"
    BACKOFF = "backoff"
    """It ended, and starts again after a pause."""
    ENDED = "ended"
    """It ended, and its restart policy rules out another start."""


class WorkerReport(View, frozen=True, kw_only=True):
    """A supervisor's report about one worker. Its three times are wall-clock times of the host, for
    display."""

    job: JobId
    worker: int
    state: WorkerState
    pid: int = 0
    slot: int = 0
    exit_code: int | None = None
    restarts: int = 0
    fencing: int = 0
    """Increases with each start of this worker on any host."""
    since: float = 0.0
    """The time of its last start; 0 if it was never started here."""
    fetched_at: float = 0.0
    """The time when all its bundles were here; 0 if they never were."""
    ended_at: float = 0.0
    """The time of its last end; 0 if it never ended."""
    detail: str = ""
    application: str = ""
    """The application id that Spark assigned; empty if it is no Spark driver."""
    ui: str = ""
    """The URL of the application's Spark web page."""


class HeartbeatBody(View, frozen=True, kw_only=True):
    """The body of POST /v1/heartbeat: a supervisor's report about all its workers."""

    supervisor: SupervisorId
    generation: int
    """Generation of the assignment that the supervisor has adopted."""
    workers: list[WorkerReport]


class HeartbeatAnswer(View, frozen=True, kw_only=True):
    """The leader's answer to a heartbeat."""

    interval: float = 1.0
    """Seconds until the next heartbeat is due, unless something changes earlier."""
    peers: dict[JobId, dict[str, str]] = {}
    """For each job with a worker on this host: the hosts of its running workers, by worker
    number."""


class WorkerView(View, frozen=True, kw_only=True):
    """One worker of a job. `state`, `slot`, `pid` and `restarts` are null until its supervisor has
    reported them."""

    worker: int
    supervisor: SupervisorId | None
    slot: int | None
    state: WorkerState | None
    pid: int | None
    exit_code: int | None = None
    restarts: int | None = 0
    detail: str = ""
    application: str = ""
    ui: str = ""


class JobView(View, frozen=True, kw_only=True):
    """The answer of `job show`, and an entry of `job ls`."""

    id: JobId
    name: str
    status: JobStatus
    bundle: BundleId
    dependencies: list[BundleId]
    wanted: int
    """Number of workers that the job wants; `workers` lists each of them."""
    workers: list[WorkerView]
    created_at: float
    due_in: float | None = None
    """Seconds until the pending change happens."""
    reason: str = ""
    spec: JobSpec | None = None
    events: list[JobEvent] | None = []
    """The last events, in order. Empty in lists; null if they cannot be read now."""
    signature: Envelope | None = None
    """The submitter's signature. Null in lists."""


class WorkerOutput(View, frozen=True, kw_only=True):
    """The output of one stream of a worker that a host keeps: GET /v1/host/jobs/<job>/logs."""

    worker: int
    stream: str
    begin: int
    """The offset of the first byte that is still kept."""
    end: int
    at: float
    """The time when the last byte was written."""
    here: bool
    """Whether the worker currently has its place on this host."""
