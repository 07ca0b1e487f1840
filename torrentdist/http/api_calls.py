"""One call of the API of a master or supervisor, and what its answer means. Commands and daemons
share it.

Always: a call ends by its timeout. An error of the table arrives as that error. A request that may
have been carried out is told apart from one that was never sent.
Never: decide which master to ask next.
"""

import asyncio
import contextlib
import math
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from torrentdist.http.connection_pool import Http
from torrentdist.http.http_values import (
    MOST_BYTES,
    Answer,
    AnswerTimeout,
    ConnectError,
    ConnectTimeout,
    HttpError,
    InvalidUrl,
    Patience,
)
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.view import decode_json

T = TypeVar("T")

CONNECT_SECS = (0.25, 0.25, 0.25, 0.25, 1.0)
"""Time for each attempt to connect. A live host answers at once, but on a full link the first
packets are often lost, and the system itself would send them again only after 1 s, 2 s and 4 s.
"""


class Request(msgspec.Struct, frozen=True):
    """A call of the API, for any server."""

    method: str
    path: str
    params: Mapping[str, str] = {}
    content: bytes | None = None
    headers: Mapping[str, str] = {}
    timeout: float = 5.0
    """Seconds for the whole call."""
    silence: float = math.inf
    """Seconds that the server may take no bytes and send none."""
    most_bytes: int = MOST_BYTES
    """Largest body of the answer that is accepted."""
    anonymously: bool = False
    """Whether it goes without our token."""


class Broken(Exception):
    """The server gave no answer that a process of ours would give. `sent`: it may have carried out
    the request.
    """

    def __init__(self, detail: str, *, sent: bool) -> None:
        super().__init__(detail)
        self.detail = detail
        self.sent = sent


async def send(http: Http, url: str, request: Request) -> Answer:
    """Returns the answer, whatever its status. Broken: there is none."""
    silence = min(request.timeout, request.silence)
    try:
        async with asyncio.timeout(request.timeout):
            for connect in CONNECT_SECS[:-1]:
                with contextlib.suppress(ConnectTimeout):
                    return await _attempt(http, url, request, Patience(connect, silence))
            return await _attempt(http, url, request, Patience(CONNECT_SECS[-1], silence))
    except ConnectError as exc:
        raise Broken(str(exc) or "no connection", sent=False) from exc
    except InvalidUrl as exc:
        raise Broken(f"not a usable URL: {exc}", sent=False) from exc
    except (AnswerTimeout, TimeoutError) as exc:
        raise Broken(f"no answer within {silence:g} s", sent=True) from exc
    except HttpError as exc:
        raise Broken(str(exc) or "the connection broke", sent=True) from exc


async def _attempt(http: Http, url: str, request: Request, patience: Patience) -> Answer:
    return await http.request(
        request.method,
        url + request.path,
        params=request.params,
        content=request.content,
        headers=request.headers,
        patience=patience,
        most_bytes=request.most_bytes,
        anonymously=request.anonymously,
    )


def error_in(response: Answer) -> TorrentdistError | None:
    """Returns the error that an answer carries; None if it reports success. Broken: no process of
    ours answers so.
    """
    if response.status_code < 400:
        return None
    try:
        body = decode_json(response.content, dict[str, object])
    except msgspec.MsgspecError as exc:
        raise Broken(f"HTTP {response.status_code}", sent=True) from exc
    if "error" not in body:
        raise Broken(f"HTTP {response.status_code}", sent=True)
    return TorrentdistError.from_wire(body)


def expect_known(error: TorrentdistError, request: Request) -> TorrentdistError:
    """Returns the same error. Broken: the server does not know the request's path, so it is no
    master.
    """
    if error.code == "not_found" and error.fields.get("what") == request.path:
        why = "it is no master (perhaps a supervisor's gateway), or one of an older release"
        raise Broken(f"it does not know {request.path}: {why}", sent=False)
    return error


def decode(response: Answer, kind: type[T]) -> T:
    """Returns the answer's body as a value. Broken: it is not of that kind, so the server is no
    master.
    """
    try:
        return decode_json(response.content, kind)
    except msgspec.MsgspecError as exc:
        raise Broken(f"not a master's answer: {exc}", sent=True) from exc


def result_of(response: Answer, kind: type[T]) -> T:
    """Returns the answer's body as a value, or raises the error that the answer carries."""
    error = error_in(response)
    if error is not None:
        raise error
    return decode(response, kind)


async def ask(http: Http, url: str, request: Request, kind: type[T]) -> T:
    """Asks one process that no other can stand in for, such as this host's supervisor."""
    return result_of(await send(http, url, request), kind)
