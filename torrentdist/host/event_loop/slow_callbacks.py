"""Finds callbacks that block an event loop by using too much processor time.

Always: a callback is measured by its thread's own processor time, so that a busy machine causes no
false reports.
Never: measure by default. A daemon is measured if TORRENTDIST_SLOW_CALLBACKS_SECS is set, a test if
it asks for it.
"""

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

import msgspec

from torrentdist.log import get_logger
from torrentdist.model.configuration.settings import SLOW_CALLBACKS

log = get_logger()

LIMIT_SECS = 0.05
FRAMES = 8
"""Number of innermost frames to report."""


class SlowCallback(msgspec.Struct, frozen=True):
    secs: float
    callback: str
    stack: str
    """The stack while the callback ran; empty if no sample caught it."""


class _Sampler:
    """Samples the stacks of long-running callbacks from a thread of its own."""

    def __init__(self, limit_secs: float) -> None:
        self._limit_secs = limit_secs
        self._running: dict[int, tuple[object, float]] = {}
        self._seen: dict[int, tuple[object, str]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="slow callbacks", daemon=True)
        self._thread.start()

    def begin(self, handle: object) -> None:
        self._running[threading.get_ident()] = handle, time.monotonic()

    def end(self, handle: object) -> str:
        thread = threading.get_ident()
        self._running.pop(thread, None)
        seen = self._seen.pop(thread, None)
        return seen[1] if seen is not None and seen[0] is handle else ""

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(self._limit_secs / 3):
            now = time.monotonic()
            for thread, (handle, began) in list(self._running.items()):
                frame = sys._current_frames().get(thread)
                # An earlier callback may have ended just before its stack was kept.
                is_seen = self._seen.get(thread, (None, ""))[0] is handle
                if frame is not None and now - began > self._limit_secs / 2 and not is_seen:
                    self._seen[thread] = handle, _stack(frame)


def _stack(frame: FrameType | None) -> str:
    """Returns the innermost frames. Reads no source files: the callback leaves this thread little
    time for that."""
    frames: list[str] = []
    while frame is not None and len(frames) < FRAMES:
        frames.append(f"{frame.f_code.co_name}:{frame.f_lineno}")
        frame = frame.f_back
    return " < ".join(frames)


@contextlib.contextmanager
def watched_callbacks(tell: Callable[[SlowCallback], None], limit_secs: float = LIMIT_SECS) -> Iterator[None]:
    """Measures every callback of every event loop in this process, inside the `with` block."""
    original, sampler = asyncio.Handle._run, _Sampler(limit_secs)

    def measured(handle: asyncio.Handle) -> None:
        sampler.begin(handle)
        began = time.thread_time()
        try:
            original(handle)
        finally:
            secs, stack = time.thread_time() - began, sampler.end(handle)
            if secs >= limit_secs:
                tell(SlowCallback(secs, repr(handle), stack))

    asyncio.Handle._run = measured  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        asyncio.Handle._run = original  # type: ignore[method-assign]
        sampler.close()


@contextlib.contextmanager
def watched_if_asked() -> Iterator[None]:
    """Logs slow callbacks if the environment asks for it."""
    text = os.environ.get(SLOW_CALLBACKS, "")
    if not text:
        yield
        return

    def tell(slow: SlowCallback) -> None:
        log.warning("slow callback", secs=round(slow.secs, 3), callback=slow.callback, stack=slow.stack)

    with watched_callbacks(tell, float(text)):
        yield
