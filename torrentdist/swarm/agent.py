"""A peer's side of the directory: tells every live master which swarms this process is in, and hears of the others.

Always holds: each master is told on its own, so a dead or stalled one delays nobody; what a master is told is what is
true when it is told; with no master left, the last picture stays, because peers go on without masters.
Must not do: touch the engine. What it learns it hands to `on_picture`, and decides nothing by it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from torrentdist.http.api_calls import Broken, result_of
from torrentdist.http.connection_pool import Http
from torrentdist.http.http_errors import HttpError
from torrentdist.http.http_values import Answer
from torrentdist.model.backoff import pause_secs
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest, PeerId
from torrentdist.model.rendezvous import rendezvous
from torrentdist.model.swarm_place import SwarmPlace
from torrentdist.model.wire.swarm_messages import (
    PeerAddress,
    PeerRole,
    SwarmAnnounce,
    SwarmAnswer,
    SwarmEntry,
    SwarmPeers,
)
from torrentdist.swarm.directory.announce_delta import whole
from torrentdist.swarm.directory.roster import address_of
from torrentdist.swarm.round_trip import round_trip

log = logging.getLogger(__name__)

DEADLINE_SECS = 2.0
"""For one request to one master: longer than a busy master needs, shorter than a person waits."""
POKE_SPACING_SECS = 0.05
LEAVE_SECS = 1.0
FIRST_BACKOFF_SECS = 0.5
LONGEST_BACKOFF_SECS = 15.0
FORGET_SECS = 300.0
"""How long a learned master may be dead before it is asked no more. A configured one is asked for ever."""
ADDRESS_LINGER_SECS = 120.0
"""How long an address stays known after no master names it any more: a master that has just started knows few."""
LONGEST_INTERVAL_SECS = 3600.0
LOOK_SECS = 5.0
"""How soon a change of the configured masters is noticed without a poke."""
MAX_LEARNED = 64
_FAILURES = (HttpError, Broken, TimeoutError, OSError, TorrentdistError)


class SwarmPicture(msgspec.Struct, frozen=True, kw_only=True):
    """What all masters together say."""

    masters: tuple[str, ...] = ()
    addresses: frozenset[str] = frozenset()
    swarms: Mapping[Digest, SwarmPeers] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    wanted: frozenset[Digest] = frozenset()
    interval: float = FIRST_BACKOFF_SECS
    answered: int = 0
    """How many masters answered when last asked. With 0 the rest is what was known before."""
    rtt: float = 0.0
    """Seconds to the nearest master and back. 0: not known."""


def merge(by_master: Mapping[str, SwarmAnswer], before: SwarmPicture) -> SwarmPicture:
    """One picture of several answers; of none, the one before. A tombstone or a pin that any names counts."""
    if not by_master:
        return msgspec.structs.replace(before, answered=0)
    answers = list(by_master.values())
    swarms: dict[Digest, SwarmPeers] = {}
    for answer in answers:
        for digest, said in answer.swarms.items():
            swarms[digest] = _both(swarms[digest], said) if digest in swarms else said
    for digest in [digest for digest, said in swarms.items() if said.place]:
        swarms[digest] = msgspec.structs.replace(swarms[digest], place=_place(digest, by_master))
    return SwarmPicture(
        masters=tuple(dict.fromkeys(url for answer in answers for url in answer.masters)),
        addresses=frozenset(host for answer in answers for host in answer.addresses),
        swarms=MappingProxyType(swarms),
        wanted=frozenset(digest for answer in answers for digest in answer.wanted),
        interval=min(answer.interval for answer in answers),
        answered=len(answers),
    )


def _place(digest: Digest, by_master: Mapping[str, SwarmAnswer]) -> SwarmPlace | None:
    """In the plan of the one master that all members of a swarm follow: the first that answers and has a plan."""
    said = (by_master[url].swarms.get(digest) for url in rendezvous(by_master, digest))
    return next((peers.place for peers in said if peers and peers.place), None)


def _both(one: SwarmPeers, other: SwarmPeers) -> SwarmPeers:
    peers: dict[tuple[str, int], PeerAddress] = {(peer.host, peer.port): peer for peer in one.peers}
    for peer in other.peers:
        known = peers.setdefault((peer.host, peer.port), peer)
        if peer.complete and not known.complete:
            peers[peer.host, peer.port] = peer
    return SwarmPeers(
        peers=list(peers.values()),
        removed=one.removed or other.removed,
        pinned=one.pinned or other.pinned,
        replicas=max(one.replicas, other.replicas),
        place=one.place or other.place,
    )


class MasterContact(msgspec.Struct, frozen=True, kw_only=True):
    """How it stands with one master, for people and metrics."""

    url: str
    failures: int
    """In a row; 0: it answered when last asked."""
    problem: str
    next_in: float
    """Seconds until it is told again; infinite while it is being told."""


class _Master(msgspec.Struct, eq=False):
    url: str
    due: float
    alive_at: float
    """When it last answered, or was first heard of."""
    failures: int = 0
    problem: str = ""
    told_at: float = float("-inf")
    answer: SwarmAnswer | None = None
    telling: asyncio.Task[None] | None = None
    turn: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)


class SwarmAgent:
    """`run` it for as long as the peer lives; `poke` it when something changed; `leave` at the end.

    `masters` are the configured ones, or a function that gives them; the others are learned from answers. The client
    passed in carries the credentials and keeps the connections. `host` may be a name; empty: what the masters see."""

    def __init__(
        self,
        *,
        peer: PeerId,
        role: PeerRole,
        host: str,
        http: Http,
        masters: Sequence[str] | Callable[[], Sequence[str]],
        port: Callable[[], int],
        swarms: Callable[[], list[SwarmEntry]],
        on_picture: Callable[[SwarmPicture], None],
        clock: Callable[[], float] = time.monotonic,
        deadline_secs: float = DEADLINE_SECS,
    ) -> None:
        self._peer = peer
        self._role = role
        self._host = host
        self._address = address_of(host)
        self._http = http
        self._configured: Callable[[], Sequence[str]] = masters if callable(masters) else lambda: masters
        self._port = port
        self._swarms = swarms
        self._on_picture = on_picture
        self._clock = clock
        self._deadline = deadline_secs
        self._masters: dict[str, _Master] = {}
        self._listed: frozenset[str] = frozenset()
        self._lingering: dict[str, float] = {}
        self._picture = SwarmPicture()
        self._nearest = math.inf
        self._wake = asyncio.Event()
        self._left = False

    @property
    def picture(self) -> SwarmPicture:
        return self._picture

    def statistics(self) -> tuple[MasterContact, ...]:
        now = self._clock()
        return tuple(
            MasterContact(url=m.url, failures=m.failures, problem=m.problem, next_in=max(0.0, m.due - now))
            for m in self._masters.values()
        )

    def poke(self) -> None:
        """Tell the masters at once: something changed. Many pokes make one announce; a dead master is left in peace."""
        for master in self._masters.values():
            if not master.failures:
                master.due = min(master.due, master.told_at + POKE_SPACING_SECS)
        self._wake.set()

    async def run(self) -> None:
        """Announce until `leave`. It raises only what one of the functions passed in raises."""
        try:
            while not self._left:
                self._wake.clear()
                self._collect()
                now = self._clock()
                self._know_masters(now)
                idle = [master for master in self._masters.values() if master.telling is None]
                for master in idle:
                    if master.due <= now:
                        master.telling = asyncio.create_task(self._tell(master), name=f"announce to {master.url}")
                        master.telling.add_done_callback(lambda _: self._wake.set())
                due = [master.due for master in idle if master.telling is None]
                await self._sleep_until(min([*due, now + LOOK_SECS]))
            if telling := self._telling():
                await asyncio.wait(telling)  # a cancelled announce could arrive after the goodbye
        finally:
            await self._stop_telling()

    async def announce(self) -> SwarmPicture:
        """One announce to every master, dead ones too. Ends when all have answered or their deadline is over."""
        self._know_masters(self._clock())
        await asyncio.gather(*(self._tell(master) for master in self._masters.values()))
        return self._picture

    async def leave(self) -> None:
        """Say goodbye to every master, for a second at most. Nothing is announced after that, and `run` ends."""
        self._left = True
        self._wake.set()
        goodbye = SwarmAnnounce(peer=self._peer, role=self._role, port=0, host=self._address, left=True)

        async def say(master: _Master) -> None:
            async with master.turn:
                with contextlib.suppress(*_FAILURES):
                    await self._post(master, goodbye)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECS):
                await asyncio.gather(*(say(master) for master in self._masters.values()))

    # inside

    async def _sleep_until(self, due: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, due - self._clock())):
                await self._wake.wait()

    def _collect(self) -> None:
        for master in self._masters.values():
            if master.telling is not None and master.telling.done():
                ended, master.telling = master.telling, None
                ended.result()

    def _telling(self) -> list[asyncio.Task[None]]:
        return [master.telling for master in self._masters.values() if master.telling is not None]

    async def _stop_telling(self) -> None:
        telling = self._telling()
        for task in telling:
            task.cancel()
        await asyncio.gather(*telling, return_exceptions=True)
        for master in self._masters.values():
            master.telling, master.due = None, self._clock()

    async def _tell(self, master: _Master) -> None:
        async with master.turn:
            if self._left:
                return
            host = await self._own_address()
            master.told_at, master.due = self._clock(), math.inf
            request = SwarmAnnounce(
                peer=self._peer,
                role=self._role,
                host=host,
                port=self._port(),
                swarms=self._swarms(),
                addresses=master.answer.addresses_tag if master.answer else "",
                known=master.answer.tag if master.answer else "",
            )
            try:
                async with asyncio.timeout(self._deadline):
                    response = await self._post(master, request)
                self._nearest = min(self._nearest, round_trip(response))
                self._answered(master, _answer_in(response))
            except _FAILURES as exc:
                self._failed(master, exc)
            self._wake.set()

    async def _post(self, master: _Master, request: SwarmAnnounce) -> Answer:
        body = msgspec.json.encode(request)
        return await self._http.post(
            f"{master.url}/v1/swarm", content=body, headers={"content-type": "application/json"}
        )

    async def _own_address(self) -> str:
        """The address to announce: a name is looked up until it is found once."""
        if self._host and not self._address:
            loop = asyncio.get_running_loop()
            with contextlib.suppress(OSError, UnicodeError, TimeoutError):
                async with asyncio.timeout(self._deadline):
                    found = await loop.getaddrinfo(self._host, None, type=socket.SOCK_STREAM)
                    self._address = address_of(str(found[0][4][0]))
        return self._address

    def _answered(self, master: _Master, answer: SwarmAnswer) -> None:
        now = self._clock()
        answer = whole(answer, master.answer)
        if master.problem:
            log.info("master %s answers announces again", master.url)
        master.failures, master.problem, master.alive_at, master.answer = 0, "", now, answer
        master.due = min(master.due, now + min(max(answer.interval, POKE_SPACING_SECS), LONGEST_INTERVAL_SECS))
        self._redraw(now)

    def _failed(self, master: _Master, exc: Exception) -> None:
        now = self._clock()
        master.failures += 1
        master.answer = None
        master.due = now + pause_secs(master.failures, FIRST_BACKOFF_SECS, LONGEST_BACKOFF_SECS, random.random())
        problem = exc.code if isinstance(exc, TorrentdistError) else "unreachable"
        if problem != master.problem:
            master.problem = problem
            if isinstance(exc, TorrentdistError):
                log.error("master %s refuses our announces: %s. %s", master.url, exc.message, exc.hint)
            else:
                log.warning("master %s does not answer announces: %s", master.url, exc or type(exc).__name__)
        answering = sum(known.answer is not None for known in self._masters.values())
        if answering != self._picture.answered:
            self._redraw(now)

    def _redraw(self, now: float) -> None:
        answers = {url: master.answer for url, master in self._masters.items() if master.answer is not None}
        picture = merge(answers, self._picture)
        if answers:
            self._lingering.update(dict.fromkeys(picture.addresses, now))
            self._lingering = {h: at for h, at in self._lingering.items() if now - at <= ADDRESS_LINGER_SECS}
            rtt = self._nearest if math.isfinite(self._nearest) else 0.0
            picture = msgspec.structs.replace(picture, addresses=frozenset(self._lingering), rtt=rtt)
        self._picture = picture
        self._on_picture(picture)

    def _know_masters(self, now: float) -> None:
        configured = {url.rstrip("/") for url in self._configured()}
        listed = frozenset(url.rstrip("/") for url in self._picture.masters if _is_url(url))
        room = MAX_LEARNED - sum(url not in configured for url in self._masters)
        for url in [*configured, *sorted(listed - configured - self._masters.keys())[: max(0, room)]]:
            self._masters.setdefault(url, _Master(url, due=now, alive_at=now))
        for url in listed - self._listed:
            if url in self._masters and self._masters[url].failures:
                self._masters[url].due = min(self._masters[url].due, now)  # it is registered again: it has come back
        self._listed = listed
        for url, master in list(self._masters.items()):
            dead = master.failures and now - master.alive_at > FORGET_SECS
            if dead and url not in configured and url not in listed and master.telling is None:
                del self._masters[url]


def _is_url(text: str) -> bool:
    return text.startswith(("http://", "https://")) and len(text) <= 300


def _answer_in(response: Answer) -> SwarmAnswer:
    if response.status_code == 401:
        raise TorrentdistError("unauthorized")
    return result_of(response, SwarmAnswer)
