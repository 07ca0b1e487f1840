"""The connection of a simulated KazooClient to the simulated ZooKeeper: its session, its pings, and
the way of requests, answers and watches.

Always: requests reach the server in order, and answers and watches come back in order. A request
whose answer the connection did not outlive fails with ConnectionLoss, executed or not.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.protocol.states import KazooState, KeeperState
from simulation.host_process import HERE, Died
from simulation.kazoo_answers import Answer, Lane, Watcher, Wire
from simulation.simulated_network import SimulatedNetwork
from simulation.simulated_zookeeper import SimulatedZooKeeper
from simulation.znode_access import identities_of
from simulation.znodes import ServerSession

ZK = "zookeeper"
AGAIN_SECS = (0.05, 0.4)
OVERHEAD = 64
"""Bytes of an operation on the wire besides its path and data, at least."""


class KazooConnection:
    """The loop, server, network and chance are set once for all clients of a story."""

    loop: asyncio.AbstractEventLoop
    server: SimulatedZooKeeper
    network: SimulatedNetwork
    rng: random.Random

    def __init__(self, hosts: str, timeout: float, client_id: tuple[int, bytes] | None = None, **options: Any) -> None:
        self._timeout, self._auth = timeout, identities_of(options.get("auth_data", ()))
        self._process = HERE.get()
        self.address = self._process.address
        self._context = copy_context()
        self._connection = Wire()
        self._stopped = threading.Event()
        self._listeners: list[Callable[[str], None]] = []
        self._session_id, self._session_passwd = client_id or (0, b"\0" * 16)
        self.last_zxid = 0
        self.client_state = KeeperState.CLOSED
        self._state = KazooState.LOST
        self._session: ServerSession | None = None
        self._pending: list[Answer] = []
        self._watchers: dict[Watcher, None] = {}
        """The watches whose answer came. Only these fire when the connection is lost."""
        self._set: list[Watcher] = []
        """The watches that the server has just set for the request that it executes."""
        self._unheard: dict[Watcher, None] = {}
        self._epoch = 0
        """Counts connections, so that what belongs to an older one is dropped."""
        self._arrives = self._returns = 0.0
        self._there = Lane(self._passes, self._later)
        self._back = Lane(lambda: self.network.passes(ZK, self.address), self._later)
        self._heard = 0.0
        self._process.at_death.append(self._leave)

    @property
    def client_id(self) -> tuple[int, bytes]:
        return self._session_id, self._session_passwd

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self._listeners.append(listener)

    def start_async(self) -> None:
        self._later(self.rng.uniform(0.001, 0.01), self._try)

    def stop(self) -> None:
        session = self._session
        if session is not None and self._passes():
            self.server.end_session(session.id)
        self._stopped.set()
        self._drop(KeeperState.CLOSED, KazooState.LOST, kazoo_errors.ConnectionClosedError())

    def close(self) -> None:
        """Closes the connection. A session that was not ended lives until its timeout."""
        self._stopped.set()
        self._leave()

    def _ask(self, work: Callable[[], Any], size: int = OVERHEAD, *, reads: bool = False) -> Answer:
        answer = Answer()
        self._process.calls += 1
        if self._stopped.is_set():
            answer.end(exception=kazoo_errors.ConnectionClosedError())
            return answer
        if self._session is None:
            # kazoo keeps the request until it is connected; ours comes only with the next try.
            answer.end(exception=kazoo_errors.ConnectionLoss())
            return answer
        if not reads and self._process.dies_unsent:
            self._process.count_write()
        self._pending.append(answer)
        self._arrives = max(self._arrives, self.loop.time() + self._delay())
        self.loop.call_at(self._arrives, self._arrive, work, answer, size, self._epoch, reads)
        return answer

    def _delay(self) -> float:
        return self.network.delay(self._process.address, ZK)

    def is_cut_off(self) -> bool:
        """Whether the server of this client is cut off from the others."""
        return self.address in self.server.followers

    def _keep_alive(self, session: ServerSession) -> None:
        if not self.is_cut_off():
            session.heard = self.loop.time()

    def _passes(self) -> bool:
        return self.network.passes(self._process.address, ZK) and self.server.up and not self.server.frozen

    def _arrive(self, work: Callable[[], Any], answer: Answer, size: int, epoch: int, reads: bool) -> None:
        self._there.arrive(lambda: self._execute(work, answer, size, epoch, reads))

    def _execute(self, work: Callable[[], Any], answer: Answer, size: int, epoch: int, reads: bool) -> None:
        """Runs at the server."""
        if epoch != self._epoch or self._session is None or not self._process.alive:
            return
        if self.server.sessions.get(self._session.id) is not self._session:
            return  # It has expired. The client hears of it when it connects again.
        if self.is_cut_off() and not reads:
            return  # A server without a leader answers no write.
        if size > self.server.largest_request:
            self.server.senders_of_too_much[self._process.name] = None
            self._later(0.0, self._lose)
            return
        self._keep_alive(self._session)
        value: Any = None
        failed: Exception | None = None
        try:
            value = work()
        except kazoo_errors.KazooException as exc:
            failed = exc
        if not reads and not self._process.dies_unsent:
            with suppress(Died):
                self._process.count_write()
        watchers, self._set = self._set, []
        self._reply(lambda: self._answered(answer, value, failed, watchers), self.server.seen_by(self.address).zxid)

    def _reply(self, act: Callable[[], None], zxid: int = 0) -> None:
        """Sends what the server has to say, after everything that it said before."""
        self._returns = max(self._returns, self.loop.time() + self._delay())
        self.loop.call_at(self._returns, self._hear, act, zxid, self._epoch, context=self._context)

    def _hear(self, act: Callable[[], None], zxid: int, epoch: int) -> None:
        self._back.arrive(lambda: self._hear_now(act, zxid, epoch))

    def _hear_now(self, act: Callable[[], None], zxid: int, epoch: int) -> None:
        if epoch == self._epoch:
            self._heard = self.loop.time()
            self.last_zxid = max(self.last_zxid, zxid)
            act()

    def _answered(self, answer: Answer, value: Any, failed: Exception | None, watchers: list[Watcher]) -> None:
        for watcher in watchers:
            del self._unheard[watcher]
            self._watchers[watcher] = None
        if answer in self._pending:
            self._pending.remove(answer)
            answer.end(value, failed)

    def _watch(self, table: Any, path: str, watch: Any) -> None:
        if watch is not None:
            watcher = Watcher(self, watch)
            self._set.append(watcher)
            self._unheard[watcher] = None
            self.server.watch(table, path, watcher)

    def _later(self, secs: float, act: Callable[..., object], *args: Any) -> None:
        self.loop.call_later(secs, act, *args, context=self._context)

    def _try(self) -> None:
        """Tries to connect, again and again."""
        if self._stopped.is_set() or self._session is not None:
            return
        both = self._passes() and self.network.passes(ZK, self._process.address)
        if self.is_cut_off() or not both or self.last_zxid > self.server.zxid:
            self._later(self.rng.uniform(*AGAIN_SECS), self._try)
            return
        known = self.server.sessions.get(self._session_id)
        if self._session_id and (known is None or known.password != self._session_passwd):
            self._session_id, self._session_passwd = 0, b"\0" * 16
            self._drop(KeeperState.EXPIRED_SESSION, KazooState.LOST, kazoo_errors.SessionExpiredError())
            self._later(self.rng.uniform(*AGAIN_SECS), self._try)
            return
        session = known or self.server.open_session(self._timeout, self._process.name)
        if session.connection is not None and session.connection is not self:
            session.connection._lose()
        session.connection, session.heard, session.auth = self, self.loop.time(), self._auth
        self._session, self._heard = session, self.loop.time()
        self._session_id, self._session_passwd = session.id, session.password
        self._connection.granted = session.timeout
        self.client_state = KeeperState.CONNECTED
        self._epoch += 1
        self._change(KazooState.CONNECTED)
        self._ping(self._epoch)

    def _ping(self, epoch: int) -> None:
        """Keeps the session alive, and notices a server that is silent."""
        session = self._session
        if epoch != self._epoch or session is None:
            return
        if self.loop.time() - self._heard > self._timeout * 2 / 3:
            self._lose()
            return
        if self._passes():
            self.loop.call_later(self._delay(), self._pinged, session, epoch)
        self._later(self._timeout / 6, self._ping, epoch)

    def _pinged(self, session: ServerSession, epoch: int) -> None:
        if epoch == self._epoch and self._passes() and self._process.alive and self._process.held is None:
            self._keep_alive(session)
            self._reply(lambda: None)

    def session_ended(self) -> None:
        """Called by the server: its end of the connection is closed."""
        self._later(self._delay(), self._lose)

    def _lose(self) -> None:
        """The connection is lost."""
        if self._session is None:
            return
        if self._session.connection is self:
            self._session.connection = None
        self._drop(KeeperState.CONNECTING, KazooState.SUSPENDED, kazoo_errors.ConnectionLoss())
        self._later(self.rng.uniform(*AGAIN_SECS), self._try)

    def _leave(self) -> None:
        if self._session is not None and self._session.connection is self:
            self._session.connection = None
        for watcher in (*self._watchers, *self._unheard):
            self.server.forget_watches(watcher)
        self._session = None
        self._epoch += 1

    def _drop(self, keeper: str, state: str, failed: Exception) -> None:
        self._session = None
        self._epoch += 1
        self.client_state = keeper
        pending, self._pending = self._pending, []
        if state == KazooState.LOST:
            self.last_zxid = 0
            self._change(state)
        for answer in pending:
            answer.end(exception=failed)
        if state == KazooState.SUSPENDED:
            self._change(state)
        watchers, self._watchers = self._watchers, {}
        unheard, self._unheard = self._unheard, {}
        for watcher in (*watchers, *unheard):
            self.server.forget_watches(watcher)
        for watcher in watchers:
            watcher.call(None)

    def _change(self, state: str) -> None:
        if state != self._state:
            self._state = state
            for listener in self._listeners:
                listener(state)
