"""Declares the operations of a master's routers, each beside the method that answers it, and
reads what several of them take from a request: ids in its path, the page of a list, the identity
of a change.

Always: a change is refused by a standby before its body is read. Its method gets a
`RequestedChange`, in which everything is read and checked, and returns the answer as JSON. An id
from a path is checked before anything uses it.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.declared_routes import DeclaredRoutes, F
from torrentdist.host.http.declared_routes import operation as operation
from torrentdist.host.http.openapi import MOST_PAGE
from torrentdist.host.http.operation import Handler, Operation, body_of, is_dry_run
from torrentdist.host.http.web import decode_body, number_parameter
from torrentdist.master.changes.answered_requests import A_DRY_RUN, Mutation, mutation
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.reads.paging import Page
from torrentdist.master.reads.saved_records import Records
from torrentdist.model import ids
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.wire.headers import REQUEST_ID
from torrentdist.security.authorization import Role

MAX_JSON_BYTES = 4 * 1024 * 1024
"""Largest JSON body of a job or of a supervisor."""
LONGEST_WAIT = 10 * 365 * 86400.0
"""Largest number of seconds that a request may name: ten years."""


def bundle_of(request: Request) -> BundleId:
    """Returns the bundle that the path names."""
    return ids.bundle_id(request.path_params["id"])


async def bundle_target(request: Request) -> tuple[BundleId]:
    """Returns the bundle that the path names, for the check of the sender's pattern."""
    return (bundle_of(request),)


def digest_of(request: Request) -> Digest:
    """Returns the digest that the path names."""
    return ids.digest(request.path_params["digest"])


async def mutation_of(request: Request, body: bytes = b"") -> Mutation | None:
    """Returns what a retry of this request is recognised by; None for a request without an id."""
    if is_dry_run(request):
        return A_DRY_RUN
    given = request.headers.get(REQUEST_ID)
    if given is None:
        return None
    target, query = request.scope["raw_path"], request.scope["query_string"]
    return await asyncio.to_thread(mutation, ids.request_id(given), request.method, target, query, body)


def records_for(request: Request, records: Records) -> ClusterSnapshot:
    """Returns the records as the sender may see them."""
    return records.readable_by(principal_of(request))


def records_to_list(request: Request, records: Records) -> ClusterSnapshot:
    """Returns the records that a list shows. Raises `no_cluster` if this master has none at all."""
    records.require_any()
    return records_for(request, records)


def seconds_of(request: Request, name: str, default: float = 0.0) -> float:
    """Returns a time that the request names."""
    return number_parameter(request, name, default, low=0.0, high=LONGEST_WAIT)


def page_of(request: Request) -> Page:
    """Returns the part of a list that the request asks for."""
    limit = int(number_parameter(request, "limit", MOST_PAGE, low=1, high=MOST_PAGE))
    return Page(after=request.query_params.get("after", ""), limit=limit if "limit" in request.query_params else None)


class RequestedChange(msgspec.Struct, frozen=True):
    """A request for a change, as its leader has read it."""

    request: Request
    mutation: Mutation | None
    raw: bytes
    body: Any
    """The body as the type of its operation; None: the body is not JSON, or there is none."""

    @property
    def by(self) -> str:
        """Returns the name of the sender."""
        return principal_of(self.request).name


def change(method: str, path: str, answer: Any, role: Role, **more: Any) -> Callable[[F], F]:
    """Declares an operation that changes records, and that can be tried unless `dry_runs=False`."""
    return operation(method, path, answer, role, **{"changes": True, "dry_runs": True, **more})


class Routes(DeclaredRoutes):
    """A master's router. Operations that change records need the attribute `leadership`."""

    leadership: Leadership

    def _made(self, operation: Operation) -> Operation:
        return replace(operation, handler=self._changing(operation)) if operation.changes else operation

    def _changing(self, made: Operation) -> Handler:
        handler: Callable[[RequestedChange], Awaitable[bytes]] = made.handler  # type: ignore[assignment] # see change()

        @functools.wraps(handler)
        async def answer(request: Request) -> Response:
            self.leadership.fence()
            raw = await body_of(request) if made.max_body else b""
            body = None if made.body is None else decode_body(raw or b"{}", made.body)
            asked = RequestedChange(request, await mutation_of(request, raw), raw, body)
            return Response(await handler(asked), media_type="application/json")

        return answer
