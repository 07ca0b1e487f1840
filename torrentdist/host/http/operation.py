"""One operation of an HTTP API: its route, its handler, and what the API description says about it.

Always: masters and gateways build their routes from operations alone; a handler reads at most
`max_body` bytes.
Never: decide whether a sender may use an operation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from torrentdist.host.http.web import on_http_error, on_torrentdist_error, on_unexpected_error, read_body
from torrentdist.model.errors import TorrentdistError
from torrentdist.security.principal import Role

Handler = Callable[[Request], Awaitable[Response]]
OnError = Callable[[Request, Exception], Awaitable[Response]]

_OPERATION: Final = "torrentdist.operation"
"""The key of the operation in a request's scope."""


@dataclass(frozen=True)
class Operation:
    method: str
    path: str
    handler: Callable[..., Awaitable[Response]]
    answer: Any
    """Type of the JSON answer; None: the answer is not JSON."""
    summary: str
    role: Role
    """The lowest role of a person that may use it, or `host`."""
    body: Any = None
    """Type of the JSON body; None: the body is not JSON, or there is none."""
    max_body: int = 0
    """Largest body in bytes; 0: the operation reads none."""
    changes: bool = False
    """Whether it changes the cluster's records.

    If so, a retry under the same request id gets the first answer."""
    paged: bool = False
    """Whether the answer is a list that `after` and `limit` cut into pages."""

    @property
    def name(self) -> str:
        """The name of the handler."""
        return str(getattr(self.handler, "__name__", ""))


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
    return await read_body(request, operation.max_body)


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
    return Starlette(
        routes=[Route(op.path, _endpoint(op, around(op.handler)), methods=[op.method]) for op in operations],
        exception_handlers={
            TorrentdistError: on_error,
            404: on_http_error,
            405: on_http_error,
            Exception: on_unexpected_error,
        },
    )


def _endpoint(operation: Operation, handler: Handler) -> Handler:
    async def answer(request: Request) -> Response:
        request.scope[_OPERATION] = operation
        return await handler(request)

    return answer
