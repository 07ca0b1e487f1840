"""Starts and finds the guardians of this supervisor's runs, signals them, and waits for their end.

Always: `ended` is called once per run, and only when no process of the run remains on this host.
Reading and locking guardians' files happens in threads. Signals are sent directly from the event
loop: they must not wait for a thread, and need only one small file of /proc.
Never: decide what runs, or look at barriers.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from torrentdist.launcher.launcher_client import NoLauncherAnswer, Starter
from torrentdist.log import get_logger
from torrentdist.supervisor.jobs.local_state import RunRecord
from torrentdist.supervisor.process import guardian_processes
from torrentdist.supervisor.process.guardian_processes import GuardianStatus, Living
from torrentdist.supervisor.worker.worker_types import Key, Measure

log = get_logger()

LOOK_SECS = 0.02
"""Interval between checks for something that another process is about to do."""
AGAIN_SECS = 1.0
"""Pause after an unexpected error of a task that follows a run."""

SIGNALS = {Measure.STOP: signal.SIGTERM, Measure.KILL: signal.SIGUSR1, Measure.DESTROY: signal.SIGKILL}

Ended = Callable[[Key, RunRecord, GuardianStatus | None], Awaitable[None]]


@dataclass
class Handle:
    """One run, as this process sees it."""

    run: RunRecord
    home: Path
    living: Living | None = None
    """The run's guardian; None while it is being started or looked for."""
    pid: int = 0
    """Pid of the worker itself; 0 until its guardian has reported it."""
    measure: Measure = Measure.NONE
    measured_at: float = 0.0
    has_left: bool = False
    """Whether no process of the run remains here. Its end is being recorded, or what it submitted
    elsewhere is followed."""


Follow = Callable[[Key, Handle], Awaitable[None]]


class Running:
    def __init__(self, starter: Starter, ended: Ended, on_change: Callable[[], None]) -> None:
        self._starter = starter
        self._ended = ended
        self._on_change = on_change
        self._handles: dict[Key, Handle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def get(self, key: Key) -> Handle | None:
        return self._handles.get(key)

    def keys(self) -> frozenset[Key]:
        return frozenset(self._handles)

    async def close(self) -> None:
        """Stops following all runs, and leaves them running."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # starting

    def begin(self, key: Key, run: RunRecord, home: Path) -> None:
        """Counts the run as running from now on."""
        self._handles[key] = Handle(run, home)

    async def launch(self, key: Key) -> None:
        """Starts the guardian of a run that `begin` announced. Its orders are already on disk.

        Raises an error if the guardian has not been started and will not be.
        """
        handle = self._handles[key]
        read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            handle.living = await asyncio.to_thread(self._start, handle, write)
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        if handle.living is None:
            os.close(read)
            self._spawn(f"adoption of {key}", self._until_gone(key, handle, self._adopt))
            return
        self._spawn(f"start of {key}", self._hear_of_start(handle, read))
        self._spawn(f"guardian of {key}", self._until_gone(key, handle, self._follow))

    def _start(self, handle: Handle, told: int) -> Living | None:
        """Returns the guardian, or None if the launcher may have started it but did not say so.
        Blocks."""
        try:
            return Living(*self._starter.start(str(handle.home), handle.run.id, told))
        except Exception as error:
            did_nothing = isinstance(error, OSError) and not isinstance(error, NoLauncherAnswer)
            if did_nothing or guardian_processes.forbid_starts(handle.home):
                raise
            return None

    def adopt(self, key: Key, run: RunRecord, home: Path) -> None:
        """Takes over a run that a previous process started and that may still be running."""
        self.begin(key, run, home)
        self._spawn(f"adoption of {key}", self._until_gone(key, self._handles[key], self._adopt))

    def carry_over(self, key: Key, session: int) -> None:
        """Moves the run to `session`, unless it has just ended."""
        if (handle := self._handles.get(key)) is not None:
            handle.run = msgspec.structs.replace(handle.run, session=session)

    def abort(self, key: Key) -> None:
        """Undoes a `begin` that no launch has followed."""
        del self._handles[key]

    # ending

    def end(self, key: Key, measure: Measure) -> bool:
        """Tells the guardian to stop or kill its run, or kills the guardian itself. What a run has
        left elsewhere ends by the first measure.

        Returns False if the run has just ended, or if the guardian is not known yet or cannot be
        told; then the next round tries again.
        """
        handle = self._handles.get(key)
        if handle is None or (handle.living is None and not handle.has_left):
            return False
        if handle.has_left and handle.measure is not Measure.NONE:
            return False
        if handle.living is not None and not guardian_processes.send(handle.living, SIGNALS[measure]):
            return False
        handle.measure, handle.measured_at = measure, time.monotonic()
        return True

    # following

    async def _until_gone(self, key: Key, handle: Handle, follow: Follow) -> None:
        """Follows a run until it is gone. An unexpected error must not keep its barrier, so the run
        is looked for again."""
        while self._handles.get(key) is handle:
            try:
                await follow(key, handle)
            except Exception:
                log.exception("cannot follow a worker, trying again", job=key[0], worker=key[1])
                await asyncio.sleep(AGAIN_SECS)
                follow = self._adopt

    def _spawn(self, name: str, work: Awaitable[None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except Exception:
                log.exception("the task that follows a worker failed", task=name)

        task = asyncio.create_task(guarded(), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _hear_of_start(self, handle: Handle, told: int) -> None:
        try:
            await _readable(told)
        finally:
            os.close(told)
        await self._note_pid(handle)

    async def _note_pid(self, handle: Handle) -> None:
        status = await asyncio.to_thread(guardian_processes.read_status, handle.home, handle.run.id)
        if status is not None:
            handle.pid = status.pid
            self._on_change()

    async def _learn_pid(self, key: Key, handle: Handle) -> None:
        """Waits until the guardian of an adopted run has reported the worker's pid."""
        while self._handles.get(key) is handle and not handle.pid:
            await asyncio.sleep(LOOK_SECS)
            await self._note_pid(handle)

    async def _adopt(self, key: Key, handle: Handle) -> None:
        home, run = handle.home, handle.run.id
        while (living := await asyncio.to_thread(guardian_processes.living, home, run)) is None:
            if await asyncio.to_thread(guardian_processes.forbid_starts, home):
                break
            await asyncio.sleep(LOOK_SECS)  # Its guardian has the lock and is about to write its status.
        handle.living = living
        if living is not None:
            await self._note_pid(handle)
            log.info("worker adopted", job=key[0], worker=key[1], pid=handle.pid)
            self._spawn(f"pid of {key}", self._learn_pid(key, handle))
        await self._follow(key, handle)

    async def _follow(self, key: Key, handle: Handle) -> None:
        if handle.living is not None:
            await _end_of(handle.living)
        status = await self._nothing_left(handle)
        handle.has_left, handle.pid = True, 0
        await self._ended(key, handle.run, status)
        # Only now: removed before its end is recorded, the worker would start again as if it had
        # never ended.
        del self._handles[key]
        self._on_change()

    async def _nothing_left(self, handle: Handle) -> GuardianStatus | None:
        """Waits until no process of the run remains. Returns the guardian's final status, or None
        if the guardian left none and the remaining processes were killed here."""
        while not await asyncio.to_thread(guardian_processes.forbid_starts, handle.home):  # noqa: ASYNC110  # another process holds it
            await asyncio.sleep(LOOK_SECS)
        status = await asyncio.to_thread(guardian_processes.read_status, handle.home, handle.run.id)
        if status is not None and status.gone:
            return status
        if status is not None and handle.living is None:
            # The pid cannot have been reused only if we have just seen the guardian end.
            status = msgspec.structs.replace(status, pid=0)
        while not await asyncio.to_thread(guardian_processes.sweep, handle.run.id, status):  # noqa: ASYNC110  # the same
            await asyncio.sleep(LOOK_SECS)
        return None


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)


async def _end_of(process: Living) -> None:
    fd = guardian_processes.pidfd_of(process)
    if fd is not None:
        try:
            await _readable(fd)
        finally:
            os.close(fd)
    with contextlib.suppress(ProcessLookupError):
        guardian_processes.reap(process)
