"""Fetches flows of one bundle from hosts outside this host's zone.

Always: a flow is asked of one host at a time. A host that does not answer, or whose pieces turn out
to be wrong, is followed by another one. What comes is checked by the engine like any other piece.
Never: decide which flows this host has. The masters do.
"""

import asyncio
import time
from collections.abc import Sequence

from torrentdist.host.master_links import MasterLinks
from torrentdist.http.http_values import HttpError
from torrentdist.log import get_logger
from torrentdist.model.errors import TorrentdistError
from torrentdist.supervisor.border.piece_frames import lacking_text, unpacked
from torrentdist.supervisor.border.shared_limit import SharedLimit
from torrentdist.swarm.engine.transfer import Transfer

log = get_logger()

LOOK_SECS = 0.25
"""Interval between two looks at a transfer that has just begun."""
LEAD_SECS = 8.0
"""How long a host stays the source of a flow before a master is asked again."""
WAIT_SECS = 2.0
"""How long a source may wait for its first piece."""
PAUSE_SECS = 0.5
"""Pause after a source that failed. Pieces that came last are verified by then."""


class FlowFetch:
    def __init__(self, transfer: Transfer, links: MasterLinks, host_limit: SharedLimit) -> None:
        """`host_limit` is the limit for all bundles of this host together."""
        self.transfer = transfer
        self._links = links
        self._limits = (host_limit, SharedLimit(lambda: transfer.receive_limit, transfer.set_rate))

    async def fetch(self, flow: int) -> None:
        """Fetches one flow until all of its pieces are here, or the transfer has ended."""
        attempt = 0
        while lacking_text(flow, await self._have()):
            given: set[int] = set()
            try:
                where = await self._links.flow_source(self.transfer.digest, flow, attempt)
                await self._fetch_from(f"{where}&flow={flow}&wait={WAIT_SECS:g}", flow, given)
            except (HttpError, TorrentdistError) as error:
                log.debug("a flow goes on elsewhere", flow=flow, reason=str(error))
            have = self.transfer.have()
            if not given or not all(have[piece] for piece in given):
                attempt += 1
                await asyncio.sleep(PAUSE_SECS)

    async def _fetch_from(self, where: str, flow: int, given: set[int]) -> None:
        """Fetches pieces from one host for a while, and adds their numbers to `given`."""
        ends = time.monotonic() + LEAD_SECS
        while time.monotonic() < ends and (lacks := lacking_text(flow, await self._have(), given)):
            body = await self._links.pieces(f"{where}&lacks={lacks}")
            for piece, content in unpacked(body):
                if piece < self.transfer.meta.num_pieces:
                    self.transfer.whole.take(piece, content, self.transfer.handle)
                    given.add(piece)
            for limit in self._limits:
                limit.moved(len(body))
                await limit.allowed()

    async def _have(self) -> Sequence[bool]:
        """Returns which pieces are here, once that is known. None of them, if the transfer has
        ended."""
        while self.transfer.active:
            if have := self.transfer.have():
                return have
            await asyncio.sleep(LOOK_SECS)
        return ()
