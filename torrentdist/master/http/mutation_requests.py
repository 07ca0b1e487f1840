"""What requests over HTTP have in common: the identity of a mutation, the part of a list that is asked for, and an
answer that is JSON already.

Never: decide anything.
"""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.web import number_parameter
from torrentdist.master.changes.answered_requests import Mutation, mutation
from torrentdist.master.reads.paging import MOST, Page
from torrentdist.model import ids
from torrentdist.model.wire.headers import REQUEST_ID


async def mutation_of(request: Request, body: bytes = b"") -> Mutation | None:
    """What a retry of this request is recognised by; None for one without an id, which is not remembered."""
    given = request.headers.get(REQUEST_ID)
    if given is None:
        return None
    target, query = request.scope["raw_path"], request.scope["query_string"]
    return await asyncio.to_thread(mutation, ids.request_id(given), request.method, target, query, body)


def page_of(request: Request) -> Page:
    """The part of a list that is asked for."""
    limit = int(number_parameter(request, "limit", MOST, low=1, high=MOST))
    return Page(after=request.query_params.get("after", ""), limit=limit if "limit" in request.query_params else None)


def answered(body: bytes) -> Response:
    return Response(body, media_type="application/json")
