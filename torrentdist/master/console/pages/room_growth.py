"""Says when a store is full, at the pace of the last week, and what retention frees.

Hosts and masters tell their room and its pace (host/process/host_condition.py).
"""

from collections.abc import Mapping, Sequence

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.master.console import console_markup as m
from torrentdist.master.console.console_sight import ConsoleSight
from torrentdist.master.console.console_views import GrowthView
from torrentdist.master.policies.room_outlook import RoomOutlook
from torrentdist.model.ids import BundleId
from torrentdist.model.policies.policy_messages import RoomView
from torrentdist.model.wire.cluster_messages import MasterView, SupervisorView
from torrentdist.security.authorization import Principal, reads_everything

DAYS_FROM = 2 * 86_400.0


def growth(
    seen: ClusterSnapshot, store: MasterView | SupervisorView | None, room: Mapping[BundleId, RoomView]
) -> GrowthView:
    """`room`: what becomes of the bundles that the store has to keep."""
    goes = (seen.bundles[bundle].record.size for bundle, view in room.items() if view.goes and bundle in seen.bundles)
    return GrowthView(
        free_bytes=None if store is None else store.free_bytes,
        fills_in_secs=None if store is None else store.fills_in_secs,
        freed_bytes=sum(goes),
    )


async def growth_of(
    sight: ConsoleSight,
    outlook: RoomOutlook,
    sender: Principal,
    store: MasterView | SupervisorView | None,
    kept: Sequence[BundleId],
) -> GrowthView | None:
    """Returns nothing to who may not read every bundle."""
    if not reads_everything(sender):
        return None
    return growth(sight.snapshot(), store, await outlook.of(sight.snapshot(), kept))


def growth_words(view: GrowthView) -> str:
    freed = f" Retention frees {m.bytes_of(view.freed_bytes)} next." if view.freed_bytes else ""
    if view.free_bytes is None:
        return f"How much room it has is not known yet.{freed}"
    room = f"It has room for {m.bytes_of(view.free_bytes)} of bundles"
    if view.fills_in_secs is None:
        return f"{room}.{freed}"
    days = view.fills_in_secs / 86_400
    when = f"{days:,.0f} days" if view.fills_in_secs >= DAYS_FROM else m.duration(view.fills_in_secs)
    return f"{room}, which is used up in {when} at the pace of the last week.{freed}"
