"""Messages about jobs and their workers."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from torrentdist.model.ids import BundleId, JobId, SupervisorId
from torrentdist.model.jobs.job import JobSpec
from torrentdist.model.records import JobEvent, JobStatus
from torrentdist.model.wire.view import View


class SubmitBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/jobs: the job of a bundle, with what the submitter sets differently."""

    bundle: str
    name: str | None = None
    workers: int | None = None
    conf: dict[str, str] = {}
    activate: bool = True


class WorkerState(StrEnum):
    UNASSIGNED = "unassigned"
    WAITING = "waiting"
    """It has a place and is not started yet: its bundles arrive, or its barrier is not free."""
    RUNNING = "running"
    STOPPING = "stopping"
    INACTIVE = "inactive"
    BACKOFF = "backoff"
    """It ended, and starts again after a wait."""
    ENDED = "ended"
    """It ended for good, as its restart policy says."""


class WorkerReport(View, frozen=True, kw_only=True):
    """A supervisor's report about one worker. Its three times are by the host's clock, for
    people."""

    job: JobId
    worker: int
    state: WorkerState
    pid: int = 0
    slot: int = 0
    exit_code: int | None = None
    restarts: int = 0
    fencing: int = 0
    """Grows with each start of this worker on any host."""
    since: float = 0.0
    """The time of its last start. 0: it was never started here."""
    fetched_at: float = 0.0
    """The time when all its bundles were here. 0: they never were."""
    ended_at: float = 0.0
    """The time when it last ended. 0: it never did."""
    detail: str = ""
    application: str = ""
    """The id that Spark gave the application. Empty: it is no Spark driver."""
    ui: str = ""
    """The URL of the application's Spark page."""


class HeartbeatBody(View, frozen=True, kw_only=True):
    """POST /v1/heartbeat: a supervisor tells the leader about all its workers at once."""

    supervisor: SupervisorId
    generation: int
    """The generation of the assignment that the supervisor follows."""
    workers: list[WorkerReport]


class HeartbeatAnswer(View, frozen=True, kw_only=True):
    """The leader's answer to a heartbeat."""

    interval: float = 1.0
    """Seconds until the next heartbeat is expected, unless something changes."""
    peers: dict[JobId, dict[str, str]] = {}
    """Hosts of all running workers, by worker number, of each job with a worker on this host."""


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
    """`job show`, `job ls`"""

    id: JobId
    name: str
    status: JobStatus
    bundle: BundleId
    dependencies: list[BundleId]
    wanted: int
    """The number of workers that the job wants; `workers` lists each of them."""
    workers: list[WorkerView]
    created_at: float
    due_in: float | None = None
    """Seconds until what is pending happens."""
    reason: str = ""
    spec: JobSpec | None = None
    events: list[JobEvent] | None = []
    """The last events, in order. Empty in lists. null: they cannot be read now."""


class WorkerOutput(View, frozen=True, kw_only=True):
    """Output that a host keeps of one stream of a worker: GET /v1/host/jobs/<job>/logs"""

    worker: int
    stream: str
    begin: int
    """The offset of the first byte that is still there."""
    end: int
    at: float
    """The time when the last byte was written."""
    here: bool
    """Whether the worker has its place on this host now."""
