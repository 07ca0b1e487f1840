"""Answers about the cluster as a whole: masters, supervisors, counts, the health of a daemon,
and resource groups.
"""

import msgspec

from torrentdist.model.ids import MasterId, SupervisorId
from torrentdist.model.wire.view import View


class MasterView(View, frozen=True, kw_only=True):
    id: MasterId
    host: str
    port: int
    url: str
    uptime_secs: float
    is_leader: bool
    version: str
    swarm_port: int = 0
    full: str = ""
    """Why its store has no room for more bundles; empty: it has, or it says nothing of it."""
    free_bytes: int | None = None
    """Bytes of bundles for which its store has room; null: it has not told this master yet."""
    fills_in_secs: float | None = None
    """Seconds until that room is used up at the pace of the last week; null: it does not get less,
    or nobody can tell yet."""
    clock: float = 0.0
    """Seconds by which its clock is ahead of ZooKeeper's; 0: it is right, or unknown."""


class SupervisorView(View, frozen=True, kw_only=True):
    id: SupervisorId
    host: str
    gateway: str
    slots: int
    slots_used: int
    labels: dict[str, str]
    bundles: int | None
    """The number of bundles that it announces; null if it has not announced any to this master
    yet."""
    version: str
    uptime_secs: float
    bytes: int | None = None
    """Bytes of these bundles."""
    own_bytes: int | None = None
    """The bytes among them whose blocks on its disk no other bundle shares."""
    rate: float | None = None
    """Bytes per second that it receives of bundles."""
    problem: str = ""
    """Why a bundle does not arrive there; empty: all do."""
    swarm_port: int = 0
    url: str = ""
    """The URL at which other hosts read its workers' output."""
    draining: bool = False
    silent_secs: float | None = None
    """Seconds by which its heartbeat to the leader is late; 0 if it is on time, null if this master
    does not lead."""
    full: str = ""
    """Why its store has no room for more bundles; empty: it has, or it says nothing of it."""
    free_bytes: int | None = None
    """Bytes of bundles for which its store has room; null: it has not told this master yet."""
    fills_in_secs: float | None = None
    """Seconds until that room is used up at the pace of the last week; null: it does not get less,
    or nobody can tell yet."""
    clock: float = 0.0
    """Seconds by which its clock is ahead of ZooKeeper's; 0: it is right, or unknown."""


class GoneView(View, frozen=True, kw_only=True):
    """A master or supervisor that left without a clean stop or a drain, and is not back."""

    id: str
    role: str
    """master or supervisor"""
    host: str
    since: float
    """ZooKeeper's time."""
    gone_secs: float
    bundles: int
    """The bundles that it should keep."""
    jobs: list[str]
    """The jobs with a worker there when it left."""


class AttentionView(View, frozen=True, kw_only=True):
    """What an operator should look at: everything that has one cause."""

    what: str
    """problem, leader, unheard, lost, gone, silent, stopped, failing, elections, restarting, full,
    stuck, filling, under-replicated, clock, expiring."""
    severe: bool
    kind: str
    """What the subjects are: bundles, hosts, masters, jobs, cluster."""
    subjects: list[str]
    """The first of them."""
    count: int
    """How many there are."""
    detail: str
    page: str
    """The page of the documentation that helps."""

    @property
    def sentence(self) -> str:
        """Says all of it in one line, such as `full: 2 hosts: no room: h1, h2`."""
        if self.count == 1:
            return f"{self.what}: {self.subjects[0]}: {self.detail}"
        more = f" and {self.count - len(self.subjects)} more" if self.count > len(self.subjects) else ""
        return f"{self.what}: {self.count} {self.kind}: {self.detail}: {', '.join(self.subjects)}{more}"


class BundleCounts(View, frozen=True, kw_only=True):
    """The number of bundles by state."""

    total: int
    available: int
    uploading: int
    lost: int
    under_replicated: int


class ClusterFigures(View, frozen=True, kw_only=True):
    """The cluster in numbers, for a picture of it."""

    leader: MasterId | None
    epoch: int
    masters: int
    supervisors: int
    jobs: int
    bundles: BundleCounts
    attention: list[AttentionView]
    distributions_total: int
    """Distributions that are under way. A picture lists some of them."""
    stale_secs: float | None = None


class ClusterView(View, frozen=True, kw_only=True):
    """The answer of `cluster`."""

    leader: MasterId | None
    epoch: int
    masters: list[MasterView]
    supervisors: list[SupervisorView]
    jobs: list[str]
    bundles: BundleCounts
    gone: list[GoneView] = []
    """Masters and supervisors that left without a clean stop or a drain, and are not back."""
    attention: list[AttentionView] = []
    """What an operator should look at, the worst first, as far as this master knows. The leader
    knows the most."""
    stale_secs: float | None = None
    """Age of all this data in seconds while ZooKeeper cannot be reached."""
    expiring: dict[str, float] = {}
    """Hosts and masters whose certificate ends within a week, and the seconds left. Negative: it
    has ended."""
    problem: str = ""
    """Why nothing can be changed, and what to do about it; empty if no reason is known."""


class HealthView(View, frozen=True, kw_only=True):
    """The answer of /readyz: the failing checks by name. It is empty if the daemon is ready, or if
    the sender may not read."""

    ok: bool
    failing: dict[str, str] = {}


class HostStateView(View, frozen=True, kw_only=True):
    """What a host says of itself: GET /v1/host/state of a supervisor."""

    published_bytes: int
    """Bytes of the bundles that it has."""
    arriving_bytes: int
    """Bytes reserved for bundles that arrive."""
    free_bytes: int
    """Free bytes of the disk."""
    limit_bytes: int
    """Most bytes that its bundles may take; 0: no limit."""
    reserve_bytes: int
    """Bytes of the disk that it leaves free."""
    upload_rate: float
    download_rate: float
    peers: int
    errors: dict[str, str]
    """The bundles whose last fetch failed, with the reasons."""


class GroupMemberView(View, frozen=True, kw_only=True):
    member: str
    """The name of its znode."""
    id: str
    coordinator: bool
    resources: list[str]
    """Resources that the plan gives this member."""


class GroupLineView(View, frozen=True, kw_only=True):
    group: str
    algorithm: str | None
    """None: the first member will choose it."""
    members: int
    resources: int


class GroupView(View, frozen=True, kw_only=True):
    group: str
    algorithm: str | None
    state: str
    """`assigned`, or `stopping` while the global barrier waits for every member to stop."""
    members: list[GroupMemberView]
    resources: list[str]
    unassigned: list[str]


class GroupChangeView(View, frozen=True, kw_only=True):
    group: str
    changed: list[str]
    """Resources that this command added or removed."""


class GroupIdentityView(View, frozen=True, kw_only=True):
    """`group identity`"""

    group: str
    auth: str
    """The content of the zookeeper.auth_file of the group's members."""


class ResourcesBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/groups/{group}/resources"""

    resources: list[str]
