"""The leadership over HTTP: shows the leader, the state of every master and past leaders, and
gives the leadership to a named master, or to the best one when the leader stops.

Always: a target that is unknown, not ready or not in the queue is refused before anything has
changed. The answer says who leads afterwards. A retry under the same request id gets the first
answer.
Never: elect. The election's queue does.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.cluster import paths
from torrentdist.cluster.records.mirror import Mirror
from torrentdist.cluster.session.znode_operations import Check
from torrentdist.host.http.operation import about
from torrentdist.host.http.web import json_response, number_parameter
from torrentdist.master.bundles import bundle_views
from torrentdist.master.changes.answered_requests import Mutation
from torrentdist.master.changes.commit import LeaderChanges
from torrentdist.master.http.routes import RequestedChange, Routes, change, operation
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.leading.roles import Roles
from torrentdist.master.reads.answer_freshness import CATCH_UP_SECS, require_zookeeper
from torrentdist.master.reads.saved_records import Records
from torrentdist.model import ids
from torrentdist.model.errors import TorrentdistError, required
from torrentdist.model.ids import MasterId
from torrentdist.model.wire.ha_views import (
    FailoverView,
    LeaderTransferView,
    LeaderView,
    MasterState,
    RoleView,
    TransferBody,
)
from torrentdist.model.wording import counted
from torrentdist.security.authorization import Role

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
        record = required(self._mirror.snapshot.masters.get(target), "not_found", what=f"master {target!r}")
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


DEFAULT_FAILOVERS = 10
MAX_TRANSFER_BYTES = 64 * 1024


class LeadershipApi(Routes, msgspec.Struct, frozen=True):
    leadership: Leadership
    masters: Roles
    records: Records
    handing_over: LeaderTransfer

    @operation("GET", "/leaderz", None, Role.READER, statuses=(200, 503))
    async def leaderz(self, _: Request) -> Response:
        """200 if it leads, else 503."""
        leads = self.leadership.is_leader()
        return Response(
            "leader\n" if leads else "standby\n", status_code=200 if leads else 503, media_type="text/plain"
        )

    @operation("GET", "/v1/leader", LeaderView, Role.READER)
    async def leader(self, _: Request) -> Response:
        """The leader, since when it leads, and its epoch."""
        view = self.leadership.leader_view()
        return json_response(msgspec.structs.replace(view, stale_secs=self.records.stale_secs()))

    @operation("GET", "/v1/role", RoleView, Role.READER)
    async def role(self, _: Request) -> Response:
        """This master's state, epoch and lag."""
        return json_response(self.masters.own())

    @operation("GET", "/v1/roles", list[RoleView], Role.READER)
    async def roles(self, _: Request) -> Response:
        """The same of every registered master, asked now."""
        return json_response(await self.masters.all())

    @operation("GET", "/v1/failovers", list[FailoverView], Role.READER)
    async def failovers(self, request: Request) -> Response:
        """The last changes of leader, the newest first."""
        count = int(number_parameter(request, "n", DEFAULT_FAILOVERS, low=1, high=1000))
        require_zookeeper(self.records)
        try:
            async with asyncio.timeout(CATCH_UP_SECS):
                found = await self.leadership.failovers(count)
        except TimeoutError:
            raise TorrentdistError("zookeeper_unavailable", detail="no answer about the failovers") from None
        return json_response([bundle_views.failover_view(r) for r in found])

    @change("POST", "/v1/transfer", LeaderTransferView, Role.OPERATOR, body=TransferBody, max_body=MAX_TRANSFER_BYTES)
    async def transfer(self, asked: RequestedChange) -> bytes:
        """Hand the leadership to a master."""
        target = ids.master_id(asked.body.master)
        about(asked.request, target)
        return await self.handing_over.to(target, asked.mutation)
