"""A fixture that fails a test when a callback of the event loop takes 50 ms of processor time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from torrentdist.host.process.slow_callbacks import SlowCallback, watched_callbacks


@pytest.fixture
def quick_callbacks() -> Iterator[list[SlowCallback]]:
    """The callbacks that were too slow so far. The list must be empty at the end of the test."""
    found: list[SlowCallback] = []
    with watched_callbacks(found.append):
        yield found
    told = "\n".join(f"{slow.secs:.3f} s: {slow.stack or slow.callback}" for slow in found)

    assert not found, f"the event loop was held up:\n{told}"
