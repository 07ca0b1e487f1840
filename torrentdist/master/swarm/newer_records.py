"""Delays an announce while its peer knows newer records than this master.

A supervisor reads its own assignment before a master has read the assignments of all supervisors.
Always: a peer that fetches what our records do not give it is answered after a look at ZooKeeper
that began later, or after a moment. All announces that wait share one look.
Never: delay a peer that is known, or any peer while ZooKeeper is away.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from torrentdist.cluster.records.mirror import Mirror
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest, PeerId, SupervisorId
from torrentdist.model.wire.swarm_messages import PeerRole, SwarmAnnounce

LONGEST_SECS: Final = 0.5
"""Longest delay of an announce in seconds."""
Listed = Callable[[PeerId, Digest], bool]
"""Whether a peer is in the swarm of a digest."""


def knows_more(snapshot: ClusterSnapshot, announce: SwarmAnnounce, listed: Listed) -> bool:
    """Whether the peer fetches a digest that its assignment in our records does not name.

    `listed`: whether a peer is in the swarm already, as it is from its second announce on.
    """
    if announce.role is not PeerRole.SUPERVISOR or announce.left:
        return False
    new = {e.digest for e in announce.swarms if not e.complete and not listed(announce.peer, e.digest)}
    if not new:
        return False
    assignment = snapshot.assignments.get(SupervisorId(announce.peer))
    given = assignment.record.bundles if assignment is not None else ()
    return not new <= {entry.record.digest for b in given if (entry := snapshot.bundles.get(b)) is not None}


class NewerRecords:
    def __init__(self, mirror: Mirror, listed: Listed) -> None:
        self._mirror = mirror
        self._listed = listed
        self._look: asyncio.Task[None] | None = None

    async def wait_for_those_of(self, announce: SwarmAnnounce) -> None:
        """Returns once our records are as new as those of the peer, or after LONGEST_SECS."""
        joined = self._look is not None and not self._look.done()  # it may have begun too early
        for _ in range(2 if joined else 1):
            if not self._mirror.connected or not knows_more(self._mirror.snapshot, announce, self._listed):
                return
            if self._look is None or self._look.done():
                self._look = asyncio.create_task(self._sync(), name="a look at newer records")
            await asyncio.shield(self._look)

    async def _sync(self) -> None:
        with suppress(TorrentdistError):
            await self._mirror.sync(LONGEST_SECS)
