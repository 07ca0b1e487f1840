"""HTTP/1.1 on asyncio's own streams: how commands and daemons ask masters and supervisors, and nothing more.

Always holds: a connection is used again only when its last answer was read to the end; whoever gives up a request ends
the connection; every failure is an HttpError. Must not do: send a request twice, since the first may have been carried
out; import what a command that starts has to wait for.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
import zlib
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Final, NamedTuple, Self
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from torrentdist.model.wording import os_sentence

IDLE_SECS: Final = 60.0
"""Less than our servers keep an idle connection."""
MOST_IDLE: Final = 50
SECOND_ADDRESS_SECS: Final = 0.1
"""Of a name with several addresses the next one is tried after so long too."""
DEFAULT_SECS: Final = 5.0
READ_BYTES: Final = 256 * 1024
"""More than any head of an answer has."""
WRITE_BYTES: Final = 64 * 1024
_ADDRESS: Final = re.compile(r"[0-9.]+|.*:.*")
"""One, so asyncio need not race for it: its race forgets the socket of whoever is cancelled as it is made."""
_PORTS: Final = {"http": 80, "https": 443}
_AS_IT_IS: Final = "/%:@!$&'()*+,;=~?-._"
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])(?: .*)?")
_LENGTH: Final = re.compile(r"[0-9]{1,15}")
_SIZE: Final = re.compile(rb"[0-9A-Fa-f]{1,15}")
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


class HttpError(Exception):
    """There is no answer, or none that is HTTP."""


class InvalidUrl(HttpError):
    """Nobody was asked."""


class ConnectError(HttpError):
    """Nothing was sent."""


class ConnectTimeout(ConnectError):
    pass


class AnswerTimeout(HttpError):
    """It may have been sent, and may have been carried out."""


class Headers(Mapping[str, str]):
    """By name, in whatever case."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in given.items()}

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class SentRequest(msgspec.Struct, frozen=True):
    """A request, with all that goes with it."""

    method: str
    url: str
    headers: Headers
    content: bytes | None = None


class Answer(msgspec.Struct, frozen=True):
    """Whatever its status."""

    status_code: int
    headers: Headers = Headers({})
    content: bytes = b""
    url: str = ""
    stream: asyncio.StreamWriter | None = None
    """Of the connection that it came over."""

    @property
    def is_redirect(self) -> bool:
        return self.status_code in _REDIRECTS and "location" in self.headers


class Origin(NamedTuple):
    scheme: str
    host: str
    port: int


class Http:
    """`headers` go with every request. `silence_secs`: how long the other side may take nothing, and say nothing."""

    def __init__(
        self,
        *,
        headers: Mapping[str, str] | None = None,
        connect_secs: float = DEFAULT_SECS,
        silence_secs: float = DEFAULT_SECS,
    ) -> None:
        self.headers = {"User-Agent": "torrentdist", "Accept-Encoding": "gzip", **(headers or {})}
        self._connect_secs = connect_secs
        self._silence_secs = silence_secs
        self._secure: ssl.SSLContext | None = None
        self._idle: dict[Origin, list[_Connection]] = {}
        self._open: set[_Connection] = set()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        self._closed = True
        self._idle.clear()
        for connection in list(self._open):
            self._end(connection)
        await asyncio.sleep(0)  # the loop may be closed after this, and would leave them open

    async def get(self, url: str, *, params: Mapping[str, str] | None = None) -> Answer:
        return await self.request("GET", url, params=params)

    async def post(self, url: str, *, content: bytes = b"", headers: Mapping[str, str] | None = None) -> Answer:
        return await self.request("POST", url, content=content, headers=headers)

    async def request(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, str] | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        connect_secs: float | None = None,
        silence_secs: float | None = None,
    ) -> Answer:
        if params:
            url += f"{'&' if '?' in url else '?'}{urlencode(params, quote_via=quote)}"
        asked = SentRequest(method, url, Headers({**Headers(self.headers), **Headers(headers or {})}), content)
        connect_secs = self._connect_secs if connect_secs is None else connect_secs
        silence_secs = self._silence_secs if silence_secs is None else silence_secs
        return await self.exchange(asked, connect_secs, silence_secs)

    async def exchange(self, asked: SentRequest, connect_secs: float, silence_secs: float) -> Answer:
        origin, head = _head_of(asked)
        connection = self._reuse(origin) or await self._connect(origin, connect_secs)
        try:
            if self._closed:
                raise ConnectError("this client is closed")
            await connection.send(head, asked.content or b"", silence_secs)
            answer = await connection.answer(asked, silence_secs)
        except BaseException:
            self._end(connection)
            raise
        self._put_back(origin, connection)
        return answer

    def _put_back(self, origin: Origin, connection: _Connection) -> None:
        """For the next request; those that their servers have ended meanwhile go, also of servers never asked again."""
        for known, idle in list(self._idle.items()):
            for gone in [other for other in idle if not other.is_usable()]:
                idle.remove(gone)
                self._end(gone)
            if not idle:
                del self._idle[known]
        idle = self._idle.setdefault(origin, [])
        if connection.is_over and len(idle) < MOST_IDLE and connection in self._open:
            connection.used_at = time.monotonic()
            idle.append(connection)
        else:
            self._end(connection)

    def _reuse(self, origin: Origin) -> _Connection | None:
        idle = self._idle.get(origin, [])
        while idle:
            connection = idle.pop()
            if connection.is_usable():
                return connection
            self._end(connection)
        return None

    async def _connect(self, origin: Origin, secs: float) -> _Connection:
        secure = None
        if origin.scheme == "https":
            self._secure = secure = self._secure or ssl.create_default_context()
        try:
            async with asyncio.timeout(secs):
                reader, writer = await asyncio.open_connection(
                    origin.host,
                    origin.port,
                    limit=READ_BYTES,
                    ssl=secure,
                    server_hostname=origin.host if secure else None,
                    happy_eyeballs_delay=None if _ADDRESS.fullmatch(origin.host) else SECOND_ADDRESS_SECS,
                )
        except TimeoutError as exc:
            raise ConnectTimeout(f"no connection to {origin.host}:{origin.port} in time") from exc
        except (OSError, UnicodeError) as exc:
            raise ConnectError(os_sentence(exc)) from exc
        connection = _Connection(reader, writer)
        self._open.add(connection)
        return connection

    def _end(self, connection: _Connection) -> None:
        self._open.discard(connection)
        connection.writer.transport.abort()


class _Connection:
    """One request, then its answer, then maybe the next ones."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.used_at = 0.0
        self.is_over = False
        """Whether request and answer are complete and the next ones may come."""
        self._reader = reader

    def is_usable(self) -> bool:
        fresh = time.monotonic() - self.used_at < IDLE_SECS
        rest = self._reader._buffer  # type: ignore[attr-defined]  # said by itself: it is no answer to anything
        return fresh and not rest and not self._reader.at_eof() and not self.writer.is_closing()

    async def send(self, head: bytes, content: bytes, secs: float) -> None:
        """A server that wants no more of it may have said why: then that is what counts."""
        self.is_over = False
        try:
            self.writer.write(head + content[:WRITE_BYTES])
            await self._taken(secs)
            for start in range(WRITE_BYTES, len(content), WRITE_BYTES):
                self.writer.write(memoryview(content)[start : start + WRITE_BYTES])
                await self._taken(secs)
        except OSError:
            return
        self.is_over = True

    async def _taken(self, secs: float) -> None:
        try:
            async with asyncio.timeout(secs):
                await self.writer.drain()
        except TimeoutError as exc:
            raise AnswerTimeout("nothing was taken in time") from exc

    async def answer(self, asked: SentRequest, secs: float) -> Answer:
        try:
            status, headers, lasting = _read_head(await self._until(b"\r\n\r\n", secs))
            while status < 200:
                status, headers, lasting = _read_head(await self._until(b"\r\n\r\n", secs))
            self.is_over = self.is_over and lasting
            content = b"" if asked.method == "HEAD" or status in (204, 304) else await self._body(headers, secs)
        except TimeoutError as exc:
            raise AnswerTimeout("nothing came in time") from exc
        except asyncio.IncompleteReadError as exc:
            cut = "the answer was cut off" if exc.partial else "the connection ended without an answer"
            raise HttpError(cut) from exc
        except asyncio.LimitOverrunError as exc:
            raise HttpError("this is no HTTP: its head has no end") from exc
        except OSError as exc:
            raise HttpError(os_sentence(exc) or "the connection broke") from exc
        large = len(content) > READ_BYTES
        whole = await asyncio.to_thread(_unpacked, content, headers) if large else _unpacked(content, headers)
        return Answer(status, headers, whole, asked.url, self.writer)

    async def _body(self, headers: Headers, secs: float) -> bytes:
        if coding := headers.get("transfer-encoding"):
            if coding.lower() != "chunked":
                raise HttpError(f"unknown transfer encoding {coding}")
            return await self._chunks(secs)
        if (length := headers.get("content-length")) is not None:
            if not _LENGTH.fullmatch(length):
                raise HttpError(f"a length of {length!r}")
            return b"".join(await self._exactly(int(length), secs))
        self.is_over = False
        parts = []
        while part := await self._some(READ_BYTES, secs):
            parts.append(part)
        return b"".join(parts)

    async def _chunks(self, secs: float) -> bytes:
        parts: list[bytes] = []
        while True:
            size = (await self._until(b"\r\n", secs)).split(b";")[0].strip()
            if not _SIZE.fullmatch(size):
                raise HttpError(f"a chunk of {size[:20]!r} bytes")
            if int(size, 16) == 0:
                break
            parts += await self._exactly(int(size, 16), secs)
            if await self._until(b"\r\n", secs) != b"\r\n":
                raise HttpError("a chunk that does not end")
        while await self._until(b"\r\n", secs) != b"\r\n":
            pass  # what is said at the end is of no interest
        return b"".join(parts)

    async def _exactly(self, size: int, secs: float) -> list[bytes]:
        parts = []
        while size:
            part = await self._some(min(size, READ_BYTES), secs)
            if not part:
                raise HttpError("the answer was cut off")
            parts.append(part)
            size -= len(part)
        return parts

    async def _some(self, most: int, secs: float) -> bytes:
        async with asyncio.timeout(secs):
            return await self._reader.read(most)

    async def _until(self, end: bytes, secs: float) -> bytes:
        async with asyncio.timeout(secs):
            return await self._reader.readuntil(end)


def _read_head(head: bytes) -> tuple[int, Headers, bool]:
    """Status, headers, and whether the connection is to last."""
    first, *lines = head[:-4].split(b"\r\n")
    status = _STATUS.fullmatch(first)
    if status is None:
        raise HttpError(f"this is no HTTP: {first[:40].decode('latin-1')!r}")
    values: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or not name or name != name.strip():
            raise HttpError(f"a header like {line[:40].decode('latin-1')!r}")
        known = values.get(name.lower())
        values[name.lower()] = value.strip() if known is None else f"{known}, {value.strip()}"
    lasting = first.startswith(b"HTTP/1.1") and "close" not in values.get("connection", "").lower()
    return int(status[1]), Headers(values), lasting


def _unpacked(content: bytes, headers: Headers) -> bytes:
    coding = headers.get("content-encoding", "identity").lower()
    if coding == "identity" or not content:
        return content
    if coding != "gzip":
        raise HttpError(f"unknown content encoding {coding}")
    packed = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        whole = packed.decompress(content)
    except zlib.error as exc:
        raise HttpError(f"an answer that cannot be unpacked: {exc}") from exc
    if not packed.eof:
        raise HttpError("the answer was cut off")
    return whole


def _head_of(asked: SentRequest) -> tuple[Origin, bytes]:
    try:
        parts = urlsplit(asked.url)
        port = parts.port
        host = parts.hostname or ""
        host = host if host.isascii() else host.encode("idna").decode("ascii")
        target = quote(f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}", safe=_AS_IT_IS)
    except ValueError as exc:
        raise InvalidUrl(str(exc)) from exc
    if parts.scheme not in _PORTS:
        raise InvalidUrl(f"{parts.scheme or 'no'} protocol")
    if not host:
        raise InvalidUrl(f"{asked.url!r} names no host")
    if parts.username is not None:
        raise InvalidUrl("a user's name in it; whoever asks is known by its token")
    named = f"[{host}]" if ":" in host else host
    headers = {"host": named if port is None else f"{named}:{port}", **asked.headers}
    if asked.content is not None or asked.method in ("POST", "PUT"):
        headers["content-length"] = str(len(asked.content or b""))
    lines = [f"{asked.method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    if any(sign in line for line in lines for sign in "\r\n\0"):
        raise HttpError("a header with a line break")
    try:
        head = "\r\n".join([*lines, "\r\n"]).encode("latin-1")
    except UnicodeEncodeError as exc:
        raise HttpError(f"a header that HTTP does not know: {exc}") from exc
    return Origin(parts.scheme, host, port or _PORTS[parts.scheme]), head
