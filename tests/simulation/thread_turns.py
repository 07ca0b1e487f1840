"""Threads of a story: work that may wait for the loop has a thread that gets the turn, and gives it
back when it ends or waits.

Always: one thread runs at a time.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from simulation.host_process import Died

if TYPE_CHECKING:
    from simulation.virtual_loop import VirtualLoop

REAL_THREAD = threading.Thread


def may_wait(executor: Any, func: Any) -> bool:
    """Whether this work may wait for the loop, as a plug-in's does. It then needs a thread."""
    work = func.args[0] if isinstance(func, functools.partial) and func.args else func
    module = type(getattr(work, "__self__", None)).__module__
    return module.startswith("torrentdist.distributor") or getattr(executor, "_thread_name_prefix", "") == "fetch"


class Turns:
    """Gives the turn from the loop's thread to a worker's and back."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._idle: list[_Worker] = []
        self.current: list[_Worker] = []

    def run_in_place(self, work: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        """Runs work that waits for nothing."""
        if self._was_never_begun(future):
            return
        try:
            result = work()
        except Died:
            return
        except Exception as exc:
            if not future.done():
                future.set_exception(exc)
            return
        if not future.done():
            future.set_result(result)

    def _was_never_begun(self, future: asyncio.Future[Any]) -> bool:
        """Whether no thread had begun cancelled work. Otherwise it runs to its end, although
        nobody waits."""
        return future.cancelled() and self._loop.rng.random() < 0.5

    def run(self, work: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        if self._was_never_begun(future):
            return
        worker = self._idle.pop() if self._idle else _Worker(self)
        worker.work, worker.future = work, future
        self.resume(worker)

    def resume(self, worker: _Worker) -> None:
        """Gives the worker the turn, until it ends or waits for the loop."""
        self.current.append(worker)
        worker.turn.release()
        worker.back.acquire()
        self.current.pop()
        if worker.outcome is None:
            return
        (kind, value), worker.outcome, future = worker.outcome, None, worker.future
        self._idle.append(worker)
        if future is None or future.done() or isinstance(value, Died):
            return
        if kind == "result":
            future.set_result(value)
        else:
            future.set_exception(value)


class _Worker:
    def __init__(self, turns: Turns) -> None:
        self.turn, self.back = threading.Semaphore(0), threading.Semaphore(0)
        self.work: Callable[[], Any] = lambda: None
        self.future: asyncio.Future[Any] | None = None
        self.outcome: tuple[str, Any] | None = None
        REAL_THREAD(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            self.turn.acquire()
            try:
                self.outcome = "result", self.work()
            except BaseException as exc:
                self.outcome = "error", exc
            self.back.release()

    def wait(self) -> None:
        """Gives the turn back to the loop, until `resume`."""
        self.back.release()
        self.turn.acquire()


class Awaited:
    """The answer of the loop that a thread waits for."""

    def __init__(self, loop: VirtualLoop, turns: Turns, work: Coroutine[Any, Any, Any]) -> None:
        self._loop, self._turns = loop, turns
        self._task = loop.create_task(work)

    def result(self, timeout: float | None = None) -> Any:
        worker = self._turns.current[-1]
        resumed = False

        def resume(*_: object) -> None:
            nonlocal resumed
            if not resumed:
                resumed = True
                self._turns.resume(worker)

        if not self._task.done():
            self._task.add_done_callback(resume)
            if timeout is not None:
                self._loop.call_later(timeout, resume)
            worker.wait()
            resumed = True
        if not self._task.done():
            raise TimeoutError
        return self._task.result()

    def cancel(self) -> None:
        self._task.cancel()
