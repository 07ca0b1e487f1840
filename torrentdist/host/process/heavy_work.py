"""Threads for work that needs much processor time: parsing metafiles, compressing, making many
headers. Others write thousands of files, so that requests do not wait for a disk.

Always: few of these threads run at once, so that the event loop gets its turn and short work in
asyncio's own threads does not wait. Whoever waits for files to be written returns only when no
thread writes any more, however often the wait is cancelled.
Never: wait here for a network, another process or a lock, which would block other heavy work.
"""

import asyncio
import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
GoOn = Callable[[], bool]

AT_ONCE = 2
"""More threads would not be faster, since they share one interpreter, and would delay the event
loop."""
_THREADS = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="heavy")
_WRITERS = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="write")


async def in_heavy_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    call = functools.partial(work, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_THREADS, call)


async def in_writing_thread(work: Callable[[GoOn], T]) -> T:
    """Runs work that writes many files. It is given a function that says whether to go on; once
    this call is cancelled, it is told to stop."""
    begun, stop = threading.Event(), threading.Event()

    def call() -> list[T]:
        begun.set()
        return [] if stop.is_set() else [work(lambda: not stop.is_set())]

    working = asyncio.get_running_loop().run_in_executor(_WRITERS, call)
    try:
        (result,) = await asyncio.shield(working)
        return result
    except asyncio.CancelledError:
        stop.set()
        if begun.is_set():
            await until_ended(working)
        else:
            working.cancel()
        raise


async def until_ended(work: asyncio.Future[T]) -> None:
    """Returns when the work has ended, whatever its result. If this is cancelled meanwhile, it
    waits nevertheless, and raises the cancellation at the end."""
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError as exc:
            cancelled = exc
    if cancelled is not None:
        if not work.cancelled():
            work.exception()  # nobody else will ask how it ended
        raise cancelled
