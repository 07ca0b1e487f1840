"""How much an engine lets its peers ask for at a time, and asks of them.

In a crowd that is little, so that no small message waits behind much data. Peers are told how much as they connect, and
nothing tells them later. Always holds: while there is a crowd, connections are made anew once at most, when they carry
so much that the little is what holds them up. Must not do: talk to libtorrent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from torrentdist.model.ids import Digest
from torrentdist.swarm import conductor
from torrentdist.swarm.statistics import EngineStatistics

MOST_ALLOWED: Final = 4000
MOST_ASKED: Final = 1500
"""The blocks of 24 MiB: 500, as by default, are too few at 1 GiB/s."""


class Queues:
    def __init__(self) -> None:
        self._crowds: dict[Digest, int] = {}
        self._quick = False
        self._alone_until = 0.0
        self._told: dict[str, int] = {}

    def crowd(self, digest: Digest, receivers: int | None) -> bool:
        """So many share a swarm from now on; None: it is no crowd any more. Whether that is news."""
        if self._crowds.get(digest) == receivers:
            return False
        self._crowds.pop(digest, None)
        if receivers is not None:
            self._crowds[digest] = receivers
        self._quick = self._quick and bool(self._crowds)
        return True

    def begin(self, *, placed: bool, now: float) -> None:
        """Whoever begins without a place may have one soon, and asks for little until then."""
        self._alone_until = now + (0.0 if placed else conductor.ALONE_SECS)

    def outgrown(self, statistics: EngineStatistics, sizes: Mapping[Digest, int]) -> bool:
        """Whether connections should be made anew now. `sizes`: of what is fetched and offered."""
        rate = max(statistics.download_rate, statistics.upload_rate)
        size = max((sizes.get(digest, 0) for digest in self._crowds), default=0)
        if self._quick or not size or not conductor.is_quick(rate, statistics.peers, size):
            return False
        self._quick = True
        return True

    def news(self, statistics: EngineStatistics, rtt: float, now: float) -> dict[str, int]:
        """What libtorrent has to be told; nothing if it knows."""
        told = self.settings(statistics, rtt, now)
        news, self._told = {} if told == self._told else told, told
        return news

    def settings(self, statistics: EngineStatistics, rtt: float, now: float) -> dict[str, int]:
        crowds = self._crowds.values()
        most = max(crowds, default=None)
        way = conductor.Way(statistics.peers, rtt)
        alone = most is None and now < self._alone_until
        windows = [conductor.window(crowd, quick=self._quick) for crowd in crowds]
        return {
            "max_allowed_in_request_queue": min(windows, default=MOST_ALLOWED),
            "request_queue_time": conductor.queue_secs(most, statistics.download_rate, way),
            "max_out_request_queue": conductor.BLOCKS_UNDER_WAY if alone else MOST_ASKED,
        }
