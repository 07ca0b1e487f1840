"""One HTTP request to one master or supervisor, and what its answer means.

Always holds: an attempt ends by its timeout, whoever is silent; an error of the table arrives as that error; a request
that may have been executed is told apart from one that never left. Must not do: decide whom to ask next.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from torrentdist.http11 import Answer, AnswerTimeout, ConnectError, ConnectTimeout, Http, HttpError, InvalidUrl
from torrentdist.model.configuration.settings import read_secret
from torrentdist.model.errors import TorrentdistError

T = TypeVar("T")

CONNECT_SECS = (0.25, 0.25, 0.25, 0.25, 1.0)
"""A live host takes a connection at once; a dead one behind a firewall never does. On a full link the first packets of
a connection are often lost, and the system would send them again only after 1 s, 2 s, 4 s."""


class Request(msgspec.Struct, frozen=True):
    method: str
    path: str
    params: Mapping[str, str] = {}
    content: bytes | None = None
    headers: Mapping[str, str] = {}
    timeout: float = 5.0
    silence: float = math.inf
    """An answer that takes long may still be required to begin, or a large body to be taken, within this time."""


class Broken(Exception):
    """No answer of a master. `sent`: the request may have arrived, and may have been executed."""

    def __init__(self, detail: str, *, sent: bool) -> None:
        super().__init__(detail)
        self.detail = detail
        self.sent = sent


async def send(http: Http, url: str, request: Request) -> Answer:
    """The answer, whatever its status; Broken without one."""
    silence = min(request.timeout, request.silence)
    try:
        async with asyncio.timeout(request.timeout):
            for connect in CONNECT_SECS[:-1]:
                with contextlib.suppress(ConnectTimeout):
                    return await _attempt(http, url, request, connect, silence)
            return await _attempt(http, url, request, CONNECT_SECS[-1], silence)
    except ConnectError as exc:
        raise Broken(str(exc) or "no connection", sent=False) from exc
    except InvalidUrl as exc:
        raise Broken(f"not a usable URL: {exc}", sent=False) from exc
    except (AnswerTimeout, TimeoutError) as exc:
        raise Broken(f"no answer within {silence:g} s", sent=True) from exc
    except HttpError as exc:
        raise Broken(str(exc) or "the connection broke", sent=True) from exc


async def _attempt(http: Http, url: str, request: Request, connect_secs: float, silence_secs: float) -> Answer:
    return await http.request(
        request.method,
        url + request.path,
        params=request.params,
        content=request.content,
        headers=request.headers,
        connect_secs=connect_secs,
        silence_secs=silence_secs,
    )


def error_in(response: Answer) -> TorrentdistError | None:
    """The error that an answer carries, None for a success; Broken if no process of ours would answer so."""
    if response.status_code < 400:
        return None
    try:
        body = msgspec.json.decode(response.content, type=dict[str, object])
    except msgspec.MsgspecError as exc:
        raise Broken(f"HTTP {response.status_code}", sent=True) from exc
    if "error" not in body:
        raise Broken(f"HTTP {response.status_code}", sent=True)
    return TorrentdistError.from_wire(body)


def expect_known(error: TorrentdistError, request: Request) -> TorrentdistError:
    """The same error; Broken if the process at this URL lacks the request's path, because it is no master."""
    if error.code == "not_found" and error.fields.get("what") == request.path:
        why = "it is no master (perhaps a supervisor's gateway), or one of an older release"
        raise Broken(f"it does not know {request.path}: {why}", sent=False)
    return error


def decode(response: Answer, kind: type[T]) -> T:
    """The answer's body; Broken if something else than a master sits behind that URL."""
    try:
        return msgspec.json.decode(response.content, type=kind)
    except msgspec.MsgspecError as exc:
        raise Broken(f"not a master's answer: {exc}", sent=True) from exc


async def ask(http: Http, url: str, request: Request, kind: type[T]) -> T:
    """Ask a process that has no equals, such as this host's supervisor."""
    response = await send(http, url, request)
    error = error_in(response)
    if error is not None:
        raise error
    return decode(response, kind)


def read_token(token_file: str) -> str:
    """The bearer token, or `secret_invalid`: a file that others can read is refused here as it is by daemons."""
    if not token_file:
        return ""
    token = read_secret(token_file)
    if not token.isascii() or not token.isprintable():
        raise TorrentdistError("secret_invalid", path=token_file, detail="it holds no token")
    return token
