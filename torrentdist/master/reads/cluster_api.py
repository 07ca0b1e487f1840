"""The cluster as a whole: its members, its saved records, and a backup of everything persistent."""

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.cluster.records.tree_backup import make_backup
from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.web import json_response
from torrentdist.master.http.routes import Routes, operation, records_for
from torrentdist.master.master_core import MasterCore
from torrentdist.master.presence.attention_sight import AttentionSight
from torrentdist.master.reads.answer_freshness import require_zookeeper
from torrentdist.model.backup import Backup, encode_backup
from torrentdist.model.wire.cluster_messages import ClusterView
from torrentdist.security.authorization import Role, check_master


class ClusterApi(Routes, msgspec.Struct, frozen=True):
    core: MasterCore
    sight: AttentionSight

    @operation("GET", "/v1/cluster", ClusterView, Role.READER)
    async def cluster(self, request: Request) -> Response:
        """Masters, supervisors and counts."""
        return json_response(self.sight.cluster(records_for(request, self.core.records)))

    @operation("GET", "/v1/snapshot", None, Role.HOST)
    async def saved(self, request: Request) -> Response:
        """The records that this master has saved, for another master.

        They hold what a supervisor must not read, such as keys.
        """
        check_master(principal_of(request), "the saved records are")
        return Response(await asyncio.to_thread(self.core.records.file), media_type="application/octet-stream")

    @operation("GET", "/v1/backup", Backup, Role.OPERATOR)
    async def backup(self, _: Request) -> Response:
        """Every persistent record, checksummed."""
        require_zookeeper(self.core.records)
        backup = await make_backup(self.core.session.zookeeper)
        return Response(await asyncio.to_thread(encode_backup, backup), media_type="application/json")
