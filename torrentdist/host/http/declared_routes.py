"""Declares the operations of a router, each beside the method that answers it.

Always: a path is tried in the order in which the methods stand in their class.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from torrentdist.host.http.operation import Operation
from torrentdist.security.authorization import Role

F = TypeVar("F", bound=Callable[..., Any])
_DECLARED = "__operations__"


def operation(method: str, path: str, answer: Any, role: Role, **more: Any) -> Callable[[F], F]:
    """Declares the operation that a method of a router answers.

    The first sentence of the method's docstring is its summary. `more` are further fields of
    Operation; a text for `max_body`, `target` or `hands_out` names an attribute of the router.
    """

    def declared(handler: F) -> F:
        handler.__dict__.setdefault(_DECLARED, []).insert(0, (method, path, answer, role, more))
        return handler

    return declared


class DeclaredRoutes:
    """A router whose operations are declared at its methods."""

    def operations(self) -> Iterator[Operation]:
        for name, member in vars(type(self)).items():
            for method, path, answer, role, more in getattr(member, _DECLARED, ()):
                fields = {key: self._resolved(key, value) for key, value in more.items()}
                handler, summary = getattr(self, name), fields.pop("summary", None) or _summary(member)
                yield self._made(Operation(method, path, handler, answer, summary, role, **fields))

    def _made(self, operation: Operation) -> Operation:
        """Returns an operation as the router offers it."""
        return operation

    def _resolved(self, key: str, value: Any) -> Any:
        return getattr(self, value) if key in ("max_body", "target", "hands_out") and isinstance(value, str) else value


def _summary(handler: Callable[..., Any]) -> str:
    """Returns the first sentence of a docstring, as a phrase."""
    first = (inspect.getdoc(handler) or "").partition("\n\n")[0].replace("\n", " ").rstrip(".")
    return first[:1].lower() + first[1:]
