"""Rereads every published bundle slowly, to find damage on the disk before a peer or a job meets
it.

Always: one bundle at a time, followed by a rest as long as the reading took, so that serving is not
disturbed.
"""

import asyncio
import time
from collections.abc import Callable

from torrentdist.bundle.files.durability import as_failure
from torrentdist.host.runtime import HostRuntime
from torrentdist.log import get_logger

log = get_logger()

SETTLE_SECS = 2.0
"""Pause after the start, when the host has more urgent data to read."""


async def scrub(runtime: HostRuntime, period: float, on_damage: Callable[[], None]) -> None:
    """Verifies every published bundle after the start and, if `period` is not 0, after each
    period."""
    await asyncio.sleep(SETTLE_SECS)
    while True:
        for digest in runtime.store.published():
            began = time.monotonic()
            try:
                if await runtime.verify(digest):
                    on_damage()
            except Exception as exc:  # The others are looked at all the same.
                error = as_failure(exc, runtime.store.data_dir)
                bug = exc if error.code == "internal" else None
                log.warning("cannot verify a bundle", digest=digest, error=error.message, exc_info=bug)
            await asyncio.sleep(time.monotonic() - began)
        await asyncio.sleep(period if period > 0 else 365 * 86400)
