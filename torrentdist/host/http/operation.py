"""One operation of an HTTP API: its route, its handler, and what the API description says about it.

Always: masters and gateways build their routes from operations alone. Before its handler runs, the
sender's role and pattern are checked; a handler reads at most `max_body` bytes.
Never: decide who may do what; security/authorization.py does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.body_room import BodyRoom
from torrentdist.host.http.web import on_http_error, on_torrentdist_error, on_unexpected_error, read_body
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.security.authorization import ALL_BUNDLES, check_bundles, check_role
from torrentdist.security.principal import Role

Handler = Callable[[Request], Awaitable[Response]]
OnError = Callable[[Request, Exception], Awaitable[Response]]
Target = Callable[[Request], Awaitable[Iterable[BundleId]]]
"""Returns the ids of the bundle that a request is about. The same content may have several."""

_ROOM: Final = "torrentdist.body_room"
"""The key of a function in a request's scope, which waits for room for the request's body."""
_OPERATION: Final = "torrentdist.operation"
"""The key of the operation in a request's scope."""
_BODY: Final = "torrentdist.body"
"""The key of a body that was read before."""


@dataclass(frozen=True)
class Operation:
    method: str
    path: str
    handler: Callable[..., Awaitable[Response]]
    answer: Any
    """Type of the JSON answer; None: the answer is not JSON."""
    summary: str
    role: Role
    """The lowest role of a person that may use it, `anyone`, or `host`."""
    body: Any = None
    """Type of the JSON body; None: the body is not JSON, or there is none."""
    max_body: int = 0
    """Largest body in bytes; 0: the operation reads none."""
    changes: bool = False
    """Whether it changes the cluster's records.

    If so, a retry under the same request id gets the first answer."""
    paged: bool = False
    """Whether the answer is a list that `after` and `limit` cut into pages."""
    target: Target | None = None
    """The bundle that an operation of uploaders and submitters changes or runs."""

    @property
    def name(self) -> str:
        """The name of the handler."""
        return str(getattr(self.handler, "__name__", ""))

    @property
    def request(self) -> str:
        """Its method and path, as people are told of it."""
        return f"{self.method} {self.path}"


class Router(Protocol):
    """A group of operations that share their collaborators."""

    def operations(self) -> Iterable[Operation]: ...


def operations_of(*routers: Router) -> list[Operation]:
    """Returns the operations of all routers, in the order in which their paths are tried."""
    return [operation for router in routers for operation in router.operations()]


async def body_of(request: Request) -> bytes:
    """Returns the body of the request, or raises `too_large` if its operation allows less."""
    operation = request.scope[_OPERATION]
    assert isinstance(operation, Operation)
    if _BODY not in request.scope:
        await request.scope[_ROOM]()
        request.scope[_BODY] = await read_body(request, operation.max_body)
    body: bytes = request.scope[_BODY]
    return body


def unchanged(handler: Handler) -> Handler:
    return handler


def api_app(
    operations: Iterable[Operation],
    *,
    around: Callable[[Handler], Handler] = unchanged,
    on_error: OnError = on_torrentdist_error,
) -> Starlette:
    """Builds the application that answers these operations.

    `around` wraps each handler. `on_error` turns an error of the error table into an answer.
    """
    room = BodyRoom()
    return Starlette(
        routes=[Route(op.path, _endpoint(op, around(op.handler), room), methods=[op.method]) for op in operations],
        exception_handlers={
            TorrentdistError: on_error,
            404: on_http_error,
            405: on_http_error,
            Exception: on_unexpected_error,
        },
    )


def _endpoint(operation: Operation, handler: Handler, room: BodyRoom) -> Handler:
    async def answer(request: Request) -> Response:
        request.scope[_OPERATION] = operation
        principal = principal_of(request)
        check_role(principal, operation.role, operation.request)
        async with contextlib.AsyncExitStack() as taken:
            request.scope[_ROOM] = lambda: taken.enter_async_context(room.taken(request, operation.max_body))
            if operation.target is not None and principal.bundles != ALL_BUNDLES:
                check_bundles(principal, await operation.target(request))
            return await handler(request)

    return answer


def open_prefixes(operations: Iterable[Operation]) -> tuple[str, ...]:
    """Returns how the paths of operations begin that need no proof."""
    return tuple(op.path.partition("{")[0] for op in operations if op.role is Role.ANYONE)
