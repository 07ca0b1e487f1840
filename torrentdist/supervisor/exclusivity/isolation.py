"""Decides whether workers may go on running without ZooKeeper: only while no other host can have
been given their places.

Always: a proof needs an answer from every master that is known to this host or to any master that
was asked. Each must say now that it sees no ZooKeeper, and that it knows no newer assignment than
the one adopted here. A proof counts only if the masters were asked while the lease or the previous
proof was still valid. The argument is in docs/decisions/0008-isolation.md.
Never: stop a worker. worker_plan.py decides that.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Protocol

from torrentdist.http.api_calls import Broken, result_of
from torrentdist.http.connection_pool import Http
from torrentdist.http.http_values import HttpError
from torrentdist.launcher.run.run_lease import NEVER, clock
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import MasterId, SupervisorId
from torrentdist.model.wire.ha_views import OutageView
from torrentdist.supervisor.exclusivity.barriers import Barriers
from torrentdist.supervisor.exclusivity.lease_file import Inherited, ToProve

PROOF_SECS = 3.0
"""How long a proof is valid, counted from before the masters were asked.

It is shorter than any silence after which a leader moves workers."""
ASK_AGAIN_SECS = 0.5
"""Interval between questions to the masters while a proof is needed."""
ANSWER_SECS = 1.0
"""Timeout for a master's answer."""
REACHABILITY_SECS = 0.3
"""A master that gets no answer from ZooKeeper within this time reports that it sees none. A frozen
server keeps connections open."""
LOOK_SECS = 1.0
SHORTEST_LOOK_SECS = 0.05
"""Longest and shortest interval between checks whether a proof is needed, while a worker runs
here."""
IDLE_LOOK_SECS = 1.0
"""The same interval while no worker runs here: a worker may start at any time."""
FORGET_SECS = 600.0
"""How long a master counts after its registration has disappeared. It may return, and lead before
this host learns of it."""

Known = tuple[MasterId, str]
"""A master and its URL. A master that has moved counts twice, once per URL."""


def is_proof(said: Mapping[Known, OutageView | None], generation: int) -> bool:
    """Whether the answers of all known masters form a proof. None stands for a missing answer.

    `generation` belongs to the assignment that this host has adopted.
    """
    return bool(said) and not unheard_of(said) and all(_proves(view, generation) for view in said.values())


def unheard_of(said: Mapping[Known, OutageView | None]) -> frozenset[Known]:
    """Returns masters that an answer named but that were not asked."""
    named = {known for view in said.values() if view is not None for known in view.masters.items()}
    return frozenset(named - said.keys())


def good_until(written_at: float, known_at: float, lease: float, proven: float) -> float:
    """Returns the latest time at which asking the masters can still give a proof.

    Later, other hosts may already have been given everything that runs here. `lease` and `proven`
    are the times until which the lease and the last proof protected it. A host that has not read
    the masters since the write that its lease counts from may not know all of them, so no proof
    counts.
    """
    return max(lease, proven) if known_at >= written_at else NEVER


def look_secs(timeout: float, *, busy: bool) -> float:
    """Returns the seconds until the next check whether a proof is needed."""
    return min(LOOK_SECS, max(SHORTEST_LOOK_SECS, timeout / 20)) if busy else IDLE_LOOK_SECS


def _proves(view: OutageView | None, generation: int) -> bool:
    return view is not None and not view.sees and view.newest == generation


class IsolatedHost(Protocol):
    """The workers of this host, as far as isolation concerns them."""

    @property
    def busy(self) -> bool:
        """Whether any worker runs here."""
        ...

    @property
    def generation(self) -> int:
        """Generation of the assignment that this host has adopted."""
        ...

    def prolonged(self) -> None:
        """Called when the workers may run longer than before."""


class Registered(Protocol):
    """The registered masters, as this host last read them."""

    @property
    def known_at(self) -> float:
        """When this host last asked ZooKeeper for the registered masters (monotonic)."""
        ...

    def masters(self) -> Mapping[MasterId, str]: ...


class Isolation:
    def __init__(self, http: Http, supervisor: SupervisorId, registered: Registered) -> None:
        self._http = http
        self._supervisor = supervisor
        self._registered = registered
        self._seen: dict[MasterId, tuple[str, float]] = {}
        """Each master's URL, and when it was last registered, on the host's clock."""
        self._named: frozenset[Known] = frozenset()
        """Masters that other masters named during the current ZooKeeper outage."""
        self._inherited_until = NEVER
        self.proven = NEVER
        """Until when no other host can have been given what is assigned here, on the host's
        clock."""

    def resume(self, left: Inherited) -> None:
        """Continues from what the previous process left. Call it before `watch`."""
        self._seen = dict(left.to_prove.masters)
        if left.to_prove.informed:
            self.proven, self._inherited_until = left.proven, left.kill

    def for_next_process(self, barriers: Barriers) -> ToProve:
        """Returns what the next process needs to obtain proofs."""
        self._look()
        return ToProve(barriers.timeout, self._seen, self._registered.known_at >= barriers.lease.sent)

    async def watch(self, barriers: Barriers, host: IsolatedHost) -> None:
        """Asks the masters whether they see ZooKeeper while our own writes are unanswered."""
        while True:
            asking = await self.prolong(barriers, host)
            await asyncio.sleep(ASK_AGAIN_SECS if asking else look_secs(barriers.timeout, busy=host.busy))

    async def prolong(self, barriers: Barriers, host: IsolatedHost) -> bool:
        """Looks for a proof if one is needed. Returns whether one was needed."""
        self._look()
        if not (host.busy and self._needs_proof(barriers)):
            self._named = frozenset()
            return False
        asked, good_until = clock(), self._good_until(barriers)
        if await self._may_run_isolated(host.generation) and asked < good_until:
            self.proven = asked + PROOF_SECS
            host.prolonged()
        return True

    def _needs_proof(self, barriers: Barriers) -> bool:
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
        said = dict(await asyncio.gather(*map(self._ask, known)))
        self._named |= unheard_of(said)
        return is_proof(said, generation)

    async def _ask(self, known: Known) -> tuple[Known, OutageView | None]:
        params = {"supervisor": self._supervisor, "within": f"{REACHABILITY_SECS:g}"}
        try:
            async with asyncio.timeout(ANSWER_SECS):
                response = await self._http.get(f"{known[1]}/v1/sight", params=params)
            return known, result_of(response, OutageView)
        except (HttpError, Broken, TorrentdistError, TimeoutError):
            return known, None
