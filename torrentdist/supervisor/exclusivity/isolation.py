"""Whether workers may run on without ZooKeeper: only while nobody can have been given their places.

Always holds: a proof needs every master that this host or any of those asked knows, each of them saying now that it
sees no ZooKeeper and knows of no other assignment than the one that is carried out here; and it counts only if what it
prolongs was still good when it was asked for. docs/decisions/0008-isolation.md has the argument.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Protocol

from torrentdist.http.api_calls import Broken, result_of
from torrentdist.http.connection_pool import Http
from torrentdist.http.http_errors import HttpError
from torrentdist.launcher.run.run_lease import NEVER, clock
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import MasterId, SupervisorId
from torrentdist.model.wire.ha_views import SightView
from torrentdist.supervisor.exclusivity.barriers import Barriers
from torrentdist.supervisor.exclusivity.lease_file import Inherited, ToProve

PROOF_SECS = 3.0
"""How long a proof is good for, from before it was asked for. Less than any silence after which a leader moves work."""
ASK_AGAIN_SECS = 0.5
ANSWER_SECS = 1.0
WITHIN_SECS = 0.3
"""A master that gets no answer from ZooKeeper for so long sees none: a frozen server keeps every connection open."""
LOOK_SECS = 1.0
IDLE_LOOK_SECS = 0.5
"""While nothing runs here. It may begin at any time."""
FORGET_SECS = 600.0
"""A master that is not registered any more may come back, and lead before this host hears of it."""

Known = tuple[MasterId, str]
"""A master, and where it is to be asked. One that has moved is two of them."""


def is_proof(said: Mapping[Known, SightView | None], generation: int) -> bool:
    """`said`: by each known master; None: nothing. `generation`: of the assignment that is carried out here."""
    return bool(said) and not unheard_of(said) and all(_proves(view, generation) for view in said.values())


def unheard_of(said: Mapping[Known, SightView | None]) -> frozenset[Known]:
    """Masters that were named and have not been asked."""
    named = {known for view in said.values() if view is not None for known in view.masters.items()}
    return frozenset(named - said.keys())


def good_until(written_at: float, known_at: float, lease: float, proven: float) -> float:
    """When a proof has to be asked for to count: after that, everything here may have been given to others long ago.

    `lease`, `proven`: until when either has kept what runs here. Without having looked for masters after the write that
    the lease counts from, there may be one that nobody asks."""
    return max(lease, proven) if known_at >= written_at else NEVER


def _proves(view: SightView | None, generation: int) -> bool:
    return view is not None and not view.sees and view.newest == generation


class IsolatedHost(Protocol):
    """What runs here."""

    @property
    def busy(self) -> bool: ...

    @property
    def generation(self) -> int:
        """Of the assignment that is carried out."""
        ...

    def prolonged(self) -> None:
        """It may go on for longer."""


class Registered(Protocol):
    """The masters, as this host saw them when it looked."""

    @property
    def known_at(self) -> float:
        """When it asked for them; monotonic."""
        ...

    def masters(self) -> Mapping[MasterId, str]: ...


class Isolation:
    def __init__(self, http: Http, supervisor: SupervisorId, registered: Registered) -> None:
        self._http = http
        self._supervisor = supervisor
        self._registered = registered
        self._seen: dict[MasterId, tuple[str, float]] = {}
        """Those that were registered, and when they were last, on the host's clock."""
        self._named: frozenset[Known] = frozenset()
        """Those that others know, of this outage."""
        self._inherited_until = NEVER
        self.proven = NEVER
        """Until when nobody can have been given what is assigned here, on the host's clock."""

    def take_up(self, left: Inherited) -> None:
        """Before `watch`: go on where the process before us has ended."""
        self._seen = dict(left.to_prove.masters)
        if left.to_prove.informed:
            self.proven, self._inherited_until = left.proven, left.kill

    def to_leave(self, barriers: Barriers) -> ToProve:
        """To the next process."""
        self._look()
        return ToProve(barriers.timeout, self._seen, self._registered.known_at >= barriers.lease.sent)

    async def watch(self, barriers: Barriers, host: IsolatedHost) -> None:
        """While writes stay unanswered, see whether the masters are as blind as we are."""
        while True:
            asking = await self.prolong(barriers, host)
            look = min(LOOK_SECS, max(0.05, barriers.timeout / 20)) if host.busy else IDLE_LOOK_SECS
            await asyncio.sleep(ASK_AGAIN_SECS if asking else look)

    async def prolong(self, barriers: Barriers, host: IsolatedHost) -> bool:
        """Look for a proof if one is needed; False: none is."""
        self._look()
        if not (host.busy and self._in_the_dark(barriers)):
            self._named = frozenset()
            return False
        asked, good_until = clock(), self._good_until(barriers)
        if await self._may_run_isolated(host.generation) and asked < good_until:
            self.proven = asked + PROOF_SECS
            host.prolonged()
        return True

    def _in_the_dark(self, barriers: Barriers) -> bool:
        if not barriers.leased:
            return clock() < self._good_until(barriers)
        return time.monotonic() > barriers.lease.renewal + barriers.lease.timeout / 40

    def _good_until(self, barriers: Barriers) -> float:
        lease = barriers.host_lease().kill if barriers.leased else self._inherited_until
        return good_until(barriers.lease.sent, self._registered.known_at, lease, self.proven + barriers.ending_secs)

    def _look(self) -> None:
        now = clock()
        self._seen |= {id_: (url, now) for id_, url in self._registered.masters().items()}
        self._seen = {id_: seen for id_, seen in self._seen.items() if now - seen[1] < FORGET_SECS}

    async def _may_run_isolated(self, generation: int) -> bool:
        known = sorted({(id_, url) for id_, (url, _) in self._seen.items()} | self._named)
        said = dict(zip(known, await asyncio.gather(*(self._ask(url) for _, url in known)), strict=True))
        self._named |= unheard_of(said)
        return is_proof(said, generation)

    async def _ask(self, url: str) -> SightView | None:
        params = {"supervisor": self._supervisor, "within": f"{WITHIN_SECS:g}"}
        try:
            async with asyncio.timeout(ANSWER_SECS):
                response = await self._http.get(f"{url}/v1/sight", params=params)
            return result_of(response, SightView)
        except (HttpError, Broken, TorrentdistError, TimeoutError):
            return None
