"""An event loop on a virtual clock: if nothing is ready, the clock jumps to the next timer.

Always: one thread runs at a time. Work for other threads runs at a moment that the seed chooses, in
a thread that has the turn until it ends or waits for the loop.
Never: look at a real clock.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from asyncio import events
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any

from simulation.host_process import HERE, Died
from simulation.simulated_network import SimulatedNetwork
from simulation.simulated_sockets import SimulatedServer
from simulation.thread_turns import Awaited, Turns, may_wait

EPOCH = 1_767_225_600.0
THREAD_SECS = (0.0002, 0.004)
"""How long work in a thread takes, at least and at most."""
SLOW_SECS = 1.0
ROUND_SECS = 2e-6
"""What one round of the loop takes. A deadline that is missed by a rounding passes, as it does
where computing takes time."""


class Stuck(Exception):
    """Nothing is ready, and no timer is set."""


class _Guarded(events.Handle):
    """A callback that does not run if its process is dead."""

    def _run(self) -> None:
        _run_if_alive(self)


class _GuardedTimer(events.TimerHandle):
    def _run(self) -> None:
        _run_if_alive(self)

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __lt__(self, other: object) -> bool:
        """Asked only by the heap, of timers of the same moment: none is before the other."""
        return False


def _run_if_alive(handle: events.Handle) -> None:
    process = handle._context.get(HERE) or HERE.get()  # type: ignore[attr-defined]
    if process.held is not None:
        process.held.append(lambda: None if handle.cancelled() else _run(handle))  # by what went on before it
    elif process.alive:
        _run(handle)


_run = events.Handle._run


class NumberedTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on where it lies in memory."""

    _numbers = itertools.count()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._number = next(self._numbers)
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class NumberedFuture(asyncio.Future[Any]):
    """A future with the same property."""

    def __init__(self, *, loop: asyncio.AbstractEventLoop) -> None:
        self._number = next(NumberedTask._numbers)
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class VirtualLoop(asyncio.BaseEventLoop):
    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.now = 1000.0
        self.rng = rng
        self.errors: list[str] = []
        """What callbacks and tasks raised that nobody expects."""
        self._clock_resolution = 1e-9
        self._turns = Turns(self)
        self.network = SimulatedNetwork(self, rng)
        self.set_task_factory(self._new_task)
        self.set_exception_handler(self._note_error)

    def __del__(self) -> None:
        """Says nothing about a loop that was not closed: it holds nothing of the system."""

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        """Does what asyncio's loop does in a round, with the clock instead of a selector."""
        ready, timers = self._ready, self._scheduled  # type: ignore[attr-defined]
        while timers and timers[0][1]._cancelled:
            self._timer_cancelled_count -= 1  # type: ignore[attr-defined]
            heapq.heappop(timers)[1]._scheduled = False
        rest = 0.0 if ready or self._stopping else None  # type: ignore[attr-defined]
        if rest is None and not timers:
            raise Stuck
        self.now += max(timers[0][0] - self.now if rest is None else rest, ROUND_SECS)
        end = self.now + self._clock_resolution
        while timers and timers[0][0] < end:
            timer = heapq.heappop(timers)[1]
            timer._scheduled = False
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _process_events(self, event_list: Any) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def _note_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if HERE.get().alive and not isinstance(context.get("exception"), Died):
            self.errors.append(f"{context.get('message')}: {context.get('exception')!r}")

    def _new_task(
        self, loop: asyncio.AbstractEventLoop, coro: Any, *, context: Context | None = None
    ) -> asyncio.Task[Any]:
        task = NumberedTask(coro, loop=loop, context=context)
        process = HERE.get() if context is None else context.get(HERE)
        if process is not None:
            process.tasks.append(task)
        return task

    def _call_soon(self, callback: Any, args: Any, context: Context | None) -> events.Handle:
        handle = _Guarded(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> events.TimerHandle:
        timer = _GuardedTimer(when, callback, args, self, context)
        heapq.heappush(self._scheduled, (when, timer))  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> events.TimerHandle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> events.Handle:
        return self._call_soon(callback, args, context)

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        return [(2, 1, 6, "", (host, port or 0))]

    def create_future(self) -> asyncio.Future[Any]:
        return NumberedFuture(loop=self)

    # the network

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        return await self.network.connect(protocol_factory, host, port)

    async def create_server(self, protocol_factory: Any, *_: Any, sock: Any = None, **__: Any) -> Any:
        self.network.listen(sock.getsockname(), protocol_factory)
        return SimulatedServer()

    # work in threads

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future, context = self.create_future(), copy_context()
        HERE.get().calls += 1
        secs = SLOW_SECS if HERE.get().disk == "slow" else self.rng.uniform(*THREAD_SECS)
        run = self._turns.run if may_wait(executor, func) else self._turns.run_in_place
        self.call_later(secs, run, lambda: context.run(func, *args), future)
        return future

    def run_threadsafe(self, work: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> Any:
        """Stands for asyncio.run_coroutine_threadsafe."""
        return Awaited(self, self._turns, work)
