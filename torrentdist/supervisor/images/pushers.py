"""Finds who pushes: the holder of the token that came as a password, as the masters know it.

Always: a push is made with the pusher's token, never with this host's own proof. Where the cluster
has tokens or certificates, a push without a token is refused. What a token may do is asked again
after KNOWN_SECS.
Never: keep a token longer than that, or put one into a log or an error.
"""

import asyncio
import binascii
import contextlib
import hashlib
import time
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

import msgspec
from starlette.requests import Request

from torrentdist.client.masters.master_client import MasterClient
from torrentdist.host.process.port_guard import PortGuard
from torrentdist.http.access import AccessRule, Trust, to_known_masters, with_token
from torrentdist.http.connection_pool import Http
from torrentdist.model.access.token_messages import WhoamiView
from torrentdist.model.configuration.config import ClientConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.security.authorization import Principal, Proof, Role, check_role

KNOWN_SECS: Final = 10.0
MOST_KNOWN: Final = 256
LONGEST_TOKEN: Final = 4096


class Pusher(msgspec.Struct, frozen=True):
    principal: Principal
    token: str


def token_of(request: Request) -> str:
    """Returns the token of a request; empty if it has none."""
    return token_in(request.headers.get("authorization", ""))


def token_in(authorization: str) -> str:
    """Returns the password of basic authentication, or a bearer token. Empty: it has neither.
    Raises `unauthorized` for what cannot be read."""
    scheme, _, given = authorization.partition(" ")
    if len(given) > LONGEST_TOKEN:
        raise TorrentdistError("unauthorized")
    if scheme.lower() == "bearer":
        return given.strip()
    if scheme.lower() != "basic":
        return ""
    try:
        return b64decode(given.strip(), validate=True).decode("ascii").partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        raise TorrentdistError("unauthorized") from None


class Pushers:
    def __init__(self, guard: PortGuard, masters: Callable[[], Sequence[str]], *, in_the_clear: bool) -> None:
        """`in_the_clear`: whether tokens may go to masters on other machines without TLS."""
        self._guard = guard
        self._masters = masters
        self._in_the_clear = in_the_clear
        self._known: dict[bytes, tuple[float, Principal]] = {}

    @property
    def needs_token(self) -> bool:
        return self._guard.token is not None or self._guard.tls is not None

    async def pusher(self, request: Request, operation: str, needed: Role = Role.UPLOADER) -> Pusher:
        """Returns who pushes, or raises the error of one who may not."""
        token = token_of(request)
        principal = await self.principal(token)
        check_role(principal, needed, operation)
        return Pusher(principal, token)

    async def principal(self, token: str) -> Principal:
        """Returns the holder of a token; without one, what the masters take a local program for."""
        if not token and self.needs_token:
            raise TorrentdistError("unauthorized")
        key, now = hashlib.sha256(token.encode()).digest(), time.monotonic()
        at, found = self._known.get(key, (0.0, None))
        if found is not None and now - at < KNOWN_SECS:
            return found
        async with self.client(token) as client:
            told = await client.read("GET", "/v1/whoami", WhoamiView)
        principal = _principal_in(told)
        while len(self._known) >= MOST_KNOWN:
            self._known.pop(next(iter(self._known)))
        self._known[key] = (now, principal)
        asyncio.get_running_loop().call_later(KNOWN_SECS, self._known.pop, key, None)
        return principal

    @contextlib.asynccontextmanager
    async def client(self, token: str) -> AsyncIterator[MasterClient]:
        """Gives a client of the masters that shows this token."""
        masters = list(self._masters())
        if not masters:
            raise TorrentdistError("unreachable", detail="no master is known")
        client = MasterClient(ClientConfig(masters=masters), open_http=lambda _: Http(access=self._rule(token)))
        client.http.only_https = self._guard.only_https
        try:
            yield client
        finally:
            await client.http.aclose()

    def _rule(self, token: str) -> AccessRule:
        tls = self._guard.tls
        trust = (lambda: None) if tls is None else (lambda: Trust(tls.client, tls.complaint))
        rule = with_token(token, trust, configured=self._masters(), in_the_clear=self._in_the_clear)
        return to_known_masters(rule, token, self._masters)


def _principal_in(told: WhoamiView) -> Principal:
    try:
        role = Role(told.role)
    except ValueError:
        role = Role.ANYONE
    return Principal(told.name, role, Proof.TOKEN, bundles=told.bundles, reads=tuple(told.reads.split(",")))
