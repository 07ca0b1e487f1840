"""One operation of an HTTP API: its route, its handler, and what the API description says about it.

Always: masters and gateways build their routes from operations alone. Before its handler runs, the
sender's role and pattern are checked; a handler reads at most `max_body` bytes. One sender's heavy
work leaves a thread to that of others.
Never: decide who may do what; security/authorization.py does.
"""

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Protocol

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.body_room import BodyRoom
from torrentdist.host.http.web import (
    announced_size,
    on_http_error,
    on_torrentdist_error,
    on_unexpected_error,
    read_body,
)
from torrentdist.host.process.heavy_work import AT_ONCE
from torrentdist.host.process.shared_slots import SharedSlots
from torrentdist.host.telemetry.audit_log import Audit
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.events import AccessAudited
from torrentdist.model.ids import BundleId
from torrentdist.security.authorization import Role, check_bundles, check_own, check_role

Handler = Callable[[Request], Awaitable[Response]]
OnError = Callable[[Request, Exception], Awaitable[Response]]
Target = Callable[[Request], Awaitable[Iterable[BundleId]]]
"""Returns the ids of the bundle that a request is about. The same content may have several."""

FILE: Final = (200, 206, 304)
"""Statuses of an operation that answers with a file."""
_ROOM: Final = "torrentdist.body_room"
"""The key of a function in a request's scope, which begins to take room for the request's body."""
_HEAVY: Final = "torrentdist.heavy_slots"
"""The key of the slots in a request's scope that senders share for heavy work."""
DRY_RUN: Final = "torrentdist.dry_run"
"""The key that a request has in its scope if it asks what a change would do."""
_OPERATION: Final = "torrentdist.operation"
"""The key of the operation in a request's scope."""
OK: Final = "ok"
CUT_OFF: Final = "interrupted"
"""The result of a request that the end of its daemon cut off: it may have changed something."""
REFUSALS: Final = frozenset({"role_needed", "hosts_only", "pattern_mismatch", "forbidden", "not_for_host"})
"""Codes of requests that are refused for what their sender is."""
ELSEWHERE: Final = frozenset({"not_leader", "no_leader", "leadership_lost", "not_ready", "closing"})
"""Codes of requests that the client repeats at another master, or a little later."""
LONGEST_TARGET: Final = 256
_BUNDLES: Final = "torrentdist.bundles"
"""The key of the bundles that a request is about."""
_TARGET: Final = "torrentdist.target"
"""Key in a request's scope: its target, if neither its path nor its bundles name the target."""
_BODY: Final = "torrentdist.body"
"""The key of a body that was read before."""


class Operation(msgspec.Struct, frozen=True):
    method: str
    path: str
    handler: Callable[..., Awaitable[Response]]
    answer: Any
    """Type of the JSON answer; None: the answer is not JSON."""
    summary: str
    role: Role
    """The lowest role of a person that may use it, `anyone`, `job`, or `host`."""
    body: Any = None
    """Type of the JSON body; None: the body is not JSON, or there is none."""
    max_body: int = 0
    """Largest body in bytes; 0: the operation reads none."""
    changes: bool = False
    """Whether it changes the cluster's records.

    If so, a retry under the same request id gets the first answer."""
    changes_host: bool = False
    """Whether it changes what this host alone has. The audit tells of it too."""
    paged: bool = False
    """Whether the answer is a list that `after` and `limit` cut into pages."""
    statuses: tuple[int, ...] = (200,)
    """Statuses of its answers that are no errors of the table."""
    foreign_errors: bool = False
    """Whether its errors have the form of another protocol than ours."""
    dry_runs: bool = False
    """Whether it can also be tried: then its handler checks everything and changes nothing."""
    target: Target | None = None
    """The bundle that an operation of uploaders and submitters changes or runs."""
    hands_out: Target | None = None
    """The bundle whose content, or what leads to it, the answer holds. A supervisor gets that of
    the bundles that it may have."""

    @property
    def name(self) -> str:
        """The name of the handler."""
        return str(getattr(self.handler, "__name__", ""))

    @property
    def request(self) -> str:
        """Returns its method and path, for messages."""
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
        request.scope[_BODY] = await read_body(request, operation.max_body, await request.scope[_ROOM]())
    body: bytes = request.scope[_BODY]
    return body


def heavy_turn(request: Request) -> contextlib.AbstractAsyncContextManager[None]:
    """Waits until it is the sender's turn for work in heavy threads, and keeps it. Take it for each
    piece of work whose size a sender chooses, and not while anything else is awaited."""
    slots = request.scope[_HEAVY]
    assert isinstance(slots, SharedSlots)
    return slots.taken(sharer_of(request))


def standing_for(
    request: Request, operation: Operation, *, query: str, headers: Mapping[str, str], body: bytes
) -> Request:
    """Returns the request for another operation that this request stands for. Its sender and the
    parameters of its path stay, and its sender's rights were checked."""
    given = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    kept = [(name, value) for name, value in request.scope["headers"] if name != b"content-type"]
    changed = {"method": operation.method, "query_string": query.encode(), "headers": [*kept, *given]}
    return Request({**request.scope, **changed, _OPERATION: operation, _BODY: body})


def is_dry_run(request: Request) -> bool:
    """Whether the sender wants to know what a change would do, and not to make it."""
    return DRY_RUN in request.scope


def about(request: Request, target: str) -> None:
    """Names what a request is about where its path does not, for the audit."""
    request.scope[_TARGET] = target


def handler_of(operation: Operation) -> Handler:
    return operation.handler


def api_app(
    operations: Iterable[Operation],
    *,
    around: Callable[[Operation], Handler] = handler_of,
    on_error: OnError = on_torrentdist_error,
    audit: Audit | None = None,
) -> Starlette:
    """Builds the application that answers these operations.

    `around` returns the wrapped handler of an operation. `on_error` turns an error of the error
    table into an answer.
    """
    room, heavy = BodyRoom(), SharedSlots(AT_ONCE, AT_ONCE // 2)
    return Starlette(
        routes=[_route(op, around(op), room, heavy, audit) for op in operations],
        exception_handlers={
            TorrentdistError: on_error,
            404: on_http_error,
            405: on_http_error,
            Exception: on_unexpected_error,
        },
    )


def _route(operation: Operation, handler: Handler, room: BodyRoom, heavy: SharedSlots, audit: Audit | None) -> Route:
    answer = _checked(operation, handler, room, heavy)
    endpoint = answer if audit is None else _audited(operation, answer, audit)
    return Route(operation.path, endpoint, methods=[operation.method])


def _checked(operation: Operation, handler: Handler, room: BodyRoom, heavy: SharedSlots) -> Handler:
    """Checks role and pattern before the handler runs."""

    async def answer(request: Request) -> Response:
        request.scope[_OPERATION] = operation
        request.scope[_HEAVY] = heavy
        if is_dry_run(request) and not operation.dry_runs:
            raise TorrentdistError("not_found", what=f"a dry run of {operation.request}")
        principal = principal_of(request)
        check_role(principal, operation.role, operation.request)
        check_own(principal, request.path_params)
        async with contextlib.AsyncExitStack() as taken:
            sender = sharer_of(request)
            announced = min(announced_size(request), operation.max_body)
            request.scope[_ROOM] = lambda: taken.enter_async_context(room.taken(sender, announced))
            if operation.target is not None:
                request.scope[_BUNDLES] = bundles = sorted(await operation.target(request))
                check_bundles(principal, bundles)
            return await handler(request)

    return answer


def sharer_of(request: Request) -> str:
    """Returns whose share of the room a request takes. Senders that share one name have a share for
    each address. Anybody else has one, from however many addresses its requests come."""
    sender = principal_of(request)
    return f"{sender.name}@{request.client.host}" if sender.has_shared_name and request.client else sender.name


def _audited(operation: Operation, handler: Handler, audit: Audit) -> Handler:
    """Tells the audit of each change and of each refusal."""

    async def answer(request: Request) -> Response:
        result = CUT_OFF
        try:
            response = await handler(request)
            result = OK
            return response
        except TorrentdistError as error:
            result = error.code
            raise
        except Exception:
            result = "internal"
            raise
        finally:
            _tell(audit, request, operation, result)

    return answer


def _tell(audit: Audit, request: Request, operation: Operation, result: str) -> None:
    is_change = operation.changes or operation.changes_host
    if result in REFUSALS or (is_change and result in ELSEWHERE):
        audit.refused(_fact(request, operation, result))
    elif is_change and not is_dry_run(request):
        audit.changed(_fact(request, operation, result))


def _fact(request: Request, operation: Operation, result: str) -> AccessAudited:
    sender, bundles = principal_of(request), request.scope.get(_BUNDLES, ())
    named = str(request.scope.get(_TARGET, "")) or ",".join(map(str, request.path_params.values())) or ",".join(bundles)
    return AccessAudited(
        who=sender.name,
        sender_role=sender.role,
        how=sender.how,
        operation=operation.request,
        target=named[:LONGEST_TARGET],
        bundle=bundles[0] if bundles else str(request.path_params.get("id", ""))[:LONGEST_TARGET],
        source=request.client.host if request.client else "",
        result=result,
    )


def open_prefixes(operations: Iterable[Operation]) -> tuple[str, ...]:
    """Returns how the paths of operations begin that need no proof."""
    return tuple(op.path.partition("{")[0] for op in operations if op.role is Role.ANYONE)
