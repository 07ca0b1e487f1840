"""Gives the leadership to another master: to a named one, or to the best one when the leader stops.

Always: a target that is unknown, not ready or not in the queue is refused before anything has
changed. The answer says who leads afterwards. A retry under the same request id gets the first
answer.
Never: elect. The election's queue does.
"""

import time
from collections.abc import Iterable, Sequence

import msgspec

from torrentdist.cluster import paths
from torrentdist.cluster.records.mirror import Mirror
from torrentdist.cluster.session.znode_operations import Check
from torrentdist.master.changes.answered_requests import Mutation
from torrentdist.master.changes.commit import LeaderChanges
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.leading.roles import Roles
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import MasterId
from torrentdist.model.wire.ha_views import LeaderTransferView, MasterState, RoleView
from torrentdist.model.wording import counted

HAND_OVER_SECS = 5.0


def objection(role: RoleView) -> str | None:
    """Returns why a master with this role cannot take over; None if it can."""
    if role.failing or not role.ready:
        return "; ".join(f"{check}: {why}" for check, why in role.failing.items()) or "it is not ready"
    if role.lag is None:
        return "it does not say which bundles it lacks"
    if role.lag > 0:
        return f"it lacks {counted(role.lag, 'bundle')}"
    if role.state is not MasterState.STANDBY:
        return f"it is {role.state.value}, not a standby"
    return None


def successor(queue: Sequence[MasterId], roles: Iterable[RoleView]) -> MasterId | None:
    """Returns the first master of the queue that could lead at once, for a leader that stops.

    The leader itself is never returned, because it is not a standby.
    """
    able = {role.id for role in roles if objection(role) is None}
    return next((master for master in queue if master in able), None)


class LeaderTransfer:
    def __init__(
        self, me: MasterId, leadership: Leadership, mirror: Mirror, roles: Roles, changes: LeaderChanges
    ) -> None:
        self._me = me
        self._leadership = leadership
        self._mirror = mirror
        self._roles = roles
        self._changes = changes

    async def to(self, target: MasterId, mutation: Mutation | None) -> bytes:
        """Hands the leadership to `target` and returns the answer once that master leads."""
        before = await self._changes.recall(mutation)  # only the leader can give it away
        if before is not None:
            if target != self._me:
                raise TorrentdistError("target_not_ready", id=target, detail=f"{self._me} leads instead")
            return before
        began = time.monotonic()
        record = self._mirror.snapshot.masters.get(target)
        if record is None:
            raise TorrentdistError("not_found", what=f"master {target!r}")
        if target != self._me:
            against = objection(await self._roles.ask(record))
            if against is not None:
                raise TorrentdistError("target_not_ready", id=target, detail=against)
            promised = LeaderTransferView(previous=self._me, leader=target, seconds=0.0)
            answer = await self._changes.make(mutation, lambda s: [Check(paths.master(target))], lambda s: promised)
            if mutation is not None and mutation.dry_run:
                return answer
            if not await self._leadership.hand_over(target):
                raise TorrentdistError("target_not_ready", id=target, detail="it is not in the election's queue")
            await self._until_it_leads(target)
        view = LeaderTransferView(previous=self._me, leader=target, seconds=round(time.monotonic() - began, 3))
        return msgspec.json.encode(view)

    async def _until_it_leads(self, target: MasterId) -> None:
        epoch = self._mirror.snapshot.epoch
        snapshot = await self._mirror.wait_for(
            lambda s: s.epoch > epoch and s.leader is not None, HAND_OVER_SECS, f"handing over to {target}"
        )
        if snapshot.leader != target:
            raise TorrentdistError("target_not_ready", id=target, detail=f"{snapshot.leader} leads instead")
