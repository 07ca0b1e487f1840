"""Keeps this host's bundles below the high mark of the configuration.

Always: the plan is made anew before each removal, so that a bundle that was pinned, assigned or
used meanwhile stays.
Never: decide what goes. retention.py does.
"""

import asyncio

from torrentdist.bundle.store.retention import StoreMarks
from torrentdist.host.runtime import HostRuntime
from torrentdist.log import get_logger
from torrentdist.model.errors import TorrentdistError

log = get_logger()

LOOK_SECS = 10.0


async def keep_below_mark(runtime: HostRuntime, marks: StoreMarks) -> None:
    """Removes bundles whenever the store has passed its mark, for as long as the daemon runs."""
    while True:
        try:
            await return_to_low(runtime, marks)
        except TorrentdistError as error:
            log.warning("a bundle above the mark is not removed", error=error.message)
        await asyncio.sleep(LOOK_SECS)


async def return_to_low(runtime: HostRuntime, marks: StoreMarks) -> None:
    planned = await runtime.store.plan_to_low(marks)
    if not planned:
        return
    # With the same marks, the next plan would find the store below its high mark, and stop.
    until_low = StoreMarks(marks.low or marks.high, marks.low or marks.high)
    while planned:
        stored = planned[0]
        log.info("a bundle goes, the store is above its mark", digest=stored.digest, size=stored.size)
        await runtime.evict(stored.digest)
        planned = await runtime.store.plan_to_low(until_low)
