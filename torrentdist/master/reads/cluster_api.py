"""The cluster as a whole: its members, its saved records, and a backup of everything persistent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.cluster.records.tree_backup import make_backup
from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.operation import Operation
from torrentdist.host.http.web import json_response
from torrentdist.master.http.mutation_requests import records_for
from torrentdist.master.master_core import MasterCore
from torrentdist.master.presence.attention_sight import AttentionSight
from torrentdist.master.reads.answer_freshness import require_zookeeper
from torrentdist.model.backup import Backup, encode_backup
from torrentdist.model.wire.cluster_messages import ClusterView
from torrentdist.security.authorization import check_master
from torrentdist.security.principal import Role


class ClusterApi:
    def __init__(self, core: MasterCore, sight: AttentionSight) -> None:
        self._zookeeper = core.session.zookeeper
        self._records = core.records
        self._sight = sight

    def operations(self) -> Iterator[Operation]:
        summary = "masters, supervisors and counts"
        yield Operation("GET", "/v1/cluster", self.cluster, ClusterView, summary, Role.READER)
        summary = "the records that this master has saved, for another master"
        yield Operation("GET", "/v1/snapshot", self.saved, None, summary, Role.HOST)
        summary = "every persistent record, checksummed"
        yield Operation("GET", "/v1/backup", self.backup, Backup, summary, Role.OPERATOR)

    async def cluster(self, request: Request) -> Response:
        return json_response(self._sight.cluster(records_for(request, self._records)))

    async def saved(self, request: Request) -> Response:
        """They hold what a supervisor must not read, such as keys."""
        check_master(principal_of(request), "the saved records are")
        return Response(await asyncio.to_thread(self._records.file), media_type="application/octet-stream")

    async def backup(self, _: Request) -> Response:
        require_zookeeper(self._records)
        backup = await make_backup(self._zookeeper)
        return Response(await asyncio.to_thread(encode_backup, backup), media_type="application/json")
