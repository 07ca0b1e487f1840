"""Routes of a master that show the leader, the state of every master and past leaders, and that
hand leadership over."""

import asyncio
from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.operation import about
from torrentdist.host.http.web import json_response, number_parameter
from torrentdist.master.bundles import bundle_views
from torrentdist.master.http.routes import RequestedChange, Routes, change, operation
from torrentdist.master.leading.leader_transfer import LeaderTransfer
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.leading.roles import Roles
from torrentdist.master.reads.answer_freshness import CATCH_UP_SECS, require_zookeeper
from torrentdist.master.reads.saved_records import Records
from torrentdist.model import ids
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.ha_views import FailoverView, LeaderTransferView, LeaderView, RoleView, TransferBody
from torrentdist.security.principal import Role

DEFAULT_FAILOVERS = 10
MAX_TRANSFER_BYTES = 64 * 1024


@dataclass(frozen=True)
class LeadershipApi(Routes):
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
