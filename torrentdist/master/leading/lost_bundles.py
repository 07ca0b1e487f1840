"""Counts for how long each bundle has been without any copy, and says which are lost.

Every master counts, because any of them may be elected.
Always: the time starts anew when this master was cut off from ZooKeeper, since that proves nothing,
and when a look failed.
Never: mark a bundle lost. The leader does.
"""

import asyncio
import time
from collections.abc import Callable

from torrentdist.cluster.records.record_index import PerBundle
from torrentdist.cluster.session.znode_operations import SessionState
from torrentdist.master.leading import gate
from torrentdist.master.master_session import MasterSession
from torrentdist.model.ids import BundleId, Digest

WATCH_SECS = 1.0


class LostBundles:
    def __init__(self, session: MasterSession, are_elsewhere: Callable[[Digest], bool], lost_secs: float) -> None:
        """`are_elsewhere`: whether some peer has a whole copy; a supervisor's copy counts."""
        self._session = session
        self._are_elsewhere = are_elsewhere
        self._lost_secs = lost_secs
        self._absent = PerBundle(gate.absent)
        self._absent_since: dict[BundleId, float] = {}

    async def watch(self) -> None:
        """Counts for ever."""
        mirror, zookeeper = self._session.mirror, self._session.zookeeper
        while True:
            if mirror.fresh:
                before, self._absent_since = self._absent_since, {}  # unless this look ends well
                absent = self._absent.of(mirror.snapshot)
                self._absent_since = gate.absences(before, absent, self._are_elsewhere, time.monotonic())
            elif zookeeper.state is not SessionState.CONNECTED:  # otherwise it is just being read
                self._absent_since = {}
            await asyncio.sleep(WATCH_SECS)

    def now(self) -> list[BundleId]:
        """Returns the bundles that nobody has had for too long."""
        return gate.lost(self._absent_since, time.monotonic(), self._lost_secs)
