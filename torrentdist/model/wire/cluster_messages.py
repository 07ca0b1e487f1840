"""Answers about the cluster as a whole: masters, supervisors, counts, and the health of a
daemon."""

from __future__ import annotations

from torrentdist.model.ids import MasterId, SupervisorId
from torrentdist.model.wire.view import View


class MasterView(View, frozen=True, kw_only=True):
    """A live master."""

    id: MasterId
    host: str
    port: int
    url: str
    uptime_secs: float
    is_leader: bool
    version: str
    swarm_port: int = 0


class SupervisorView(View, frozen=True, kw_only=True):
    """A live supervisor."""

    id: SupervisorId
    host: str
    gateway: str
    slots: int
    slots_used: int
    labels: dict[str, str]
    bundles: int | None
    """The number of bundles that it has, as it announces them. null: it has not announced any to
    this master yet."""
    version: str
    uptime_secs: float
    swarm_port: int = 0
    url: str = ""
    """The URL at which other hosts read its workers' output."""
    draining: bool = False
    silent_secs: float | None = None
    """Seconds by which its heartbeat to the leader is late. 0: it is not late. null: this master
    does not lead."""


class BundleCounts(View, frozen=True, kw_only=True):
    """The number of bundles by state."""

    total: int
    available: int
    uploading: int
    lost: int
    under_replicated: int


class ClusterView(View, frozen=True, kw_only=True):
    """`cluster`"""

    leader: MasterId | None
    epoch: int
    masters: list[MasterView]
    supervisors: list[SupervisorView]
    jobs: list[str]
    bundles: BundleCounts
    stale_secs: float | None = None
    """Age of everything here in seconds, while ZooKeeper is away."""
    problem: str = ""
    """The reason why nothing can be changed, and what to do about it. Empty: no such reason is
    known."""


class HealthView(View, frozen=True, kw_only=True):
    """/readyz: the checks that fail, by name. None fails when the daemon is ready."""

    ok: bool
    failing: dict[str, str] = {}
