"""Turns a request into the bytes that begin it, and its URL into the server to connect to.

Pure: no I/O. Always: a URL or header that HTTP does not allow is an error before anything is sent.
"""

from typing import Final, NamedTuple
from urllib.parse import quote, urlsplit

from torrentdist.http.http_errors import HttpError, InvalidUrl
from torrentdist.http.http_values import SentRequest

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
