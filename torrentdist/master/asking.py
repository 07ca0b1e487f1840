"""What every mutation over HTTP has in common: the identity of the request, and an answer that is JSON already."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.master.once import Mutation, mutation
from torrentdist.model import ids

REQUEST_ID = "X-Request-Id"


async def mutation_of(request: Request, body: bytes = b"") -> Mutation | None:
    """What a retry of this request is recognised by; None for one without an id, which is not remembered."""
    given = request.headers.get(REQUEST_ID)
    if given is None:
        return None
    target, query = request.scope["raw_path"], request.scope["query_string"]
    return await asyncio.to_thread(mutation, ids.request_id(given), request.method, target, query, body)


def answered(body: bytes) -> Response:
    return Response(body, media_type="application/json")
