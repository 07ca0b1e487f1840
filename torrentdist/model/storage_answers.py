"""Bounds and reads the answers of storage whose fsspec client is built on `requests`, as that of
WebHDFS is.

Always: no request waits longer than told for the next bytes. A refusal is an error, never content:
fsspec's client of WebHDFS takes what a DataNode answers for bytes of the file. The reason that a
server gives in the body of a refusal reaches the user: DataNodes refuse with a bare 403 otherwise.
A NameNode that was restarted costs no upload and no download.
Never: import `requests`, which only some storages need.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

_LONGEST_REASON: Final = 500
_OLD_CONNECTION: Final = ("End of File Exception", "Broken pipe", "Connection reset")
_MOST_OLD_CONNECTIONS: Final = 20

Result = TypeVar("Result")


def bound_requests(filesystem: Any, secs: float) -> None:
    """Gives all requests of a synchronous file system a timeout, if it has a session of
    `requests`, and makes errors of refused reads. fsspec's client of WebHDFS does neither."""
    session: Any = getattr(filesystem, "session", None)
    if session is not None and hasattr(session, "request"):
        session.request = partial(session.request, timeout=secs)
        session.get = partial(_checked, session.get)


def _checked(get: Callable[..., Any], *args: Any, **options: Any) -> Any:
    answer = get(*args, **options)
    answer.raise_for_status()
    return answer


def reason_of(failure: Exception) -> str:
    """Returns what failed, with the reason that the server gave."""
    said = f"{type(failure).__name__}: {failure}"
    try:
        answer = failure.response.json()["RemoteException"]  # type: ignore[attr-defined]
        return f"{answer['exception']}: {str(answer['message'])[:_LONGEST_REASON]} ({said})"
    except (AttributeError, ValueError, KeyError, TypeError):
        return said


def past_old_connections(operation: Callable[[], Result]) -> Result:
    """Returns what the operation returns. Repeats it while a DataNode fails because its connection
    to the NameNode is old, so the operation must be one that may be done twice.

    A DataNode fails one request for each connection from before a restart of the NameNode, and the
    next request may go to another DataNode.
    """
    for _ in range(_MOST_OLD_CONNECTIONS):
        try:
            return operation()
        except Exception as exc:
            reason = reason_of(exc)
            if not any(sign in reason for sign in _OLD_CONNECTION):
                raise
    return operation()
