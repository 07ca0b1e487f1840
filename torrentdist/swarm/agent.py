"""Announces this process's swarms to every live master, and learns of the other peers from the
answers.

Always: each master gets its own announces, so one that fails in any way delays no other. An
announce contains what is true at that moment. Without a master the last picture stays.
Never: touch the engine. The agent passes each new picture to `on_picture`, and bases no decision on
it.
"""

import asyncio
import contextlib
import itertools
import logging
import math
import random
import socket
import time
from collections.abc import Callable, Collection, Sequence

import msgspec

from torrentdist.http.api_calls import Broken, result_of
from torrentdist.http.connection_pool import Http
from torrentdist.http.http_values import Answer, HttpError
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest, PeerId
from torrentdist.model.wire.headers import UNKNOWN_AGE, AnswerAge, age_in
from torrentdist.model.wire.swarm_messages import HostCondition, PeerRole, SwarmAnnounce, SwarmAnswer, SwarmEntry
from torrentdist.swarm.announce_schedule import AnnouncedMaster, AnnounceSchedule, MasterContact
from torrentdist.swarm.directory.announce_delta import completed
from torrentdist.swarm.directory.peer_addresses import address_of
from torrentdist.swarm.round_trip import round_trip
from torrentdist.swarm.swarm_picture import SwarmPicture, lingers, merge

log = logging.getLogger(__name__)

DEADLINE_SECS = 2.0
"""For one request to one master: longer than a busy master needs, shorter than a user waits."""
LEAVE_SECS = 1.0
"""For the last request to one master."""
LOOK_SECS = 5.0
"""Longest delay until a change of the configured masters is noticed without a poke."""
_FAILURES = (HttpError, Broken, TimeoutError, OSError, TorrentdistError)


class LocalPeer(msgspec.Struct, frozen=True, kw_only=True):
    """How this process describes itself to masters. Functions are called before each announce."""

    id: PeerId
    role: PeerRole
    ports: Callable[[], tuple[int, int]]
    """The port that others dial, and the one for TLS: the same, another or 0."""
    swarms: Callable[[], list[SwarmEntry]]
    host: str = ""
    """Address or name at which others reach it. If empty, masters use the address that they see."""
    stored: Callable[[Collection[SwarmEntry]], list[Digest]] = lambda named: []
    """Returns what it has besides the swarms that it names."""
    condition: Callable[[], HostCondition] = HostCondition


class MasterAccess(msgspec.Struct, frozen=True, kw_only=True):
    """How the agent reaches the masters."""

    http: Http
    """Carries the credentials and keeps the connections."""
    masters: Callable[[], Sequence[str]]
    """The configured masters. Answers name others."""
    deadline_secs: float = DEADLINE_SECS
    """Timeout of one announce to one master, in seconds."""
    here: Callable[[str, SwarmAnnounce], SwarmAnswer | None] = lambda url, announce: None
    """Answers for the master that runs in this process. None: `url` is another master's."""


class SwarmAgent:
    """Announces for a peer: `run` it while that lives, `poke` it after changes, `leave` at last."""

    def __init__(
        self,
        peer: LocalPeer,
        access: MasterAccess,
        on_picture: Callable[[SwarmPicture], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._peer = peer
        self._access = access
        self._on_picture = on_picture
        self._clock = clock
        self._address = address_of(peer.host)
        self._schedule = AnnounceSchedule()
        self._announcing: dict[str, asyncio.Task[None]] = {}
        """The current announces that `run` started, by master."""
        self._turns: dict[str, asyncio.Lock] = {}
        """By master: held during a request, so that there is only one at a time."""
        self._lingering: dict[str, float] = {}
        """When each known address was last named."""
        self._picture = SwarmPicture()
        self._nearest = math.inf
        """Round-trip time to the nearest master in seconds."""
        self._numbers = itertools.count(1)
        self._wake = asyncio.Event()
        self._left = False

    @property
    def picture(self) -> SwarmPicture:
        return self._picture

    def statistics(self) -> tuple[MasterContact, ...]:
        return self._schedule.contacts(self._clock())

    def poke(self, within: float = 0.0) -> None:
        """Announces a change to the masters within this many seconds, except to dead ones."""
        self._schedule.poke(self._clock() + within)
        self._wake.set()

    async def run(self) -> None:
        """Announces until `leave`. Raises only errors of the functions that were passed in."""
        try:
            while not self._left:
                self._wake.clear()
                self._collect()
                now = self._clock()
                self._know_masters(now)
                for master in self._schedule.masters():
                    if master.due <= now and master.url not in self._announcing:
                        task = asyncio.create_task(
                            self._tell(master, next(self._numbers)), name=f"announce to {master.url}"
                        )
                        task.add_done_callback(lambda _: self._wake.set())
                        self._announcing[master.url] = task
                due = [master.due for master in self._schedule.masters() if master.url not in self._announcing]
                await self._sleep_until(min([*due, now + LOOK_SECS]))
            if self._announcing:
                # A cancelled announce could arrive after the final one.
                await asyncio.wait(self._announcing.values())
        finally:
            await self._stop_telling()

    async def announce(self) -> SwarmPicture:
        """Announces to every master once, even to dead ones. Returns when all have answered or
        timed out. An announce that `run` begins meanwhile counts."""
        self._know_masters(self._clock())
        number = next(self._numbers)
        await asyncio.gather(*(self._tell(master, number) for master in self._schedule.masters()))
        return self._picture

    async def leave(self) -> None:
        """Tells every master that this peer leaves, within a second after the announce that is on
        its way. Nothing is announced after that, and `run` ends."""
        self._left = True
        self._wake.set()
        goodbye = SwarmAnnounce(peer=self._peer.id, role=self._peer.role, port=0, host=self._address, left=True)

        async def say(master: AnnouncedMaster) -> None:
            async with self._turn_of(master):
                with contextlib.suppress(*_FAILURES):
                    async with asyncio.timeout(LEAVE_SECS):
                        await self._post(master, goodbye)

        await asyncio.gather(*(say(master) for master in self._schedule.masters()))

    async def _sleep_until(self, due: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, due - self._clock())):
                await self._wake.wait()

    def _collect(self) -> None:
        """Removes announces that have ended, and raises their errors."""
        for url, task in list(self._announcing.items()):
            if task.done():
                del self._announcing[url]
                task.result()

    async def _stop_telling(self) -> None:
        for task in self._announcing.values():
            task.cancel()
        await asyncio.gather(*self._announcing.values(), return_exceptions=True)
        self._announcing.clear()
        for master in self._schedule.masters():
            master.due = self._clock()

    def _turn_of(self, master: AnnouncedMaster) -> asyncio.Lock:
        return self._turns.setdefault(master.url, asyncio.Lock())

    async def _tell(self, master: AnnouncedMaster, number: int) -> None:
        """Announces to one master, unless that was done since this `number` was drawn."""
        async with self._turn_of(master):
            if self._left or master.begun > number:
                return
            host = await self._own_address()
            master.begin(next(self._numbers), self._clock())
            port, tls_port = self._peer.ports()
            swarms = self._peer.swarms()
            request = SwarmAnnounce(
                peer=self._peer.id,
                role=self._peer.role,
                host=host,
                port=port,
                tls_port=tls_port,
                swarms=swarms,
                stored=self._peer.stored(swarms),
                ranges=True,
                addresses=master.answer.addresses_tag if master.answer else "",
                known=master.answer.tag if master.answer else "",
                **msgspec.structs.asdict(self._peer.condition()),
            )
            before = master.failures, master.problem
            try:
                own = self._access.here(master.url, request)
                self._answered(master, *((own, UNKNOWN_AGE) if own else await self._asked(master, request)))
            except Exception as exc:
                master.failures, master.problem = before  # an answer that cannot be used is none
                self._failed(master, exc)
            self._wake.set()

    async def _asked(self, master: AnnouncedMaster, request: SwarmAnnounce) -> tuple[SwarmAnswer, AnswerAge]:
        async with asyncio.timeout(self._access.deadline_secs):
            response = await self._post(master, request)
        self._nearest = min(self._nearest, round_trip(response))
        if response.status_code == 401:
            raise TorrentdistError("unauthorized")
        return result_of(response, SwarmAnswer), age_in(response.headers)

    async def _post(self, master: AnnouncedMaster, request: SwarmAnnounce) -> Answer:
        body = msgspec.json.encode(request)
        return await self._access.http.post(
            f"{master.url}/v1/swarm", content=body, headers={"content-type": "application/json"}
        )

    async def _own_address(self) -> str:
        """Returns the address to announce. A name is looked up until a lookup succeeds."""
        if self._peer.host and not self._address:
            loop = asyncio.get_running_loop()
            with contextlib.suppress(OSError, UnicodeError, TimeoutError):
                async with asyncio.timeout(self._access.deadline_secs):
                    found = await loop.getaddrinfo(self._peer.host, None, type=socket.SOCK_STREAM)
                    self._address = address_of(str(found[0][4][0]))
        return self._address

    def _answered(self, master: AnnouncedMaster, answer: SwarmAnswer, age: AnswerAge) -> None:
        now, problem = self._clock(), master.problem
        master.answered(completed(answer, master.answer), now, age)
        self._redraw(now)
        if problem:
            log.info("master %s answers announces again", master.url)

    def _failed(self, master: AnnouncedMaster, exc: Exception) -> None:
        now, bug = self._clock(), None if isinstance(exc, _FAILURES) else exc
        problem = exc.code if isinstance(exc, TorrentdistError) else "internal" if bug else "unreachable"
        if problem != master.problem:
            if isinstance(exc, TorrentdistError):
                log.error("master %s refuses our announces: %s. %s", master.url, exc.message, exc.hint)
            else:
                log.warning("master %s does not answer announces: %r", master.url, exc, exc_info=bug)
        master.failed(problem, now, random.random())
        if len(self._schedule.answers()) != self._picture.answered:
            self._redraw(now)

    def _redraw(self, now: float) -> None:
        answers, lingering = self._schedule.answers(), self._lingering
        picture = merge(answers, self._picture, self._schedule.ages())
        if answers:
            lingering = lingering | dict.fromkeys(picture.addresses, now)
            lingering = {h: at for h, at in lingering.items() if lingers(h, now - at, picture)}
            rtt = self._nearest if math.isfinite(self._nearest) else 0.0
            picture = msgspec.structs.replace(picture, addresses=frozenset(lingering), rtt=rtt)
        self._on_picture(picture)  # if this fails, the picture stays as it was
        self._picture, self._lingering = picture, lingering

    def _know_masters(self, now: float) -> None:
        spoken = self._access.http.spoken_url
        configured, named = map(spoken, self._access.masters()), map(spoken, self._picture.masters)
        self._schedule.know(configured, named, now, announcing=self._announcing.keys())
        known = {master.url for master in self._schedule.masters()}
        self._turns = {url: turn for url, turn in self._turns.items() if url in known}
