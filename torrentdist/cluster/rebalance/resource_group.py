"""Runs a member of a resource group: sends the state machines' requests to ZooKeeper and calls the
user's callbacks.

Always: `holds` is true only while the lease is valid by this host's clock, whether or not the
machines have noticed its end.
Never: decide (member_machine.py and coordinator.py do).
Longer than most files: one shell around two machines, their timers and callbacks.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping

import msgspec

from torrentdist.cluster.paths import GroupPaths
from torrentdist.cluster.rebalance import coordinator as coordination
from torrentdist.cluster.rebalance import member_machine as membership
from torrentdist.cluster.rebalance.barrier_ownership import NEVER, BarrierLease, BarrierOwnership
from torrentdist.cluster.rebalance.coordinator import Coordinator
from torrentdist.cluster.rebalance.group_records import Algorithm, MemberRecord
from torrentdist.cluster.rebalance.group_requests import Request, ask, trouble_of_asking
from torrentdist.cluster.rebalance.member_machine import MemberMachine
from torrentdist.cluster.rebalance.member_signals import (
    Answered,
    AskZooKeeper,
    CallStart,
    CallStop,
    CancelStart,
    Changed,
    Depart,
    Event,
    InSession,
    StartFailed,
    Stopped,
    Tick,
    Work,
    WorkStarted,
)
from torrentdist.cluster.session.znode_operations import SessionState
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.log import get_logger
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.records import encode

log = get_logger()

Resources = Mapping[str, int]
"""Resources with the fencing number of each grant. It exceeds that of every earlier holder."""
OnStart = Callable[[Resources], Awaitable[None]]
OnStop = Callable[[], Awaitable[None]]

_AGAIN_SECS = 0.2


class Callbacks(msgspec.Struct, frozen=True):
    """The user's code: `on_start` begins work on resources, and `on_stop` ends all work."""

    on_start: OnStart
    on_stop: OnStop


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    min_interval_secs: float = 2.0
    """Shortest interval between two rebalancings that this member starts as the coordinator."""
    patience_secs: float = 0.5
    """How long to wait for missing resources before work starts on those that are available."""
    stop_secs: float | None = None
    """How long before the end of the lease `on_stop` is called. None: a sixth of the session
    timeout."""
    max_backoff_secs: float = 30.0
    """Longest time for which a member stays out of the group after repeated failures of
    `on_start`."""


class Statistics(msgspec.Struct, frozen=True):
    member: str | None
    coordinator: bool
    generation: int
    work: Work
    resources: Resources
    waiting_for: frozenset[str]
    """Resources that have not arrived and, with the global barrier, members that everyone waits
    for."""
    start_failures: int
    rebalancings: int


class ResourceGroup:
    """A member of a group, created by `join`. Leave the group before you close the ZooKeeper
    client."""

    def __init__(
        self,
        zk: ZooKeeper,
        group: str,
        *,
        callbacks: Callbacks,
        algorithm: Algorithm,
        member_id: str,
        settings: Settings,
    ) -> None:
        self._zk = zk
        self._callbacks = callbacks
        self._settings = settings
        self._trouble = trouble_of_asking()
        self._paths = GroupPaths(group)
        data = encode(MemberRecord(id=member_id))
        self._member = MemberMachine(
            BarrierOwnership(self._paths, secrets.token_hex(8), data),
            algorithm,
            patience_secs=settings.patience_secs,
            max_backoff_secs=settings.max_backoff_secs,
        )
        self._coordinator: Coordinator | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._callback: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._moved = asyncio.Event()
        self._closed = False
        self._rebalancings = 0

    # the user's interface

    @property
    def name(self) -> str:
        return self._paths.name

    def holds(self, resource: str) -> bool:
        """Whether this member may use the resource now. Ask before each use."""
        return resource in self._member.held() and time.monotonic() < self._lease().end

    @property
    def resources(self) -> Resources:
        """Returns the resources that this member may use now, with their fencing numbers."""
        return dict(self._member.held()) if time.monotonic() < self._lease().end else {}

    def is_coordinator(self) -> bool:
        held = self._coordinator is not None and self._coordinator.epoch is not None
        return held and time.monotonic() < self._lease().end

    def statistics(self) -> Statistics:
        m, c = self._member, self._coordinator
        awaited = m.barriers_wanted - m.ownership.owned.keys()
        return Statistics(
            member=m.ownership.name,
            coordinator=self.is_coordinator(),
            generation=m.order.generation,
            work=m.work,
            resources=self.resources,
            waiting_for=frozenset(awaited) | (c.waiting_for if c else frozenset()),
            start_failures=m.failures,
            rebalancings=self._rebalancings + (c.rebalancings if c else 0),
        )

    async def wait_joined(self, timeout: float) -> None:
        await self._until(lambda: self._member.ownership.placed, timeout, f"joining the group {self.name}")

    async def leave(self, timeout: float = 30.0) -> None:
        """Stops the work, then releases the barriers and the place. Raises `timed_out` if work
        still runs.

        If ZooKeeper does not answer, the end of the session releases them.
        """
        self._feed(Depart())
        try:
            await self._until(lambda: self._member.gone, timeout, f"leaving the group {self.name}")
        except TorrentdistError:
            if self._member.work is not Work.IDLE:
                raise
        await self._close()

    async def __aenter__(self) -> ResourceGroup:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.leave()

    # running the machines

    def start(self) -> None:
        self._zk.on_state.append(self._on_state)
        self._on_state(self._zk.state)

    async def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._zk.on_state.remove(self._on_state)
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _lease(self) -> BarrierLease:
        zk, session = self._zk, self._member.ownership.session
        sent = zk.last_write_acknowledged if session is not None and session == zk.session_id else None
        return BarrierLease(NEVER if sent is None else sent, zk.negotiated_timeout, self._settings.stop_secs)

    def _on_state(self, state: SessionState) -> None:
        over = state in (SessionState.CLOSED, SessionState.LOST)
        if over or self._zk.session_id != self._member.ownership.session:
            self._feed(InSession(None if over else self._zk.session_id))

    def _feed(self, event: Event) -> None:
        if self._closed:
            return
        before = self._member
        self._member, actions = membership.step(before, event, time.monotonic())
        for action in actions:
            match action:
                case AskZooKeeper(serial, session, request):
                    self._spawn(self._ask_as_member(serial, session, request))
                case CallStart(resources):
                    self._callback = self._spawn(self._call_start(resources))
                    # Done in a callback, because a task that is cancelled before it starts runs
                    # none of its own code.
                    self._callback.add_done_callback(self._start_ended)
                case CancelStart() if self._callback is not None:
                    self._callback.cancel()
                case CallStop():
                    self._spawn(self._call_stop())
        self._follow_lead()
        self._set_timer()
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def _set_timer(self) -> None:
        now = time.monotonic()
        moments = [membership.wake_at(self._member, now)]
        if self._coordinator is not None:
            moments.append(coordination.wake_at(self._coordinator, now) or moments[0])
        if self._timer is not None:
            self._timer.cancel()
        # Slightly late rather than early: an early timer would have to wait again.
        self._timer = asyncio.get_running_loop().call_later(min(moments) - now + 0.001, self._feed, Tick())

    async def _ask_as_member(self, serial: int, session: int | None, request: Request) -> None:
        answer = await ask(self._zk, session, request, lambda path: self._feed(Changed(path)), self._trouble)
        self._feed(Answered(serial, answer, self._lease()))

    # calling the callbacks

    async def _call_start(self, resources: Resources) -> None:
        log.info("starting", group=self.name, resources=len(resources))
        await self._callbacks.on_start(resources)

    def _start_ended(self, callback: asyncio.Task[None]) -> None:
        failure = None if callback.cancelled() else callback.exception()
        if failure is not None:
            log.error("on_start failed; its resources go to others", group=self.name, exc_info=failure)
        self._feed(StartFailed() if callback.cancelled() or failure is not None else WorkStarted())

    async def _call_stop(self) -> None:
        log.info("stopping", group=self.name)
        try:
            await self._callbacks.on_stop()
        except Exception:
            log.exception("on_stop failed; by its contract nothing runs any more", group=self.name)
        self._feed(Stopped())

    # coordinating

    def _follow_lead(self) -> None:
        name = self._member.ownership.name if self._member.first else None
        current = self._coordinator
        if current is not None and (current.me != name or current.deposed):
            self._rebalancings += current.rebalancings
            self._coordinator = None
            log.info("no longer the coordinator", group=self.name, member=current.me)
            asyncio.get_running_loop().call_later(_AGAIN_SECS, self._feed, Tick())
            return
        if name is not None and current is None:
            log.info("became the coordinator", group=self.name, member=name)
            member, interval = self._member, self._settings.min_interval_secs
            self._coordinator = Coordinator(self._paths, member.algorithm, name, interval)
        self._proceed()

    def _proceed(self) -> None:
        if self._coordinator is None:
            return
        before = self._coordinator
        self._coordinator = c = coordination.proceed(before, time.monotonic())
        if c.busy is not None and c.serial != before.serial:
            self._spawn(self._ask_as_coordinator(c.me, c.serial, self._member.ownership.session, c.busy.request))

    async def _ask_as_coordinator(self, me: str, serial: int, session: int | None, request: Request) -> None:
        answer = await ask(self._zk, session, request, lambda path: self._coordinator_changed(me, path), self._trouble)
        if self._coordinator is not None and self._coordinator.me == me:
            self._coordinator = coordination.answered(self._coordinator, serial, answer, time.monotonic())
            self._feed(Tick())

    def _coordinator_changed(self, me: str, path: str) -> None:
        if self._coordinator is not None and self._coordinator.me == me:
            self._coordinator = coordination.changed(self._coordinator, path)
            self._feed(Tick())

    # tasks

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=f"group {self.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _until(self, condition: Callable[[], bool], timeout: float, what: str) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not condition():
                    await self._moved.wait()
                return
        raise TorrentdistError("timed_out", what=what, seconds=timeout)
