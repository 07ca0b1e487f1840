"""Routes of a master that show the leader, the state of every master and past leaders, and that
hand leadership over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.operation import Operation, about, body_of
from torrentdist.host.http.web import decode_body, json_response, number_parameter
from torrentdist.master.bundles import bundle_views
from torrentdist.master.http.mutation_requests import answered, mutation_of
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


class LeadershipApi:
    def __init__(self, leadership: Leadership, roles: Roles, records: Records, transfer: LeaderTransfer) -> None:
        self._leadership = leadership
        self._roles = roles
        self._records = records
        self._transfer = transfer

    def operations(self) -> Iterator[Operation]:
        yield Operation(
            "GET", "/leaderz", self.leaderz, None, "200 if it leads, else 503", Role.READER, statuses=(200, 503)
        )
        yield Operation(
            "GET", "/v1/leader", self.leader, LeaderView, "who leads, since when, in which epoch", Role.READER
        )
        yield Operation("GET", "/v1/role", self.role, RoleView, "this master's state, epoch and lag", Role.READER)
        summary = "the same of every registered master, asked now"
        yield Operation("GET", "/v1/roles", self.roles, list[RoleView], summary, Role.READER)
        summary = "the last changes of leader, the newest first"
        yield Operation("GET", "/v1/failovers", self.failovers, list[FailoverView], summary, Role.READER)
        yield Operation(
            "POST",
            "/v1/transfer",
            self.transfer,
            LeaderTransferView,
            "hand the leadership to a master",
            Role.OPERATOR,
            body=TransferBody,
            max_body=MAX_TRANSFER_BYTES,
            changes=True,
            dry_runs=True,
        )

    async def leaderz(self, _: Request) -> Response:
        leads = self._leadership.is_leader()
        return Response(
            "leader\n" if leads else "standby\n", status_code=200 if leads else 503, media_type="text/plain"
        )

    async def leader(self, _: Request) -> Response:
        view = self._leadership.leader_view()
        return json_response(msgspec.structs.replace(view, stale_secs=self._records.stale_secs()))

    async def role(self, _: Request) -> Response:
        return json_response(self._roles.own())

    async def roles(self, _: Request) -> Response:
        return json_response(await self._roles.all())

    async def failovers(self, request: Request) -> Response:
        count = int(number_parameter(request, "n", DEFAULT_FAILOVERS, low=1, high=1000))
        require_zookeeper(self._records)
        try:
            async with asyncio.timeout(CATCH_UP_SECS):
                found = await self._leadership.failovers(count)
        except TimeoutError:
            raise TorrentdistError("zookeeper_unavailable", detail="no answer about the failovers") from None
        return json_response([bundle_views.failover_view(r) for r in found])

    async def transfer(self, request: Request) -> Response:
        raw = await body_of(request)
        target = ids.master_id(decode_body(raw, TransferBody).master)
        about(request, target)
        return answered(await self._transfer.to(target, await mutation_of(request, raw)))
