"""Stands before the clocks of Python's `time`, so that also a default argument that holds one of
them can be moved to a virtual clock.

Always: import it before anything of the product.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Source:
    monotonic: Callable[[], float] = staticmethod(time.monotonic)
    wall: Callable[[], float] = staticmethod(time.time)


REAL = Source()
SOURCE = Source()


def _monotonic() -> float:
    return SOURCE.monotonic()


def _wall() -> float:
    return SOURCE.wall()


time.monotonic, time.time = _monotonic, _wall
