"""The HTTP shell of both daemons: bodies, JSON, errors, and answers that are cut short.

Always: a failure leaves as an error of the table, with its status.
"""

import asyncio
import gzip
import math
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from torrentdist.host.http.body_room import SMALL_BYTES, Grow
from torrentdist.log import get_logger
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.view import decode_json

log = get_logger()

V = TypeVar("V")
SLOW_SECS = 30.0
"""Time for a large body to reach LEAST_RATE."""
LEAST_RATE = 64 * 1024
"""Bytes per second of a large body, on average after SLOW_SECS."""
COMPRESSED_BYTES: Final = 2048
LONGEST_POLL: Final = 2.0
"""Seconds after which a long poll is answered in any case. Silence means a frozen daemon to a
client."""
MOST_POLL: Final = 30.0
"""The most seconds that a client may ask for."""
PRINCIPAL: Final = "torrentdist.principal"
"""The key of a request's sender in its scope. authentication.py sets it."""
PEER: Final = "torrentdist.peer"
"""The key of the PeerCertificate of a connection's other end in the `state` of each scope.
secure_port.py sets it, and only where TLS has verified a certificate.
"""


class AnyPath(PathConvertor):
    """A path parameter that may contain line breaks, as file names may; Starlette's own `path`
    stops at them."""

    regex = r"[\s\S]*"


register_url_convertor("any_path", AnyPath())
_JSON = msgspec.json.Encoder()


def json_response(value: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(_JSON.encode(value), status_code=status, media_type="application/json", headers=headers)


def compact_response(request: Request, value: Any) -> Response:
    """Returns JSON that is compressed if its sender reads that. For an answer that is long and
    often read."""
    body, headers = _JSON.encode(value), {"vary": "accept-encoding"}
    if len(body) >= COMPRESSED_BYTES and "gzip" in request.headers.get("accept-encoding", ""):
        body, headers["content-encoding"] = gzip.compress(body, compresslevel=1), "gzip"
    return Response(body, media_type="application/json", headers=headers)


class StreamedAnswer(StreamingResponse):
    """An answer whose body is sent as it comes. It ends when its client is gone.

    Starlette's own way would load anyio's backend, which takes a megabyte.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self.stream_response(send))
        gone = asyncio.ensure_future(self.listen_for_disconnect(receive))
        try:
            await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sending.cancel()
            gone.cancel()
            await asyncio.gather(sending, gone, return_exceptions=True)
        if not sending.cancelled():
            sending.result()


async def on_torrentdist_error(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, TorrentdistError)
    return json_response(exc.to_wire(), status=exc.http_status)


async def on_unexpected_error(request: Request, exc: Exception) -> Response:
    if isinstance(exc, RuntimeError) and isinstance(exc.__cause__, TorrentdistError):
        return await on_torrentdist_error(request, exc.__cause__)  # its answer had begun, and CutShort tells of it
    log.error("request failed", path=request.url.path, sender=str(request.scope.get(PRINCIPAL)), exc_info=exc)
    error = TorrentdistError("internal", detail=f"{type(exc).__name__} in {request.url.path}")
    return json_response(error.to_wire(), status=error.http_status)


async def on_http_error(request: Request, exc: Exception) -> Response:
    status = getattr(exc, "status_code", 500)
    if status == 404:
        error = TorrentdistError("not_found", what=request.url.path)
        return json_response(error.to_wire(), status=status)
    allow = {"allow": ", ".join(sorted(_methods(request)))} if status == 405 else {}
    if allow and request.method == "OPTIONS":
        return Response(status_code=204, headers=allow)
    error = TorrentdistError("invalid_request", detail=f"{request.method} {request.url.path}: {exc}")
    return json_response(error.to_wire(), status=status, headers=allow)


def _methods(request: Request) -> set[str]:
    """The methods of all routes that match this path."""
    routes = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    return {"OPTIONS"}.union(*(getattr(route, "methods", None) or () for route in routes))


def announced_size(request: Request) -> int:
    """Returns the size of the body, as its sender says; 0 if it does not say any."""
    text = request.headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdigit() else 0


async def read_body(request: Request, limit: int, grow: Grow) -> bytes:
    """Returns the whole body. Raises `too_large` as soon as more than `limit` bytes are announced
    or have come. `grow` waits for room for that size. A large body takes room that others wait
    for, so it is refused once it is slower than LEAST_RATE.
    """
    declared = announced_size(request)
    if declared > limit:
        raise TorrentdistError("too_large", what="the request, in bytes,", size=declared, limit=limit)
    parts: list[bytes] = []
    size = 0
    latest = asyncio.get_running_loop().time() + SLOW_SECS
    try:
        async with asyncio.timeout_at(latest if declared > SMALL_BYTES else None) as deadline:
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise TorrentdistError("too_large", what="the request, in bytes,", size=size, limit=limit)
                await grow(size)
                parts.append(part)
                if max(size, declared) > SMALL_BYTES:
                    deadline.reschedule(latest + size / LEAST_RATE)
    except ClientDisconnect:  # nobody reads the answer
        raise TorrentdistError("interrupted") from None
    except TimeoutError:
        detail = f"its body comes slower than {LEAST_RATE // 1024} KiB a second"
        raise TorrentdistError("invalid_request", detail=detail) from None
    return b"".join(parts)


def decode_body(body: bytes, kind: type[V]) -> V:
    try:
        return decode_json(body, kind)
    except msgspec.MsgspecError as exc:
        raise TorrentdistError("invalid_request", detail=str(exc)) from exc


def number_parameter(request: Request, name: str, default: float, *, low: float, high: float) -> float:
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise TorrentdistError("invalid_request", detail=f"{name}={text!r} is not a number from {low:g} to {high:g}")
    return value


def poll_secs(request: Request, name: str, default: float = 0.0) -> float:
    """Returns how long a long poll lasts at most: as long as the request asks for, and at most
    LONGEST_POLL. Older clients ask for more."""
    return min(LONGEST_POLL, number_parameter(request, name, default, low=0.0, high=MOST_POLL))


def asks_since(request: Request) -> float:
    """Returns when (monotonic) a program began to ask. Each of its polls says in `?asked=` how many
    seconds ago that was. Older clients do not say it, and are told errors of any age."""
    return time.monotonic() - number_parameter(request, "asked", math.inf, low=0.0, high=math.inf)


def flag_parameter(request: Request, name: str) -> bool:
    """Returns whether a parameter is `true`; one that is absent is `false`."""
    text = request.query_params.get(name, "false")
    if text not in ("true", "false"):
        raise TorrentdistError("invalid_request", detail=f"{name}={text!r} is neither true nor false")
    return text == "true"


class CutShort:
    """Cuts off an answer that fails after it has begun, so that no client takes the part for the
    whole."""

    def __init__(self, app: ASGIApp, cut: Callable[[tuple[str, int]], None]) -> None:
        self._app = app
        self._cut = cut

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        unfinished = False

        async def watched(message: Message) -> None:
            nonlocal unfinished
            unfinished = message["type"] == "http.response.start" or bool(message.get("more_body"))
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as exc:
            if not unfinished:
                raise
            log.warning("an answer was cut off", path=scope["path"], reason=str(exc.__cause__ or exc))
            self._cut(tuple(scope["client"]))
            await asyncio.sleep(0)  # the server hears of it before we return
