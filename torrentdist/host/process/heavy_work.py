"""Threads for work that needs much processor time: parsing metafiles, compressing, making many
headers. Others write thousands of files, so that requests do not wait for a disk.

Always: few of these threads run at once, so that the event loop gets its turn and short work in
asyncio's own threads does not wait.
Never: wait here for a network, another process or a lock, which would block other heavy work.
"""

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

AT_ONCE = 2
"""More threads would not be faster, since they share one interpreter, and would delay the event
loop."""
_THREADS = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="heavy")
_WRITERS = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="write")


async def in_heavy_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    call = functools.partial(work, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_THREADS, call)


async def in_writing_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs work that writes many files."""
    call = functools.partial(work, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_WRITERS, call)
