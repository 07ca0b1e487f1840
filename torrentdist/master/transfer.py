"""Leadership given to a named master, by the leader and for good reason only.

Always holds: a target that is unknown, not ready or not in the queue is refused before anything has changed; the
answer says who leads afterwards. Must not do: elect; the queue does.
"""

from __future__ import annotations

import time

from torrentdist.cluster.mirror import Mirror
from torrentdist.master.leadership import Leadership
from torrentdist.master.roles import Roles
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ha_views import LeaderTransferView, MasterState, RoleView
from torrentdist.model.ids import MasterId

HAND_OVER_SECS = 5.0


def objection(role: RoleView) -> str | None:
    """Why a master that says this of itself cannot take over; None if it can."""
    if role.failing or not role.ready:
        return "; ".join(f"{check}: {why}" for check, why in role.failing.items()) or "it is not ready"
    if role.lag is None or role.lag > 0:
        return f"it lacks {role.lag} bundles"
    if role.state is not MasterState.STANDBY:
        return f"it is {role.state.value}, not a standby"
    return None


async def transfer(
    me: MasterId, target: MasterId, leadership: Leadership, mirror: Mirror, roles: Roles
) -> LeaderTransferView:
    leadership.fence()  # only the leader can give it away
    began = time.monotonic()
    record = mirror.snapshot.masters.get(target)
    if record is None:
        raise TorrentdistError("not_found", what=f"master {target!r}")
    if target != me:
        against = objection(await roles.ask(record))
        if against is None and not await leadership.hand_over(target):
            against = "it is not in the election's queue"
        if against is not None:
            raise TorrentdistError("target_not_ready", id=target, detail=against)
        await _until_another_leads(me, target, mirror)
    return LeaderTransferView(previous=me, leader=target, seconds=round(time.monotonic() - began, 3))


async def _until_another_leads(me: MasterId, target: MasterId, mirror: Mirror) -> None:
    epoch = mirror.snapshot.epoch
    snapshot = await mirror.wait_for(
        lambda s: s.epoch > epoch and s.leader is not None, HAND_OVER_SECS, f"handing over to {target}"
    )
    if snapshot.leader != target:
        detail = f"{snapshot.leader} leads instead"
        raise TorrentdistError("target_not_ready", id=target, detail=detail)
