"""What a loop on a virtual clock leaves behind."""

from __future__ import annotations

import gc
import random

from simulation.virtual_loop import VirtualLoop


def test_a_virtual_loop_that_nobody_needs_goes_silently() -> None:
    """If this fails, any later test turns red: the one in which the collector finds the loop."""
    VirtualLoop(random.Random(1))
    gc.collect()
