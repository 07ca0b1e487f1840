"""Routes about the cluster as a whole: what needs attention, and forgetting who is gone."""

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.web import json_response
from torrentdist.master.changes.commit import LeaderChanges
from torrentdist.master.http.routes import RequestedChange, Routes, change, operation
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.presence.attention_sight import PATH, READS, AttentionSight
from torrentdist.master.presence.presence_plan import forget_ops
from torrentdist.master.reads.readable_records import readable
from torrentdist.model import ids
from torrentdist.model.wire.cluster_messages import AttentionView
from torrentdist.security.authorization import Principal, Role, reads_everything


def asked_for(request: Request) -> Principal:
    """Returns the sender, or whom a master asks for: somebody who may read no more than the
    patterns that it names, and to whom nothing belongs that the master's own name has done."""
    sender, wanted = principal_of(request), request.query_params.get(READS)
    if wanted is None or not reads_everything(sender):
        return sender
    return replace(sender, name="", reads=tuple(filter(None, wanted.split(","))))  # without patterns: no bundle


class PresenceApi(Routes, msgspec.Struct, frozen=True):
    sight: AttentionSight
    changes: LeaderChanges
    leadership: Leadership

    @operation("GET", PATH, list[AttentionView], Role.READER)
    async def attention(self, request: Request) -> Response:
        """What needs attention, the worst first, as far as this master knows."""
        seen = readable(self.sight.snapshot(), asked_for(request))
        return json_response(self.sight.outline(seen).attention)

    @change("DELETE", "/v1/presence/{id}", None, Role.OPERATOR)
    async def forget(self, asked: RequestedChange) -> bytes:
        """Forget a master or supervisor that is gone."""
        (named,) = asked.request.path_params.values()  # `supervisor` or `master` in a form of the console
        id_ = ids.peer_id(named)
        return await self.changes.make(asked.mutation, lambda s: forget_ops(s, id_), lambda _: {"id": id_})
