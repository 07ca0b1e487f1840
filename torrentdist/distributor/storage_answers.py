"""Bounds and reads the answers of storage whose fsspec client is built on `requests`, as that of
WebHDFS is.

Always: no request waits longer than told for the next bytes. A refusal is an error, never content:
fsspec's client of WebHDFS takes what a DataNode answers for bytes of the file. The reason that a
server gives in the body of a refusal reaches the user: DataNodes refuse with a bare 403 otherwise.
Never: import `requests`, which only some storages need.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

_LONGEST_REASON = 500


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
