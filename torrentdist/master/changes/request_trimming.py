"""Deletes the records of requests that are too old to be retried.

Always: one round looks at a bounded number of znodes and continues where the last one stopped. Ages
are by ZooKeeper's clock.
Never: delete without the leader's fence.
"""

import asyncio
import time
from collections.abc import Mapping

from torrentdist.cluster import paths
from torrentdist.cluster.election.fence import Fence
from torrentdist.cluster.session.znode_operations import Delete, Stat, TransactionFailed
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.log import get_logger

log = get_logger()

BUCKETS_A_ROUND = 16
LOOKS_A_ROUND = 400
CIRCLES = 2
"""How often every record is looked at within the time that it is kept. So a record stays at most
half as long again."""
_ALL_BUCKETS = 256


def expired(stats: Mapping[str, Stat | None], server_now: float, keep_secs: float) -> list[Delete]:
    """Returns the deletions of those paths that are too old. A path that is written again meanwhile
    stays."""
    return [
        Delete(path, stat.version)
        for path, stat in stats.items()
        if stat is not None and server_now - stat.mtime > keep_secs
    ]


class RequestTrimmer:
    def __init__(self, zookeeper: ZooKeeper, keep_secs: float) -> None:
        self._zookeeper = zookeeper
        self._keep_secs = keep_secs
        self._pause = keep_secs / CIRCLES * BUCKETS_A_ROUND / _ALL_BUCKETS
        self._next_at = 0.0
        self._bucket, self._name = "", ""
        """Where the last round stopped."""

    async def trim_when_due(self, fence: Fence) -> float:
        """Trims if it is time, and returns the seconds until the next time. Call it as often as you
        like."""
        if time.monotonic() >= self._next_at:
            whole = await self.trim(fence)
            self._next_at = time.monotonic() + (self._pause if whole else 0.0)
        return max(0.0, self._next_at - time.monotonic())

    async def trim(self, fence: Fence) -> bool:
        """Does one round. Returns False if there were more requests than one round looks at."""
        server_now = self._zookeeper.server_now()
        if server_now is None:
            return True
        requests = await self._some()
        stats = await asyncio.gather(*(self._zookeeper.exists(path) for path in requests))
        old = expired(dict(zip(requests, stats, strict=True)), server_now, self._keep_secs)
        if old:
            log.debug("forgetting requests", count=len(old))
            try:
                await fence.commit(old)
            except TransactionFailed as exc:
                log.debug("a request changed meanwhile", why=str(exc))
        return len(requests) < LOOKS_A_ROUND

    async def _some(self) -> list[str]:
        """Returns the paths for the next round."""
        found: list[str] = []
        buckets = sorted(await self._zookeeper.children(paths.REQUESTS) or ())
        for bucket in [b for b in buckets if b >= self._bucket][:BUCKETS_A_ROUND]:
            after = self._name if bucket == self._bucket else ""
            names = sorted(await self._zookeeper.children(paths.request_bucket(bucket)) or ())
            left = [name for name in names if name > after]
            taken = left[: LOOKS_A_ROUND - len(found)]
            found += [f"{paths.request_bucket(bucket)}/{name}" for name in taken]
            # "~" sorts after every character of an id.
            self._bucket, self._name = bucket, "~" if len(taken) == len(left) else taken[-1] if taken else after
            if len(found) == LOOKS_A_ROUND:
                return found
        if not any(b > self._bucket for b in buckets):
            self._bucket, self._name = "", ""
        return found
