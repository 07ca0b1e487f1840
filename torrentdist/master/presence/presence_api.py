"""Routes about the cluster as a whole: what needs attention, and forgetting who is gone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Op
from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.operation import Operation
from torrentdist.host.http.web import json_response
from torrentdist.master.changes.commit import LeaderChanges
from torrentdist.master.http.mutation_requests import answered, mutation_of
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.presence.attention_sight import PATH, READS, AttentionSight
from torrentdist.master.presence.presence_plan import forget_ops
from torrentdist.master.reads.readable_records import readable
from torrentdist.model import ids
from torrentdist.model.wire.cluster_messages import AttentionView
from torrentdist.security.authorization import reads_everything
from torrentdist.security.principal import Role


class PresenceApi:
    def __init__(self, sight: AttentionSight, changes: LeaderChanges, leadership: Leadership) -> None:
        self._sight = sight
        self._changes = changes
        self._leadership = leadership

    def operations(self) -> Iterator[Operation]:
        summary = "what needs attention, the worst first, as far as this master knows"
        yield Operation("GET", PATH, self.attention, list[AttentionView], summary, Role.READER)
        summary = "forget a master or supervisor that is gone"
        path, role = "/v1/presence/{id}", Role.OPERATOR
        yield Operation("DELETE", path, self.forget, None, summary, role, changes=True, dry_runs=True)

    async def attention(self, request: Request) -> Response:
        sender, wanted = principal_of(request), request.query_params.get(READS, "")
        if wanted and reads_everything(sender):
            sender = replace(sender, reads=tuple(wanted.split(",")))
        return json_response(self._sight.outline(readable(self._sight.snapshot(), sender)).attention)

    async def forget(self, request: Request) -> Response:
        (named,) = request.path_params.values()
        id_ = ids.peer_id(named)
        self._leadership.fence()

        def decide(snapshot: ClusterSnapshot) -> list[Op]:
            return forget_ops(snapshot, id_)

        return answered(await self._changes.make(await mutation_of(request), decide, lambda _: {"id": id_}))
