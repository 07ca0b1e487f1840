"""What users and peers see: the JSON of the HTTP API and of the command line's `-o json`.

These keys are promised in docs/protocol.md. A key may be added; none changes its meaning.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from torrentdist.model.ids import BundleId, Digest, JobId, MasterId, PeerId, SupervisorId
from torrentdist.model.jobs.job import JobSpec
from torrentdist.model.records import BundleState, JobEvent, JobStatus
from torrentdist.model.swarm_place import SwarmPlace


class View(msgspec.Struct, frozen=True, kw_only=True):
    pass


class BundleView(View, frozen=True, kw_only=True):
    """`age_secs` is told in lists alone, and `lacking` to an uploader that waits."""

    id: BundleId
    digest: Digest
    size: int
    files: int
    replicas: int
    min_replicas: int
    holders: list[MasterId]
    created_at: float
    state: BundleState
    pinned: bool
    age_secs: float | None = None
    """By ZooKeeper's clock, as `created_at` is; null: this master does not know that clock yet."""
    lacking: dict[MasterId, str] = {}
    """Live masters without a copy, and what each waits for."""
    stuck: dict[str, str] = {}
    """Why the bundle does not arrive, by host; of one bundle only, not in a list."""


class HostProblem(View, frozen=True, kw_only=True):
    """Why a bundle does not arrive on this host: GET /v1/host/problems"""

    bundle: str
    digest: Digest
    reason: str


class MasterView(View, frozen=True, kw_only=True):
    id: MasterId
    host: str
    port: int
    url: str
    uptime_secs: float
    is_leader: bool
    version: str
    swarm_port: int = 0


class SupervisorView(View, frozen=True, kw_only=True):
    id: SupervisorId
    host: str
    gateway: str
    slots: int
    slots_used: int
    labels: dict[str, str]
    bundles: int | None
    """How many bundles it has, as it announces them; null: it has not been heard yet."""
    version: str
    uptime_secs: float
    swarm_port: int = 0
    url: str = ""
    """Where others read its workers' output."""
    draining: bool = False
    silent_secs: float | None = None
    """For how long it has owed the leader a heartbeat; 0: it owes none; null: a master was asked that doesn't lead."""


class BundleCounts(View, frozen=True, kw_only=True):
    total: int
    available: int
    uploading: int
    lost: int
    under_replicated: int


class ClusterView(View, frozen=True, kw_only=True):
    leader: MasterId | None
    epoch: int
    masters: list[MasterView]
    supervisors: list[SupervisorView]
    jobs: list[str]
    bundles: BundleCounts
    stale_secs: float | None = None
    """How old all of this is, while ZooKeeper is away."""
    problem: str = ""
    """Why nothing can be changed, and what to do about it. Empty: nothing is known to be in the way."""


class HostState(StrEnum):
    WAITING = "waiting"
    FETCHING = "fetching"
    STUCK = "stuck"
    DONE = "done"
    FAILED = "failed"
    GONE = "gone"


class HostProgress(View, frozen=True, kw_only=True):
    """One host of `bundle distribute`."""

    supervisor: SupervisorId
    state: HostState
    done: int = 0
    size: int = 0
    rate: float = 0.0
    from_peers: int = 0
    from_masters: int = 0
    from_plugin: int = 0
    reason: str = ""


class FleetView(View, frozen=True, kw_only=True):
    """GET /v1/bundles/<id>/hosts"""

    id: BundleId
    digest: Digest
    size: int
    hosts: list[HostProgress]


class Sources(View, frozen=True, kw_only=True):
    """Bytes by where they came from; `local` was already on this host, `plugin` came by another way than a swarm."""

    masters: int = 0
    peers: int = 0
    local: int = 0
    plugin: int = 0


class TransferPhase(StrEnum):
    CHECKING = "checking"
    FETCHING = "fetching"
    SEEDING = "seeding"
    FAILED = "failed"


class TransferView(View, frozen=True, kw_only=True):
    """An immutable picture of one transfer in the engine."""

    digest: Digest
    phase: TransferPhase
    size: int
    done: int
    """Verified bytes on disk."""
    rate: float = 0.0
    """Payload bytes per second coming in."""
    upload_rate: float = 0.0
    eta: float | None = None
    uploaded: int = 0
    sources: Sources = Sources()
    peers: int = 0
    hash_failures: int = 0
    error: str = ""


class PeerRole(StrEnum):
    MASTER = "master"
    SUPERVISOR = "supervisor"
    CLIENT = "client"
    STOCK = "stock"
    """A BitTorrent client of somebody else that came by the tracker URL."""


class PeerAddress(View, frozen=True, kw_only=True):
    """A member of a swarm as the directory hands it out."""

    host: str
    port: int
    role: PeerRole
    complete: bool = False


class SwarmEntry(View, frozen=True, kw_only=True):
    """What a peer says about one swarm that it is in."""

    digest: Digest
    complete: bool
    done: int = 0
    size: int = 0
    rate: float = 0.0
    from_peers: int = 0
    from_masters: int = 0
    from_plugin: int = 0
    problem: str = ""
    """Why it doesn't get on, for people: 'no peers', 'disk full'... Empty if all is well."""


class SwarmAnnounce(View, frozen=True, kw_only=True):
    """POST /v1/swarm: one peer tells about all of its swarms at once. A swarm that isn't named any more is left."""

    peer: PeerId
    role: PeerRole
    port: int
    host: str = ""
    """Where others reach it; empty: the address that the request came from."""
    swarms: list[SwarmEntry] = []
    left: bool = False
    """True in the last request of a peer that goes away."""
    addresses: str = ""
    """The `addresses_tag` of this master's last answer."""
    known: str = ""
    """The `tag` of this master's last answer."""


class SwarmPeers(View, frozen=True, kw_only=True):
    """What the directory answers about one swarm."""

    peers: list[PeerAddress] = []
    removed: bool = False
    """The bundle of this digest has a tombstone: drop it."""
    pinned: bool = False
    replicas: int = 0
    """How many live masters hold it. 0: yours may be the last copy."""
    place: SwarmPlace | None = None


class SwarmAnswer(View, frozen=True, kw_only=True):
    interval: float
    """Seconds until the next announce is wanted."""
    you: str
    """The host under which the directory knows the peer."""
    swarms: dict[Digest, SwarmPeers] = {}
    addresses: list[str] = []
    """Every address that connections may be accepted from; empty: those of the tag that the announce named."""
    addresses_tag: str = ""
    masters: list[str] = []
    """The URLs of all live masters."""
    wanted: list[Digest] = []
    """Of the peer's own swarms, those whose metafile no master has: PUT /v1/metafiles/<digest> brings it back."""
    tag: str = ""
    """Of all but the interval. If the announce named it as `known`, the rest is as it was, and left out."""


class UploadView(View, frozen=True, kw_only=True):
    """`upload`"""

    id: BundleId
    digest: Digest
    size: int
    files: int
    replicas: int
    min_replicas: int
    achieved: bool
    seconds: float


class DownloadView(View, frozen=True, kw_only=True):
    """`download`"""

    id: BundleId
    digest: Digest
    path: str
    size: int
    files: int
    seconds: float
    sources: Sources


class FailedHost(View, frozen=True, kw_only=True):
    supervisor: SupervisorId
    reason: str


class DistributeView(View, frozen=True, kw_only=True):
    """`bundle distribute`"""

    id: BundleId
    digest: Digest
    hosts: int
    done: int
    failed: list[FailedHost]
    seconds: float
    sources: Sources = Sources()
    """Of all these hosts together."""


class HostBundleView(View, frozen=True, kw_only=True):
    """A supervisor's answer about one bundle: GET /bundles/<id>, POST /v1/host/bundles/<id>/fetch"""

    id: BundleId
    digest: Digest | None
    state: HostState
    path: str = ""
    """The published content, once `state` is done."""
    single_file: bool = False
    size: int = 0
    files: int = 0
    transfer: TransferView | None = None
    reason: str = ""


class WorkerState(StrEnum):
    UNASSIGNED = "unassigned"
    WAITING = "waiting"
    """Placed, and not started yet: its bundles arrive, or its barrier is not free."""
    RUNNING = "running"
    STOPPING = "stopping"
    INACTIVE = "inactive"
    BACKOFF = "backoff"
    """It ended and is started again after a wait."""
    ENDED = "ended"
    """It ended for good, as its restart policy says."""


class WorkerReport(View, frozen=True, kw_only=True):
    """What a supervisor says about one worker."""

    job: JobId
    worker: int
    state: WorkerState
    pid: int = 0
    slot: int = 0
    exit_code: int | None = None
    restarts: int = 0
    fencing: int = 0
    """Grows with each start of this worker anywhere."""
    since: float = 0.0
    """When it was started last; this and the next two by the host's clock, for people. 0: never, here."""
    fetched_at: float = 0.0
    """When its bundles were all here."""
    ended_at: float = 0.0
    """When it ended last."""
    detail: str = ""
    application: str = ""
    """Of a Spark driver: the id that Spark gave it."""
    ui: str = ""
    """Where Spark shows it."""


class HeartbeatBody(View, frozen=True, kw_only=True):
    """POST /v1/heartbeat, from a supervisor to the leader: all its workers at once, every heartbeat period."""

    supervisor: SupervisorId
    generation: int
    """Of the assignment that it follows."""
    workers: list[WorkerReport]


class WorkerView(View, frozen=True, kw_only=True):
    worker: int
    supervisor: SupervisorId | None
    slot: int | None
    state: WorkerState | None
    """None, as slot, pid and restarts: its supervisor has not told this master about it."""
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
    """How many workers it wants; `workers` lists each of them."""
    workers: list[WorkerView]
    created_at: float
    due_in: float | None = None
    """Seconds until what is pending happens."""
    reason: str = ""
    spec: JobSpec | None = None
    events: list[JobEvent] | None = []
    """The last ones, in order; of one job only, not in a list of jobs. None: they cannot be read now."""


class WorkerOutput(View, frozen=True, kw_only=True):
    """What a host keeps of one stream of one worker: GET /v1/host/jobs/<job>/logs"""

    worker: int
    stream: str
    begin: int
    """The offset of the first byte that is still there."""
    end: int
    at: float
    """When the last byte was written."""
    here: bool
    """Whether the worker has its place there now."""


class HealthView(View, frozen=True, kw_only=True):
    """/readyz: failing checks by name, empty when ready."""

    ok: bool
    failing: dict[str, str] = {}
