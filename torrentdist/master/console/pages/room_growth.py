"""Says when a host's disk reaches its mark, at the pace of the last week.

Pure.
Always: the pace is what records say: the bytes that the host was told to keep within the last week.
"""

from collections.abc import Iterable, Mapping

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.master.console import console_markup as m
from torrentdist.master.console.console_views import GrowthView
from torrentdist.model.ids import BundleId, SupervisorId
from torrentdist.model.policies.policy_messages import RoomView
from torrentdist.model.wire.cluster_messages import HostStateView

WEEK_SECS = 7 * 86_400.0
DAYS_FROM = 2 * 86_400.0


def growth(
    seen: ClusterSnapshot,
    host: SupervisorId,
    room: Mapping[BundleId, RoomView],
    state: HostStateView | None,
    now: float,
) -> GrowthView:
    """`room`: what becomes of the bundles that the host is told to keep."""
    kept = [bundle for bundle in room if bundle in seen.bundles]
    week = _bytes(seen, (bundle for bundle in kept if now - _told_at(seen, host, bundle) <= WEEK_SECS))
    freed = _bytes(seen, (bundle for bundle in kept if room[bundle].goes))
    return GrowthView(
        week_bytes=week,
        freed_bytes=freed,
        mark_secs=None if state is None or not week else room_left(state) / week * WEEK_SECS,
    )


def _bytes(seen: ClusterSnapshot, bundles: Iterable[BundleId]) -> int:
    return sum(seen.bundles[bundle].record.size for bundle in bundles)


def _told_at(seen: ClusterSnapshot, host: SupervisorId, bundle: BundleId) -> float:
    """Returns when a host was told to keep a bundle; when it was made, if no order says it."""
    order, made = seen.distributions.get(bundle), seen.bundles[bundle].record.created_at
    is_later = order is not None and order.record.begun_at > made and host in order.record.hosts
    return order.record.begun_at if order is not None and is_later else made


def room_left(state: HostStateView) -> int:
    """Returns the bytes until the disk reaches its reserve, or the bundles their limit."""
    disk = state.free_bytes - state.reserve_bytes
    own = state.limit_bytes - state.published_bytes if state.limit_bytes else disk
    return max(0, min(disk, own))


def growth_words(view: GrowthView) -> str:
    freed = f" Retention frees {m.bytes_of(view.freed_bytes)} next." if view.freed_bytes else ""
    if not view.week_bytes:
        return f"It was told to keep nothing new in the last week.{freed}"
    pace = f"{m.bytes_of(view.week_bytes)} in the last week"
    if view.mark_secs is None:
        return f"It was told to keep {pace}.{freed}"
    days = view.mark_secs / 86_400
    when = f"{days:,.0f} days" if view.mark_secs >= DAYS_FROM else m.duration(view.mark_secs)
    return f"It reaches its mark in {when} at the pace of the last week ({pace}).{freed}"
