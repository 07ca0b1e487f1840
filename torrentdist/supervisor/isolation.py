"""Whether workers may run on without ZooKeeper: only while nobody can have been given their places.

Always holds: a proof needs every master that this host knows, each of them saying now that it sees no ZooKeeper and
knows of no other assignment than the one that is carried out here; and it counts only if what it prolongs was still
good when it was asked for. docs/decisions/0008-isolation.md has the argument.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

import httpx
import msgspec

from torrentdist.model.ha_views import SightView
from torrentdist.model.ids import MasterId, SupervisorId
from torrentdist.supervisor.barriers import Barriers
from torrentdist.supervisor.guardian import NEVER, clock

PROOF_SECS = 3.0
"""How long a proof is good for, from before it was asked for. Less than any silence after which a leader moves work."""
ASK_AGAIN_SECS = 0.5
ANSWER_SECS = 1.0
WITHIN_SECS = 0.3
"""A master that gets no answer from ZooKeeper for so long sees none: a frozen server keeps every connection open."""
LOOK_SECS = 1.0
FORGET_SECS = 600.0
"""A master that is not registered any more may come back, and lead before this host hears of it."""


def is_proof(known: Collection[str], said: Mapping[str, SightView], generation: int) -> bool:
    """`generation`: of the assignment that is carried out here."""
    return bool(known) and all(url in said and _proves(said[url], generation) for url in known)


def _proves(view: SightView, generation: int) -> bool:
    return not view.sees and view.newest == generation


class Host(Protocol):
    """What runs here."""

    @property
    def busy(self) -> bool: ...

    @property
    def generation(self) -> int:
        """Of the assignment that is carried out."""
        ...

    def proven(self) -> None:
        """It may go on for longer."""


class Isolation:
    """`masters`: the URLs of all that were registered when this host last knew."""

    def __init__(
        self, http: httpx.AsyncClient, supervisor: SupervisorId, masters: Callable[[], Mapping[MasterId, str]]
    ) -> None:
        self._http = http
        self._supervisor = supervisor
        self._masters = masters
        self._known: dict[MasterId, tuple[str, float]] = {}
        self.proven = NEVER
        """Until when nobody can have been given what is assigned here, on the host's clock."""

    async def watch(self, barriers: Barriers, host: Host) -> None:
        """While writes stay unanswered, see whether the masters are as blind as we are."""
        while True:
            self._look(time.monotonic())
            asking = host.busy and self._in_the_dark(barriers)
            if asking:
                asked, good_until = clock(), self._good_until(barriers)
                if await self._may_run_isolated(host.generation) and asked < good_until:
                    self.proven = asked + PROOF_SECS
                    host.proven()
            timeout = barriers.lease.timeout
            await asyncio.sleep(ASK_AGAIN_SECS if asking else min(LOOK_SECS, max(0.05, timeout / 20)))

    def _in_the_dark(self, barriers: Barriers) -> bool:
        if not barriers.leased:
            return clock() < self._good_until(barriers)
        return time.monotonic() > barriers.lease.renewal + barriers.lease.timeout / 40

    def _good_until(self, barriers: Barriers) -> float:
        """After that, everything here may have been given to others long ago."""
        lease = barriers.host_lease().kill if barriers.leased else NEVER
        return max(lease, self.proven + barriers.ending_secs)

    def _look(self, now: float) -> None:
        self._known |= {id_: (url, now) for id_, url in self._masters().items()}
        self._known = {id_: known for id_, known in self._known.items() if now - known[1] < FORGET_SECS}

    async def _may_run_isolated(self, generation: int) -> bool:
        known = [url for url, _ in self._known.values()]
        answers = await asyncio.gather(*(self._ask(url) for url in known))
        said = {url: view for url, view in zip(known, answers, strict=True) if view is not None}
        return is_proof(known, said, generation)

    async def _ask(self, url: str) -> SightView | None:
        params = {"supervisor": self._supervisor, "within": f"{WITHIN_SECS:g}"}
        try:
            async with asyncio.timeout(ANSWER_SECS):
                response = await self._http.get(f"{url}/v1/sight", params=params)
            return msgspec.json.decode(response.content, type=SightView) if response.status_code == 200 else None
        except (httpx.HTTPError, msgspec.MsgspecError, TimeoutError):
            return None
