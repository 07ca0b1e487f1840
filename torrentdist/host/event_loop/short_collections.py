"""Keeps Python's full garbage collections short: a long one would hold up the event loop.

A full collection visits every object that could be part of a cycle, and a daemon keeps most of its
objects for as long as it runs. When a full collection took long, later ones pass over the objects
that it left. Full collections come ten times as often as usual, so that even the first one visits
few objects: with 80,000 of them it took 90 ms on a slow machine.

Always: an object that is passed over is still freed when the last reference to it goes.
Never: free a cycle that is made of such objects. They are few: what lives for a moment only seldom
lives through a full collection.
"""

import contextlib
import gc
import time
from collections.abc import Iterator
from typing import Any

LONG_SECS = 0.005
FULL = 2
"""The generation that a full collection collects."""
OFTEN = 0
"""After more collections of the generation before than this, a full one may come. Python's own
value is 10."""


@contextlib.contextmanager
def short_collections(long_secs: float = LONG_SECS) -> Iterator[None]:
    """Inside the `with` block, objects that a long collection left are not visited again."""
    began = 0.0

    def look(phase: str, told: dict[str, Any]) -> None:
        nonlocal began
        if told["generation"] != FULL:
            return
        if phase == "start":
            began = time.thread_time()
        elif time.thread_time() - began >= long_secs:
            gc.freeze()

    usual = gc.get_threshold()
    gc.set_threshold(usual[0], usual[1], OFTEN)
    gc.callbacks.append(look)
    try:
        yield
    finally:
        gc.callbacks.remove(look)
        gc.set_threshold(usual[0], usual[1], usual[2])
