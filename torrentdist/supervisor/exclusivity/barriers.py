"""The barriers of this host's workers in ZooKeeper, owned by cluster/rebalance/barrier_ownership.py.

Always holds: a barrier is deleted only by us, when the plan gave it back; the lease counts from before the sending of
the last acknowledged write of this session; a session counts only when it was saved, to be taken up after a crash, if
there was room.
Must not do: decide what is wanted.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace

import structlog

from torrentdist.cluster import paths
from torrentdist.cluster.rebalance.barrier_ownership import NEVER, STOP_SHARE, BarrierLease, BarrierOwnership
from torrentdist.cluster.rebalance.group_requests import (
    Answer,
    Commit,
    Done,
    Errand,
    RequestKind,
    ask,
    trouble_of_asking,
)
from torrentdist.cluster.session.znode_operations import SessionId, SessionState
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.launcher.run.run_lease import clock
from torrentdist.model.ids import new_random_id
from torrentdist.supervisor.worker.fencing_number import fencing_of
from torrentdist.supervisor.worker.worker_plan import Barrier, Key

log = structlog.get_logger(__name__)

RENEW_WITHIN_SECS = 1.0
"""It looks at itself this often, at least."""
RECHECK_SECS = 10.0
"""How often it looks whether its barriers are really there: an administrator may have deleted one."""


@dataclass(frozen=True)
class Seat:
    """What has to be known to take up a session with its barriers."""

    session: SessionId
    unique: str
    """How our znodes in it begin."""


@dataclass(frozen=True)
class HostLease:
    """The lease on the host's own clock (guardian.clock), which no sleep of the host stops."""

    session: int | None
    stop: float
    kill: float
    extent: float
    """How long before `stop` the write was sent."""


KILL_SHARE = 1 / 20
"""The share of the session's timeout before the lease's end at which the killing begins."""


class Barriers:
    """`save` is called with every new session before anything is done in it; `on_change` when anything may differ;
    `on_lease` when a write that keeps the lease is on its way."""

    def __init__(
        self,
        zk: ZooKeeper,
        save: Callable[[Seat], Awaitable[None]],
        on_change: Callable[[], None],
        on_lease: Callable[[], None],
    ) -> None:
        self._zk = zk
        self._save = save
        self._on_lease = on_lease
        self._on_change = on_change
        self._tenure = BarrierOwnership(paths.JOB_GROUP, new_random_id("host"))
        self._timeout = 0.0
        """Of the last session in which a write was acknowledged."""
        self._boot = 0.0
        """The host's clock at the last write, less the monotonic one."""
        self._wanted: frozenset[str] = frozenset()
        self._in_use: frozenset[str] = frozenset()
        self._marks: list[asyncio.Future[int]] = []
        self._busy: Errand | None = None
        self._checked_at = time.monotonic()
        self._wake = asyncio.Event()
        self._trouble = trouble_of_asking()

    def take_up(self, seat: Seat, in_use: Collection[str], timeout: float) -> None:
        """Before `run`: go on in the session of the process before us, in which these workers run."""
        self._timeout = timeout
        fresh = BarrierOwnership(paths.JOB_GROUP, seat.unique, session=seat.session.id)
        self._tenure = replace(fresh, unclear=frozenset(in_use), entering=True)
        self._in_use = frozenset(in_use)

    # what the plan sees and says

    def state_of(self, resource: str) -> Barrier:
        tenure = self._tenure
        if resource in tenure.owned:
            return Barrier.HELD
        if resource in tenure.unclear or self._taking(resource):
            return Barrier.UNCLEAR
        return Barrier.ASKED if resource in self._wanted else Barrier.FREE

    def _taking(self, resource: str) -> bool:
        busy = self._busy
        return busy is not None and busy.kind is RequestKind.TAKE and resource in busy.subject

    @property
    def session(self) -> int | None:
        return self._tenure.session

    @property
    def lease(self) -> BarrierLease:
        return self._tenure.lease

    @property
    def leased(self) -> bool:
        """Whether a write of this session was acknowledged."""
        return self.lease.sent != NEVER

    @property
    def kill_at(self) -> float:
        return self.lease.end - KILL_SHARE * self.lease.timeout

    @property
    def timeout(self) -> float:
        return self._timeout

    @property
    def ending_secs(self) -> float:
        """Between the two, with any lease."""
        return (STOP_SHARE - KILL_SHARE) * self._timeout

    def host_lease(self) -> HostLease:
        lease = self.lease
        return HostLease(self.session, lease.stop + self._boot, self.kill_at + self._boot, lease.stop - lease.sent)

    def take(self, resource: str) -> None:
        self._wanted |= {resource}
        self._tenure = self._tenure.wants_changed()
        self._wake.set()

    def release(self, resource: str) -> None:
        if resource in self._wanted:
            self._wanted -= {resource}
            self._wake.set()

    def use(self, resources: Collection[str]) -> None:
        """Something of these workers runs, or may run: their barriers stay, wanted or not."""
        if frozenset(resources) != self._in_use:
            self._in_use = frozenset(resources)
            self._wake.set()

    async def mark(self) -> int:
        """A write of now, in our session: its transaction."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._marks.append(future)
        self._wake.set()
        return await future

    async def fencing(self) -> int:
        """A number for a start of now, higher than that of any earlier one of anybody."""
        zxid = await self.mark()
        epoch = await self._zk.exists(paths.EPOCH)
        return fencing_of(0, 0, zxid) if epoch is None else fencing_of(epoch.version, epoch.modified_zxid, zxid)

    # at work

    async def run(self) -> None:
        self._zk.on_state.append(self._on_state)
        try:
            while True:
                self._wake.clear()
                await self._enter_session()
                self._recheck(time.monotonic())
                errand = self._next(time.monotonic())
                if errand is None:
                    await self._rest()
                else:
                    await self._do(errand)
        finally:
            self._zk.on_state.remove(self._on_state)
            for mark in self._marks:
                mark.cancel()

    def _on_state(self, _: SessionState) -> None:
        # At once: whoever holds nothing any more must hear of it without waiting for a request under way.
        if self._zk.session_id != self._tenure.session:
            self._tenure = self._tenure.in_session(None)
        self._wake.set()
        self._on_change()

    async def _enter_session(self) -> None:
        session = self._zk.session
        if session is None or session.id == self._tenure.session or self._zk.state is not SessionState.CONNECTED:
            return
        seat = Seat(session, new_random_id("host"))
        await self._save(seat)
        if self._zk.session_id == session.id:
            log.info("barriers are held in a new session")
            self._tenure = BarrierOwnership(paths.JOB_GROUP, seat.unique, session=session.id)
            self._on_change()

    def _recheck(self, now: float) -> None:
        if now < self._checked_at + RECHECK_SECS or not self._tenure.placed:
            return
        self._checked_at = now
        tenure = self._tenure
        self._tenure = replace(tenure, owned={}, unclear=tenure.unclear | tenure.owned.keys())

    def _next(self, now: float) -> Errand | None:
        tenure = self._tenure
        entering = bool(self._wanted or self._in_use or self._marks)
        errand = tenure.upkeep(now, entering=entering)
        if errand is None and self._marks and tenure.placed:
            errand = Errand(RequestKind.RENEW, tenure.guarded())
        errand = errand or tenure.surrender(self._wanted, self._in_use) or tenure.acquisition(self._wanted, now)
        if errand is None and not entering:
            errand = tenure.departure()
        return errand

    async def _rest(self) -> None:
        pause = RENEW_WITHIN_SECS
        if self._tenure.placed:
            pause = min(pause, max(0.0, self.lease.renewal - time.monotonic()))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._wake.wait()

    async def _do(self, errand: Errand) -> None:
        sent, boot, session = time.monotonic(), clock() - time.monotonic(), self._zk.session_id
        marks = list(self._marks) if isinstance(errand.request, Commit) and errand.kind is RequestKind.RENEW else []
        if session != self._tenure.session:
            await asyncio.sleep(0)
            return
        self._busy = errand
        if isinstance(errand.request, Commit) and self._zk.state is SessionState.CONNECTED:
            self._on_lease()  # a task hears of it, and so after the write is on its way
        try:
            answer = await ask(self._zk, session, errand.request, self._changed, self._trouble)
        finally:
            self._busy = None
        if self._zk.session_id != session or self._tenure.session != session:
            return
        self._learn(errand, answer, sent, boot, marks)
        self._on_change()

    def _learn(
        self, errand: Errand, answer: Answer, sent: float, boot: float, marks: list[asyncio.Future[int]]
    ) -> None:
        tenure = self._tenure.answered(errand, answer)
        if isinstance(errand.request, Commit) and isinstance(answer, Done):
            tenure = replace(tenure, lease=BarrierLease(sent, self._zk.negotiated_timeout, tenure.lease.stop_secs))
            self._boot, self._timeout = boot, tenure.lease.timeout
            for mark in marks:
                self._marks.remove(mark)
                if not mark.done():
                    mark.set_result(answer.stat(0).modified_zxid)
        self._tenure = tenure

    def _changed(self, path: str) -> None:
        self._tenure = self._tenure.barrier_changed(paths.name(path))
        self._wake.set()


def resource_of(key: Key) -> str:
    return paths.worker_resource(*key)
