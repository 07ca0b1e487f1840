"""Declares the operations of a master's routers, each beside the method that answers it.

Always: a change is refused by a standby before its body is read. Its method gets a
`RequestedChange`, in which everything is read and checked, and returns the answer as JSON.
"""

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.operation import Handler, Operation, body_of
from torrentdist.host.http.web import decode_body
from torrentdist.master.changes.answered_requests import Mutation
from torrentdist.master.http.mutation_requests import mutation_of
from torrentdist.master.leading.leadership import Leadership
from torrentdist.security.principal import Role

F = TypeVar("F", bound=Callable[..., Any])
_DECLARED = "__operations__"


@dataclass(frozen=True, slots=True)
class RequestedChange:
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


def operation(method: str, path: str, answer: Any, role: Role, **more: Any) -> Callable[[F], F]:
    """Declares the operation that a method of `Routes` answers.

    The first sentence of the method's docstring is its summary. `more` are further fields of
    Operation; a text for `max_body` or `target` names an attribute of the router.
    """

    def declared(handler: F) -> F:
        handler.__dict__.setdefault(_DECLARED, []).insert(0, (method, path, answer, role, more))
        return handler

    return declared


def change(method: str, path: str, answer: Any, role: Role, **more: Any) -> Callable[[F], F]:
    """Declares an operation that changes records, and that can be tried unless `dry_runs=False`."""
    return operation(method, path, answer, role, **{"changes": True, "dry_runs": True, **more})


class Routes:
    """A router whose operations are declared at its methods. Those that change records need the
    attribute `leadership`."""

    leadership: Leadership

    def operations(self) -> Iterator[Operation]:
        for name, member in vars(type(self)).items():
            for method, path, answer, role, more in getattr(member, _DECLARED, ()):
                fields = {key: self._resolved(key, value) for key, value in more.items()}
                handler, summary = getattr(self, name), fields.pop("summary", None) or _summary(member)
                made = Operation(method, path, handler, answer, summary, role, **fields)
                yield replace(made, handler=self._changing(made)) if made.changes else made

    def _resolved(self, key: str, value: Any) -> Any:
        return getattr(self, value) if key in ("max_body", "target", "hands_out") and isinstance(value, str) else value

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


def _summary(handler: Callable[..., Any]) -> str:
    """Returns the first sentence of a docstring, as a phrase."""
    first = (inspect.getdoc(handler) or "").partition("\n\n")[0].replace("\n", " ").rstrip(".")
    return first[:1].lower() + first[1:]
