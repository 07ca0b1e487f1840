"""The HTTP client of commands and daemons: it keeps connections to each server and uses them again.

Always: a connection is used again only when its last answer was read to the end. A request that is
given up ends its connection. Every failure is an HttpError.
Never: send a request twice, since the first one may have been carried out, or import anything that
a command would have to wait for.
"""

import asyncio
import re
import ssl
import time
from collections.abc import Mapping
from typing import Final, Self
from urllib.parse import quote, urlencode

from torrentdist.http.access import Access, AccessRule, Trust, anonymously
from torrentdist.http.connection import READ_BYTES, Connection
from torrentdist.http.http_values import (
    MOST_BYTES,
    Answer,
    ConnectError,
    ConnectTimeout,
    Headers,
    NotTrusted,
    Origin,
    Patience,
    SentRequest,
    head_of,
    origin_of,
)
from torrentdist.http.tls_failures import tls_sentence
from torrentdist.model.wire.headers import CLIENT
from torrentdist.model.wording import os_sentence

MOST_IDLE: Final = 50
"""Unused connections kept for each server."""
SECOND_ADDRESS_SECS: Final = 0.1
"""If a name has several addresses, the next one is tried after this long without a connection."""
DEFAULT_SECS: Final = 5.0
SECURE_SECS: Final = 1.5
"""Shortest time for a connection with TLS: after the connection come two more round trips, and
signatures, which a busy host makes late.
"""
_ADDRESS: Final = re.compile(r"[0-9.]+|.*:.*")
"""Matches an address. asyncio must not race connections to a single one: its race loses a cancelled
socket.
"""
_OWN_HEADERS: Final = {"User-Agent": "torrentdist", "Accept-Encoding": "gzip", CLIENT: "1"}


class Http:
    """A pool of connections to any number of servers.

    `access` gives the credentials and the trust for each server. `silence_secs` is how long a
    server may take no bytes and send none. `only_https`: a server that is named by an http:// URL
    is asked over HTTPS, on the same port.
    """

    def __init__(
        self,
        *,
        access: AccessRule = anonymously,
        connect_secs: float = DEFAULT_SECS,
        silence_secs: float = DEFAULT_SECS,
        only_https: bool = False,
    ) -> None:
        self._access = access
        self.only_https = only_https
        self._patience = Patience(connect_secs, silence_secs)
        self._system_trust: Trust | None = None
        self._idle: dict[Origin, list[Connection]] = {}
        self._open: set[Connection] = set()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Ends every connection. A request that is under way fails."""
        self._closed = True
        self._idle.clear()
        for connection in list(self._open):
            self._end(connection)
        await asyncio.sleep(0)  # the loop closes the sockets in its next round, and it may be closed itself after this

    def spoken_url(self, url: str) -> str:
        """Returns the URL under which this client asks a server that is named by `url`."""
        plain = self.only_https and url.startswith("http://")
        return f"https://{url.removeprefix('http://')}" if plain else url

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
        patience: Patience | None = None,
        most_bytes: int = MOST_BYTES,
        anonymously: bool = False,
    ) -> Answer:
        """Sends one request and returns its answer, whatever the status. `most_bytes` bounds the
        unpacked body. `anonymously`: without our token.
        """
        url = self.spoken_url(url)
        if params:
            url += f"{'&' if '?' in url else '?'}{urlencode(params, quote_via=quote)}"
        credentials = {} if anonymously else await self._credentials(origin_of(url))
        sent = Headers({**Headers(_OWN_HEADERS), **Headers(credentials), **Headers(headers or {})})
        return await self.exchange(SentRequest(method, url, sent, content, most_bytes), patience or self._patience)

    async def _credentials(self, origin: Origin) -> dict[str, str]:
        access = self._access(origin)
        if access.token and access.recipients and not await access.recipients.admit(origin, self._get_anonymously):
            raise NotTrusted("it gets no token: only an answer named it, and it does not prove that it knows the token")
        return access.headers()

    async def _get_anonymously(self, url: str, params: dict[str, str], most_bytes: int) -> Answer:
        return await self.request("GET", url, params=params, most_bytes=most_bytes, anonymously=True)

    async def exchange(self, asked: SentRequest, patience: Patience) -> Answer:
        origin = origin_of(asked.url)
        head = head_of(asked, origin)
        connection = self._reuse(origin) or await self._connect(origin, patience.connect_secs)
        try:
            if self._closed:
                raise ConnectError("this client is closed")
            await connection.send(head, asked.content or b"", patience.silence_secs)
            answer = await connection.answer(asked, patience.silence_secs)
        except BaseException:
            self._end(connection)
            raise
        self._put_back(origin, connection)
        return answer

    def _put_back(self, origin: Origin, connection: Connection) -> None:
        """Keeps a connection for the next request, and drops all that their servers have ended
        meanwhile.
        """
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

    def _reuse(self, origin: Origin) -> Connection | None:
        idle = self._idle.get(origin, [])
        while idle:
            connection = idle.pop()
            if connection.is_usable():
                return connection
            self._end(connection)
        return None

    async def _connect(self, origin: Origin, secs: float) -> Connection:
        trust = self._trust(self._access(origin)) if origin.scheme == "https" else None
        secure = None if trust is None else trust.context
        secs = secs if trust is None else max(secs, SECURE_SECS)
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
        except ssl.SSLError as exc:
            raise NotTrusted(tls_sentence(exc, origin.host)) from exc
        except (OSError, UnicodeError) as exc:
            raise ConnectError(os_sentence(exc)) from exc
        connection = Connection(reader, writer)
        self._open.add(connection)
        if trust is not None and (complaint := trust.complaint(writer.get_extra_info("peercert") or {})):
            self._end(connection)
            raise NotTrusted(complaint)
        return connection

    def _trust(self, access: Access) -> Trust:
        if access.trust is not None:
            return access.trust
        self._system_trust = self._system_trust or Trust(ssl.create_default_context())
        return self._system_trust

    def _end(self, connection: Connection) -> None:
        self._open.discard(connection)
        connection.writer.transport.abort()
