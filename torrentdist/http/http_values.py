"""A request, an answer and their headers as values, the bytes that begin a request, and the ways
in which it can end without an answer. Each of these errors tells how much of the request may
have been carried out, because that decides whether it may be sent again.

Always: a URL or header that HTTP does not allow is an error before anything is sent.
Never: I/O.
"""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple
from urllib.parse import quote, urlsplit

import msgspec

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
MOST_BYTES: Final = 64 * 1024 * 1024
"""Largest body of an answer that callers accept unless they say otherwise: that of the largest
metafile.
"""


class Headers(Mapping[str, str]):
    """Values by name. Upper and lower case of a name don't matter."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in given.items()}

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class SentRequest(msgspec.Struct, frozen=True):
    """A complete request, and the most bytes that its answer's body may have."""

    method: str
    url: str
    headers: Headers
    content: bytes | None = None
    most_bytes: int = MOST_BYTES


class Patience(NamedTuple):
    """How long a client waits for a server."""

    connect_secs: float
    silence_secs: float
    """Seconds that the server may take no bytes and send none."""


class Answer(msgspec.Struct, frozen=True):
    """A complete answer, whatever its status."""

    status_code: int
    headers: Headers = Headers({})
    content: bytes = b""
    url: str = ""
    """The URL of the request."""
    stream: asyncio.StreamWriter | None = None
    """The connection over which the answer came. It may be closed."""

    @property
    def is_redirect(self) -> bool:
        return self.status_code in _REDIRECTS and "location" in self.headers


class HttpError(Exception):
    """There is no answer, or none that is sound HTTP. The request may have been carried out."""


class InvalidUrl(HttpError):
    """The URL or a header cannot be used. Nothing was sent."""


class ConnectError(HttpError):
    """There is no connection. Nothing was sent."""


class NotTrusted(ConnectError):
    """The server cannot prove what it is, or must not get what the request carries. Nothing was
    sent.
    """


class ConnectTimeout(ConnectError):
    """The connection was not made in time. Nothing was sent."""


class AnswerTimeout(HttpError):
    """The other side was silent for too long. The request may have been carried out."""


class AnswerTooLarge(HttpError):
    """The answer has more bytes than the caller accepts. The request may have been carried out."""


WRITE_BYTES: Final = 64 * 1024
"""Number of bytes written at once. A longer body is sent when the server asks for it, so that it
can refuse without reading it.
"""
EXPECTS: Final = b"\r\nexpect: 100-continue\r\n"
_PORTS: Final = {"http": 80, "https": 443}
_UNQUOTED: Final = "/%:@!$&'()*+,;=~?-._"


class Origin(NamedTuple):
    """A server: all requests to the same origin share connections."""

    scheme: str
    host: str
    port: int


def origin_of(url: str) -> Origin:
    """Returns the server that a URL names."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        host = host if host.isascii() else host.encode("idna").decode("ascii")
        port = parts.port
    except ValueError as exc:
        raise InvalidUrl(str(exc)) from exc
    if parts.scheme not in _PORTS:
        raise InvalidUrl(f"{parts.scheme or 'no'} protocol")
    if not host:
        raise InvalidUrl(f"{url!r} names no host")
    if parts.username is not None:
        raise InvalidUrl("a user's name in it; whoever asks is known by its token")
    return Origin(parts.scheme, host, port or _PORTS[parts.scheme])


def head_of(asked: SentRequest, origin: Origin) -> bytes:
    """Returns the request line and the headers. `origin` is that of the request's URL."""
    parts = urlsplit(asked.url)
    target = quote(f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}", safe=_UNQUOTED)
    named = f"[{origin.host}]" if ":" in origin.host else origin.host
    headers = {"host": named if parts.port is None else f"{named}:{parts.port}", **asked.headers}
    if asked.content is not None or asked.method in ("POST", "PUT"):
        headers["content-length"] = str(len(asked.content or b""))
        if asked.content is not None and len(asked.content) > WRITE_BYTES:
            headers["expect"] = "100-continue"
    lines = [f"{asked.method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    if any(sign in line for line in lines for sign in "\r\n\0"):
        raise HttpError("a header with a line break")
    try:
        return "\r\n".join([*lines, "\r\n"]).encode("latin-1")
    except UnicodeEncodeError as exc:
        raise HttpError(f"a header that HTTP does not know: {exc}") from exc
