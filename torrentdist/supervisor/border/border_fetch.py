"""Keeps a task running for every flow that this host fetches across the border of its zone.

Always: a flow that the masters' last answer does not name has no task. What a task fails with does
not stop the others.
"""

import asyncio
from collections.abc import Iterable

from torrentdist.host.known_swarms import KnownSwarms
from torrentdist.host.master_links import MasterLinks
from torrentdist.log import get_logger
from torrentdist.model.ids import Digest
from torrentdist.supervisor.border.flow_fetch import FlowFetch
from torrentdist.supervisor.border.shared_limit import SharedLimit
from torrentdist.swarm.engine.engine import Engine
from torrentdist.swarm.engine.transfer import Transfer

log = get_logger()


class BorderFetch:
    def __init__(self, engine: Engine, known: KnownSwarms, links: MasterLinks) -> None:
        self._engine = engine
        self._known = known
        self._links = links
        self._limit = SharedLimit(lambda: engine.rate_limits[1], lambda rate: engine.set_rate(download=rate))
        self._fetches: dict[Digest, FlowFetch] = {}
        self._tasks: dict[tuple[Digest, int], asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Follows the masters' answers for ever."""
        try:
            while True:
                await self._known.next_picture()
                await self._follow()
        finally:
            await self._end(list(self._tasks))

    async def _follow(self) -> None:
        arriving = {one.digest: one for one in self._engine.moving() if one.active and self._known.flows(one.digest)}
        wanted = {(digest, flow) for digest in arriving for flow in self._known.flows(digest)}
        await self._end(key for key, task in self._tasks.items() if task.done() or key not in wanted)
        self._fetches = {digest: self._fetch(one) for digest, one in arriving.items()}
        for digest, flow in wanted - self._tasks.keys():
            work = self._fetches[digest].fetch(flow)
            self._tasks[digest, flow] = asyncio.create_task(work, name=f"flow {flow} of {digest[:12]}")

    def _fetch(self, transfer: Transfer) -> FlowFetch:
        known = self._fetches.get(transfer.digest)
        return known if known and known.transfer is transfer else FlowFetch(transfer, self._links, self._limit)

    async def _end(self, keys: Iterable[tuple[Digest, int]]) -> None:
        ended = [self._tasks.pop(key) for key in list(keys)]
        for task in ended:
            task.cancel()
        for result in await asyncio.gather(*ended, return_exceptions=True):
            if isinstance(result, Exception):
                log.error("a flow failed", exc_info=result)
