"""Queues for leadership in ZooKeeper, and knows whether this master leads.

Always: is_leader() is true only in the epoch that this master raised, while its lease is valid by
its own clock, and only after `ready` has agreed.
Never: decide (term.py does), or block in a callback.
Longer than most files: the five operations and the loop behind them share one state.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from torrentdist.cluster import paths
from torrentdist.cluster.election.epoch import Displaced, raise_epoch, step_aside, trim_history
from torrentdist.cluster.election.fence import Fence
from torrentdist.cluster.election.term import (
    KEEPALIVE_SHARE,
    NEXT,
    ElectionPhase,
    First,
    Ghost,
    MustQueue,
    OwnNode,
    Term,
    TermRecord,
    Waits,
    lease_end,
    queue,
    read_term,
    standing,
)
from torrentdist.cluster.session.znode_operations import (
    Delete,
    NoNode,
    SessionExpired,
    SessionState,
    Set,
    TransactionFailed,
    ZNodeError,
)
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.log import get_logger
from torrentdist.model.backoff import Retry, kind_of
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import MasterId
from torrentdist.model.records import encode

log = get_logger()

Gate = Callable[[], Awaitable[bool]]
OnTerm = Callable[[Term], None]
_FAILURES = (TorrentdistError, ZNodeError, TransactionFailed)
_FIRST_BREATH_SECS = 0.02
_LONGEST_BREATH_SECS = 0.2
"""Longest pause during a lease, when time is short."""
READY_SECS = 30.0
"""How long an elected master may take to become ready before it gives way."""
_LONGEST_PAUSE = 10
"""The longest pause after repeated failures, as a multiple of the first."""


class LeaderElector(Protocol):
    """The five operations of a leader elector."""

    async def queue_up(self) -> None:
        """Joins the queue if not in it. Returns at once: ask is_leader() before every act of a
        leader."""

    async def leave_queue(self) -> None:
        """Leaves the queue, and gives up leadership."""

    def is_leader(self) -> bool: ...

    async def leader(self) -> MasterId:
        """Returns the leader. Raises `no_leader` if there is none."""

    async def candidates(self) -> list[MasterId]:
        """Returns the masters in the queue, in order, including the leader."""


class Elector:
    """A LeaderElector on ephemeral sequential znodes. Register `master` before calling
    queue_up()."""

    def __init__(
        self,
        zk: ZooKeeper,
        master: MasterId,
        ready: Gate,
        *,
        on_gained: OnTerm = lambda term: None,
        on_lost: OnTerm = lambda term: None,
        pause_secs: float = 1.0,
    ) -> None:
        self._zk = zk
        self._master = master
        self._ready = ready
        self._on_gained = on_gained
        self._on_lost = on_lost
        self._pause_secs = pause_secs
        self._trouble = Retry(pause_secs, pause_secs * _LONGEST_PAUSE)
        self._no_keepalive = Retry(_FIRST_BREATH_SECS, _LONGEST_BREATH_SECS)
        self._unique = secrets.token_hex(8)
        self._own: OwnNode | None = None
        self._watched: set[str] = set()
        self._wake = asyncio.Event()
        self._again = asyncio.Event()
        self._yielding: str | None = None
        self._successor = ""
        self._task: asyncio.Task[None] | None = None
        self._cleaning: asyncio.Task[None] | None = None
        self._raised: Term | None = None
        self.phase = ElectionPhase.OUT
        self.term: Term | None = None

    # the five operations, and related ones

    async def queue_up(self) -> None:
        self._again.set()
        if self._cleaning is not None:
            self._cleaning.cancel()
        if self._task is None:
            self._zk.on_state.append(self._on_state)
            self._task = asyncio.create_task(self._run(), name="elector")

    async def leave_queue(self, reason: str = "stopped", successor: str = "") -> None:
        """Leaves the queue. `successor` is the znode in the queue that should lead next; empty for
        the next in line."""
        task, self._task = self._task, None
        if task is None:
            return
        self._zk.on_state.remove(self._on_state)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        own, self._successor = self._own, successor
        if not await self._resign(reason) and own is not None:
            # If the session lives on, a znode left behind would be first one day, and nobody
            # would lead.
            self._cleaning = asyncio.create_task(self._clean(own), name="elector-cleaning")
        self._enter(ElectionPhase.OUT)

    async def _clean(self, own: OwnNode) -> None:
        while self._zk.state is not SessionState.CLOSED and self._zk.session_id in (own.owner, None):
            with contextlib.suppress(NoNode, TorrentdistError):
                await self._zk.delete(paths.election_node(own.name))
                return
            await asyncio.sleep(self._pause_secs)

    def is_leader(self) -> bool:
        term = self.term
        return term is not None and term.session == self._zk.session_id and time.monotonic() < self._lease_end()

    async def leader(self) -> MasterId:
        found, names = await self._zk.get(paths.EPOCH), await self._zk.children(paths.ELECTION)
        record = read_term(found[0]) if found else None
        leader = record.leader_among(names or ()) if record else None
        if leader is None:
            raise TorrentdistError("no_leader")
        return leader

    async def candidates(self) -> list[MasterId]:
        names = queue(await self._zk.children(paths.ELECTION) or ())
        found = await asyncio.gather(*(self._zk.get(paths.election_node(name)) for name in names))
        return [MasterId(node[0].decode(errors="replace")) for node in found if node is not None]

    def fence(self) -> Fence:
        """Returns the fence of this term. Raises `not_leader` if this master does not lead."""
        term = self.term
        if term is None or not self.is_leader():
            raise TorrentdistError("not_leader")
        return Fence(self._zk, term, lambda: self.term is term and self.is_leader())

    async def elected_fence(self) -> Fence:
        """Returns a fence for the few changes that an elected master may make before it is ready.

        The first in the queue stays first while its znode exists. The fence checks the last
        leader's epoch, so no other master has led since.
        """
        own, found = self._own, await self._zk.get(paths.EPOCH)
        if self.phase is not ElectionPhase.ELECTED or own is None or found is None:
            raise TorrentdistError("not_leader")
        term = Term(found[1].version, paths.election_node(own.name), own.owner)
        held = lambda: self.phase is ElectionPhase.ELECTED and self._own is own  # noqa: E731
        return Fence(self._zk, term, held, word="committed while elected")

    def give_way(self, reason: str) -> None:
        """Lets another master lead, and queues again after a pause."""
        if self.phase in (ElectionPhase.ELECTED, ElectionPhase.LEADING):
            self._yielding = reason
            self._wake.set()

    def hand_over(self, place: str) -> None:
        """Gives way to the master that owns this znode of the queue."""
        if self.is_leader():
            self._successor = place
            self.give_way("transferred")

    def _gives_way(self) -> bool:
        return self._yielding is not None

    # contending

    def _on_state(self, state: SessionState) -> None:
        self._wake.set()
        if state is SessionState.CONNECTED:
            self._again.set()

    async def _run(self) -> None:
        while True:
            self._again.clear()
            pause_secs = self._pause_secs
            try:
                await self._contend()
            except Displaced:
                log.info("our election znode is gone, queueing again", master=self._master)
            except Exception as exc:
                if self._trouble.failed(kind_of(exc)):
                    expected = isinstance(exc, _FAILURES)
                    log.info("the elector tries again", reason=str(exc), exc_info=None if expected else exc)
                pause_secs = self._trouble.pause_secs
            else:
                await self._resign(self._yielding or "gave way")
            self._lose()
            self._enter(ElectionPhase.PAUSED)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_secs):
                    await self._again.wait()

    async def _contend(self) -> None:
        """Queues, leads, and returns when this master gives way. Raises any other reason for its
        end."""
        self._yielding, self._successor = None, ""
        self._own = await self._place()
        self._enter(ElectionPhase.QUEUED)
        self._trouble.succeeded()
        while True:
            self._wake.clear()
            match standing(await self._zk.children(paths.ELECTION) or (), self._own, self._zk.session_id):
                case MustQueue() | Ghost():
                    raise Displaced
                case Waits(predecessor):
                    self._enter(ElectionPhase.QUEUED)
                    if await self._watch(self._own.name) and await self._watch(predecessor):
                        await self._wake.wait()
                case First():
                    prefix = paths.election_prefix(self._unique)
                    if (behind := await step_aside(self._zk, self._own, self._master, prefix)) is not None:
                        self._own = behind
                        continue
                    self._enter(ElectionPhase.ELECTED)
                    if not await self._is_ready():
                        return
                    await self._lead(self._own)
                    if self._gives_way():
                        return

    async def _watch(self, name: str) -> bool:
        """Watches for the deletion of a znode. Returns False if it no longer exists.

        Ignores changes of its data, which every keep-alive causes.
        """
        if name in self._watched:
            return True
        self._watched.add(name)  # Before the read, since the watch may fire before the answer is handled.
        exists = False
        try:
            exists = await self._zk.children(paths.election_node(name), lambda: self._gone(name)) is not None
        finally:
            if not exists:
                self._watched.discard(name)
        return exists

    def _gone(self, name: str) -> None:
        self._watched.discard(name)
        self._wake.set()

    async def _is_ready(self) -> bool:
        try:
            async with asyncio.timeout(READY_SECS):
                return await self._ready()
        except TimeoutError:
            log.warning("not ready in time", seconds=READY_SECS)
        except TorrentdistError as error:
            log.info("cannot tell whether this master is ready", reason=error.message)
        except Exception:
            log.exception("the check whether this master is ready failed")
        return False

    # our election znode

    async def _place(self) -> OwnNode:
        """Returns our znode of this session, and creates it if it is missing. Never creates a
        second one."""
        await self._zk.ensure(paths.ELECTION)
        while True:
            await self._zk.sync()  # This reveals a znode whose creation was not acknowledged.
            for name in queue(await self._zk.children(paths.ELECTION) or ()):
                own = await self._own_or_removed(name)
                if own is not None:
                    return own
            try:
                prefix = paths.election_prefix(self._unique)
                await self._zk.create(prefix, self._master.encode(), ephemeral=True, sequential=True)
            except TorrentdistError as exc:
                if exc.code != "outcome_unknown":
                    raise

    async def _own_or_removed(self, name: str) -> OwnNode | None:
        """Returns this znode if it belongs to our current session. Removes it if it belongs to an
        older session of ours."""
        path = paths.election_node(name)
        found = await self._zk.get(path)
        if found is None or found[0].decode(errors="replace") != self._master:
            return None
        owner = found[1].ephemeral_owner
        if owner == self._zk.session_id and name.startswith(f"{self._unique}-"):
            return OwnNode(name, owner)
        registered = await self._zk.exists(paths.master(self._master))
        if registered is not None and registered.ephemeral_owner == self._zk.session_id:
            log.info("removing this master's election znode of an earlier session", znode=name)
            with contextlib.suppress(NoNode):
                await self._zk.delete(path)
        return None

    async def _resign(self, reason: str) -> bool:
        """Stops acting, then frees our place. A leader records the reason in the same transaction.

        Returns False if it is not certain that the place is free.
        """
        self._lose()
        own, self._own = self._own, None
        term, self._raised = self._raised, None
        if own is None:
            return True
        path = paths.election_node(own.name)
        try:
            if term is not None and term.election == path:
                left = TermRecord(leader=self._master, election=own.name, left=reason, successor=self._successor)
                # Another master has raised the epoch, or deposed us.
                with contextlib.suppress(TransactionFailed):
                    await self._zk.commit([Delete(path), Set(paths.EPOCH, encode(left), term.epoch)])
                    return True
            with contextlib.suppress(NoNode):
                await self._zk.delete(path)
        except TorrentdistError as exc:
            log.info("cannot remove our election znode", reason=exc.message)
            return False
        return True

    # leading

    async def _lead(self, own: OwnNode) -> None:
        """Raises the epoch and renews the lease, until the lease ends, our znode disappears, or
        another master is to lead."""
        term = await raise_epoch(self._zk, own, self._master)
        if not self._gain(term):
            return
        try:
            with contextlib.suppress(*_FAILURES):
                await trim_history(self._zk, self.fence())
            while self.is_leader():
                self._wake.clear()
                if self._gives_way() or not await self._renew(own):
                    break
            if not self._gives_way():
                log.warning("this master has lost its leadership", master=self._master, epoch=term.epoch)
        finally:
            self._lose()

    async def _renew(self, own: OwnNode) -> bool:
        """Sends one keep-alive when it is due, or earlier when woken. Returns False if our znode
        has disappeared.

        An outage alone does not end the term: the keep-alive can be repeated until the lease ends.
        """
        try:
            async with asyncio.timeout_at(_loop_time(self._lease_end())):
                if not await self._watch(own.name):
                    return False
                await self._sleep_until_renewal()
                await self._zk.set(paths.election_node(own.name), self._master.encode())
                self._no_keepalive.succeeded()
        except TimeoutError:
            log.warning("the lease has ended", master=self._master)
        except (NoNode, SessionExpired):
            return False
        except TorrentdistError as exc:
            if self._no_keepalive.failed(exc.code):
                log.info("the keep-alive failed", reason=exc.message)
            await asyncio.sleep(self._no_keepalive.pause_secs)
        return True

    async def _sleep_until_renewal(self) -> None:
        renewal = self._lease_end() - self._zk.negotiated_timeout * KEEPALIVE_SHARE
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(_loop_time(renewal)):
                await self._wake.wait()

    def _lease_end(self) -> float:
        return lease_end(self._zk.last_write_acknowledged, self._zk.negotiated_timeout)

    def _gain(self, term: Term) -> bool:
        if term.session != self._zk.session_id:
            return False
        self.term = self._raised = term
        self._enter(ElectionPhase.LEADING)
        log.info("this master leads", master=self._master, epoch=term.epoch)
        self._on_gained(term)
        return True

    def _lose(self) -> None:
        term, self.term = self.term, None
        if term is not None:
            self._enter(ElectionPhase.PAUSED if self._gives_way() else ElectionPhase.QUEUED)
            log.info("this master no longer leads", master=self._master, epoch=term.epoch)
            self._on_lost(term)

    def _enter(self, phase: ElectionPhase) -> None:
        if phase is not self.phase:
            assert phase in NEXT[self.phase], (self.phase, phase)
            self.phase = phase


def _loop_time(monotonic: float) -> float:
    """Converts a time.monotonic() value to the running loop's clock."""
    return asyncio.get_running_loop().time() + monotonic - time.monotonic()
