"""The progress of bundles on hosts: the request and the answers of `bundle distribute`, the history
of distributions, and a supervisor's answers about its own bundles."""

from enum import StrEnum

import msgspec

from torrentdist.model.access.envelope import Envelope
from torrentdist.model.ids import BundleId, Digest, SupervisorId
from torrentdist.model.policies.bundle_terms import Priority
from torrentdist.model.wire.transfer_messages import ArrivalView, Sources, TransferView
from torrentdist.model.wire.view import View


class DistributeBody(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The body of POST /v1/bundles/<id>/distribute. Without any key it means all supervisors."""

    supervisors: list[str] | None = None
    """The supervisors that should get the bundle. None: those with the labels."""
    labels: dict[str, str] = {}
    """Only supervisors with all of these labels get the bundle."""
    share: float = 1.0
    """Only this share of these supervisors gets the bundle. A larger share holds a smaller one."""
    canary: int = 0
    """Number of supervisors that get it first. If one of them fails, the rest are not told. 0: no
    canaries."""
    concurrency: int = 0
    """Number of supervisors that fetch at the same time; 0: all."""
    everywhere: bool = False
    """Supervisors that register later and have the labels get it too."""
    keep_secs: float = 0.0
    """Supervisors keep it for this long; 0: until it is removed."""
    rate: int = 0
    """Most bytes per second that each supervisor fetches; 0: no limit."""
    priority: Priority = Priority.NORMAL
    """A supervisor fetches bundles of a higher priority first."""


class HostState(StrEnum):
    WAITING = "waiting"
    FETCHING = "fetching"
    STUCK = "stuck"
    DONE = "done"
    FAILED = "failed"
    GONE = "gone"


LATER_WAVE = "its wave has not begun"
"""The reason of a host that a distribution has not told yet."""
NO_ROOM = "its assignment has no room for another bundle"
DAMAGED = "its assignment is damaged"
"""The reasons of a host that a distribution cannot tell."""


class HostProgress(ArrivalView, frozen=True, kw_only=True, gc=False):
    """The progress of a bundle on one host."""

    supervisor: SupervisorId
    state: HostState
    reason: str = ""

    @property
    def is_later(self) -> bool:
        """Whether its wave has not begun, so that nobody can call it slow."""
        return self.state is HostState.WAITING and self.reason == LATER_WAVE

    @property
    def is_told(self) -> bool:
        """Whether its assignment names the bundle."""
        return not self.is_later and self.reason not in (NO_ROOM, DAMAGED)


class ZoneView(View, frozen=True, kw_only=True):
    """What came into one zone of the bundle's hosts."""

    zone: str
    hosts: int
    copies: float
    """How often the whole bundle came in from other zones."""


class FleetView(View, frozen=True, kw_only=True):
    """The answer of GET /v1/bundles/<id>/hosts."""

    id: BundleId
    digest: Digest
    size: int
    hosts: list[HostProgress]
    distribution: str = ""
    """The state of the bundle's distribution; empty: nobody distributes it."""
    stopped: str = ""
    """Why its distribution was stopped or cancelled; empty: it was not."""
    wave: int = 0
    """The wave that is under way, from 1; 0: there are none."""
    waves: int = 0
    time_left: float | None = None
    """Seconds until all hosts have it, those of later waves included. Null: nobody knows."""
    zones: list[ZoneView] = []
    """The zones of these hosts, by name; empty if they are all in one."""


class DistributionLine(View, frozen=True, kw_only=True):
    """A bundle that hosts should get and that not all of them have."""

    bundle: BundleId
    size: int
    hosts: int
    """Hosts that were told to fetch it, and hosts whose wave has not begun."""
    done: int
    stuck: int = 0
    """Hosts that say why they do not get it."""
    reason: str = ""
    """The reason that one of these hosts gives."""


class FailedHost(View, frozen=True, kw_only=True):
    """A host that did not get the bundle."""

    supervisor: SupervisorId
    reason: str


class DistributeView(View, frozen=True, kw_only=True):
    """The result of `bundle distribute`."""

    id: BundleId
    digest: Digest
    hosts: int
    done: int
    failed: list[FailedHost]
    seconds: float
    sources: Sources = Sources()
    """The bytes of all these hosts together."""
    zones: list[ZoneView] = []
    """The zones of these hosts, by name; empty if they are all in one."""


class HostArrival(View, frozen=True, kw_only=True):
    """How a distribution went on one host."""

    supervisor: SupervisorId
    state: HostState
    seconds: float | None = None
    """From the start of the distribution until this host had the bundle. Null: it did not get
    it."""
    done: int = 0
    sources: Sources = Sources()
    reason: str = ""


class DistributionSummary(View, frozen=True, kw_only=True):
    """What a distribution did on the hosts that are told to keep a bundle, and on those whose wave
    has not begun."""

    run: str
    """The bundle's id, `@`, and when it began in milliseconds."""
    bundle: BundleId
    digest: Digest
    size: int
    began_at: float
    """ZooKeeper's time."""
    ended_at: float | None = None
    """Null: it is not over."""
    hosts: int
    """The hosts that are to have it, but for those in `left`."""
    done: int
    """The hosts that have it. One that had it before has it after 0 s."""
    left: int = 0
    """The hosts that were told to stop before they had it."""
    cancelled: bool = False
    half_secs: float | None = None
    """Seconds until half of the hosts had it. Null: half of them never had it, or do not yet."""
    most_secs: float | None = None
    """The same for 90 % of them."""
    all_secs: float | None = None
    sources: Sources
    """The bytes of all hosts together."""
    copies_from_masters: float
    """How often the holders sent the whole bundle."""
    late: list[HostArrival]
    """The last hosts to get it, those without it first; only the start of a long list."""
    reached: list[tuple[float, float]]
    """Seconds, and the share of the hosts that had it by then; a few points of the whole curve."""


class HostBundleView(View, frozen=True, kw_only=True):
    """A supervisor's answer about one bundle: GET /bundles/<id>, POST
    /v1/host/bundles/<id>/fetch."""

    id: BundleId
    digest: Digest | None
    state: HostState
    path: str = ""
    """The published content, once `state` is `done`."""
    single_file: bool = False
    size: int = 0
    files: int = 0
    transfer: TransferView | None = None
    reason: str = ""
    signatures: list[Envelope] = []
    """The signatures that this host has verified, once `state` is `done`."""


class LeaseView(View, frozen=True, kw_only=True):
    """The answer of POST /v1/host/bundles/<id>/lease."""

    id: BundleId
    state: HostState
    path: str
    """The link to the content, once `state` is `done`."""
    lock: str
    """The file that a program locks, shared, for as long as it uses the bundle, as the supervisor
    sees it."""
    done: int = 0
    """Bytes that have arrived."""
    size: int = 0


class HostProblem(View, frozen=True, kw_only=True):
    """A bundle that does not arrive on this host, and the reason: GET /v1/host/problems."""

    bundle: str
    digest: Digest
    reason: str
