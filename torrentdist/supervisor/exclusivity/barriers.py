"""The loop that takes, renews and releases the barriers of this host's workers in ZooKeeper.

cluster/rebalance/barrier_ownership.py defines the requests and the meaning of their answers.
Always: only we delete a barrier, and only after the plan has released it. The lease counts from
before the last acknowledged write of this session was sent. A session is saved before it is used,
so that the next process can resume it; a full disk alone does not prevent its use.
Never: decide which barriers are wanted.
Longer than most files: the barriers and the lease change together.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection

import msgspec
from msgspec.structs import replace

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
from torrentdist.log import get_logger
from torrentdist.model.ids import new_random_id
from torrentdist.supervisor.worker.fencing_number import fencing_of
from torrentdist.supervisor.worker.worker_types import Barrier, Key

log = get_logger()

RENEW_WITHIN_SECS = 1.0
"""Longest pause between two rounds of the loop."""
IDLE_SECS = 10.0
"""The same while this host has and wants no barrier. A worker that wants one wakes the loop."""
RECHECK_SECS = 10.0
"""Interval between checks that our barriers still exist: an administrator may have deleted one."""


class Seat(msgspec.Struct, frozen=True):
    """What the next process needs to resume a session and its barriers."""

    session: SessionId
    unique: str
    """Prefix of the names of our znodes in this session."""
    user: str = ""
    """The ZooKeeper user that owns them; empty: one that many hosts share."""


class HostLease(msgspec.Struct, frozen=True):
    """The lease on the host's clock (run_lease.clock), which keeps running while the host
    sleeps."""

    session: int | None
    stop: float
    kill: float
    lease_secs: float
    """Seconds from sending the write to `stop`."""


KILL_SHARE = 1 / 20
"""Share of the session timeout between the time when workers are killed and the end of the
lease."""


class Barriers:
    def __init__(
        self,
        zk: ZooKeeper,
        save: Callable[[Seat], Awaitable[None]],
        on_change: Callable[[], None],
        on_lease: Callable[[], None],
    ) -> None:
        """`save` is called with every new session before the session is used, `on_change` when
        anything may have changed, and `on_lease` when a write that renews the lease has been
        sent."""
        self._zk = zk
        self._save = save
        self._on_lease = on_lease
        self._on_change = on_change
        self._group = paths.jobs_group(zk.identity.host, zk.identity.host_user)
        self._ownership = BarrierOwnership(self._group, new_random_id("host"))
        self._timeout = 0.0
        """Timeout in seconds of the last session in which a write was acknowledged."""
        self._boot = 0.0
        """How far the host's clock was ahead of the monotonic clock at the last write."""
        self._wanted: frozenset[str] = frozenset()
        self._in_use: frozenset[str] = frozenset()
        self._marks: list[asyncio.Future[int]] = []
        self._fired: list[str] = []
        """Paths of watches that fired, until the answers that they may contradict are in."""
        self._busy: Errand | None = None
        self._checked_at = time.monotonic()
        self._wake = asyncio.Event()
        self._trouble = trouble_of_asking()

    def resume(self, seat: Seat, resources: Collection[str], timeout: float) -> None:
        """Resumes the session of the previous process, which may own these barriers. Call it before
        `run`.

        The barriers count as wanted until the plan releases them: a worker may start as soon as its
        barrier is known to be ours, and no release may be in progress then.
        """
        self._timeout = timeout
        fresh = BarrierOwnership(self._group, seat.unique, session=seat.session.id)
        self._ownership = replace(fresh, unclear=frozenset(resources), entering=True)
        self._wanted = self._in_use = frozenset(resources)

    # the plan's view

    def state_of(self, resource: str) -> Barrier:
        return barrier_state(resource, self._ownership, self._busy, self._wanted, self._in_use)

    @property
    def session(self) -> int | None:
        return self._ownership.session

    @property
    def lease(self) -> BarrierLease:
        return self._ownership.lease

    @property
    def leased(self) -> bool:
        """Whether a write in this session was acknowledged."""
        return self.lease.sent != NEVER

    @property
    def kill_at(self) -> float:
        return self.lease.end - KILL_SHARE * self.lease.timeout

    @property
    def timeout(self) -> float:
        return self._timeout

    @property
    def ending_secs(self) -> float:
        """Seconds between the stop and the kill time of every lease."""
        return (STOP_SHARE - KILL_SHARE) * self._timeout

    def host_lease(self) -> HostLease:
        lease = self.lease
        return HostLease(self.session, lease.stop + self._boot, self.kill_at + self._boot, lease.stop - lease.sent)

    def take(self, resource: str) -> None:
        self._wanted |= {resource}
        self._ownership = self._ownership.wants_changed()
        self._wake.set()

    def release(self, resource: str) -> None:
        if resource in self._wanted:
            self._wanted -= {resource}
            self._wake.set()

    def use(self, resources: Collection[str]) -> None:
        """Keeps the barriers of these workers even if they are not wanted, because the workers run
        or may run."""
        if frozenset(resources) != self._in_use:
            self._in_use = frozenset(resources)
            self._wake.set()

    async def mark(self) -> int:
        """Makes a write in our session, and returns its zxid."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._marks.append(future)
        self._wake.set()
        return await future

    async def fencing(self) -> int:
        """Returns a fencing number for a start. It is higher than that of any earlier start in this
        cluster."""
        zxid = await self.mark()
        epoch = await self._zk.exists(paths.EPOCH)
        return fencing_of(0, 0, zxid) if epoch is None else fencing_of(epoch.version, epoch.modified_zxid, zxid)

    # the loop

    async def run(self) -> None:
        self._zk.on_state.append(self._on_state)
        try:
            while True:
                self._wake.clear()
                await self._enter_session()
                self._hear_watches()
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
        # Do not wait for the answer to a pending request: workers without barriers must not run
        # on until then.
        if self._zk.session_id != self._ownership.session:
            self._ownership = self._ownership.in_session(None)
        self._wake.set()
        self._on_change()

    async def _enter_session(self) -> None:
        session = self._zk.session
        if session is None or session.id == self._ownership.session or self._zk.state is not SessionState.CONNECTED:
            return
        seat = Seat(session, new_random_id("host"), self._zk.identity.host_user)
        await self._save(seat)
        if self._zk.session_id == session.id:
            log.info("barriers are held in a new session")
            self._ownership = BarrierOwnership(self._group, seat.unique, session=session.id)
            self._on_change()

    def _recheck(self, now: float) -> None:
        if now < self._checked_at + RECHECK_SECS or not self._ownership.placed:
            return
        self._checked_at = now
        ownership = self._ownership
        self._ownership = replace(ownership, owned={}, unclear=ownership.unclear | ownership.owned.keys())

    def _next(self, now: float) -> Errand | None:
        ownership = self._ownership
        entering = bool(self._wanted or self._in_use or self._marks)
        errand = ownership.upkeep(now, entering=entering)
        if errand is None and self._marks and ownership.placed:
            errand = Errand(RequestKind.RENEW, ownership.guarded())
        errand = errand or ownership.surrender(self._wanted, self._in_use) or ownership.acquisition(self._wanted, now)
        if errand is None and not entering:
            errand = ownership.departure()
        return errand

    async def _rest(self) -> None:
        pause = RENEW_WITHIN_SECS if self._wanted or self._in_use else IDLE_SECS
        if self._ownership.placed:
            pause = min(RENEW_WITHIN_SECS, max(0.0, self.lease.renewal - time.monotonic()))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._wake.wait()

    async def _do(self, errand: Errand) -> None:
        sent, boot, session = time.monotonic(), clock() - time.monotonic(), self._zk.session_id
        marks = list(self._marks) if isinstance(errand.request, Commit) and errand.kind is RequestKind.RENEW else []
        if session != self._ownership.session:
            await asyncio.sleep(0)
            return
        self._busy = errand
        if isinstance(errand.request, Commit) and self._zk.state is SessionState.CONNECTED:
            self._on_lease()  # The task that this wakes runs after the write has been sent.
        try:
            answer = await ask(self._zk, session, errand.request, self._changed, self._trouble)
        finally:
            self._busy = None
        if self._zk.session_id != session or self._ownership.session != session:
            return
        self._learn(errand, answer, sent, boot, marks)
        self._on_change()

    def _learn(
        self, errand: Errand, answer: Answer, sent: float, boot: float, marks: list[asyncio.Future[int]]
    ) -> None:
        ownership = self._ownership.answered(errand, answer)
        if isinstance(errand.request, Commit) and isinstance(answer, Done):
            ownership = replace(
                ownership, lease=BarrierLease(sent, self._zk.negotiated_timeout, ownership.lease.stop_secs)
            )
            self._boot, self._timeout = boot, ownership.lease.timeout
            for mark in marks:
                self._marks.remove(mark)
                if not mark.done():
                    mark.set_result(answer.stat(0).modified_zxid)
        self._ownership = ownership

    def _changed(self, path: str) -> None:
        self._fired.append(path)
        self._wake.set()

    def _hear_watches(self) -> None:
        fired, self._fired = self._fired, []
        for path in fired:
            self._ownership = self._ownership.barrier_changed(self._group.resource_at(path))


def barrier_state(
    resource: str, ownership: BarrierOwnership, busy: Errand | None, wanted: Collection[str], in_use: Collection[str]
) -> Barrier:
    """Returns what is known of a barrier while `busy` is not answered. One that is to be released,
    or is being released, is not held any more, also if its worker comes back meanwhile."""
    moving = busy is not None and busy.kind in (RequestKind.TAKE, RequestKind.RELEASE) and resource in busy.subject
    if moving or resource in ownership.unclear:
        return Barrier.UNCLEAR
    if resource in ownership.owned:
        return Barrier.HELD if resource in wanted or resource in in_use else Barrier.UNCLEAR
    return Barrier.ASKED if resource in wanted else Barrier.FREE


def resource_of(key: Key) -> str:
    return paths.worker_resource(*key)
