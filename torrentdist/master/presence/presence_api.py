"""Routes about the cluster as a whole: what needs attention, and forgetting who is gone."""

from __future__ import annotations

from dataclasses import dataclass, replace

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.web import json_response
from torrentdist.master.changes.commit import LeaderChanges
from torrentdist.master.http.routes import Change, Routes, change, operation
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.presence.attention_sight import PATH, READS, AttentionSight
from torrentdist.master.presence.presence_plan import forget_ops
from torrentdist.master.reads.readable_records import readable
from torrentdist.model import ids
from torrentdist.model.wire.cluster_messages import AttentionView
from torrentdist.security.authorization import reads_everything
from torrentdist.security.principal import Role


@dataclass(frozen=True)
class PresenceApi(Routes):
    sight: AttentionSight
    changes: LeaderChanges
    leadership: Leadership

    @operation("GET", PATH, list[AttentionView], Role.READER)
    async def attention(self, request: Request) -> Response:
        """What needs attention, the worst first, as far as this master knows."""
        sender, wanted = principal_of(request), request.query_params.get(READS, "")
        if wanted and reads_everything(sender):
            sender = replace(sender, reads=tuple(wanted.split(",")))
        return json_response(self.sight.outline(readable(self.sight.snapshot(), sender)).attention)

    @change("DELETE", "/v1/presence/{id}", None, Role.OPERATOR)
    async def forget(self, asked: Change) -> bytes:
        """Forget a master or supervisor that is gone."""
        id_ = ids.peer_id(asked.request.path_params["id"])
        return await self.changes.make(asked.mutation, lambda s: forget_ops(s, id_), lambda _: {"id": id_})
