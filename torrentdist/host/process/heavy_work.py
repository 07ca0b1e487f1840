"""Threads for work that takes much processor time: parsing metafiles, compressing, making many
headers.

Always: so few run at once that the event loop gets its turn, and that short work in asyncio's own
threads never waits behind them. Never: work that waits for a network, another process or a lock; it
would keep the others out.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

AT_ONCE = 2
"""More would not be faster, since they share one interpreter, and the event loop would wait longer
for its turn."""
_THREADS = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="heavy")


async def in_heavy_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    call = functools.partial(work, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_THREADS, call)
