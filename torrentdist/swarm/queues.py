"""How much an engine lets its peers ask for at a time, and asks of them.

In a crowd that is little, so that no small message waits behind much data. Peers are told how much as they connect, and
nothing tells them later. Always holds: for one bundle, connections are made anew once a minute at most, and only when
its crowd carries so much that the little is what holds it up, and more is to be had by it. Must not do: talk to
libtorrent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from torrentdist.model.ids import Digest
from torrentdist.swarm import conductor
from torrentdist.swarm.statistics import EngineStatistics

MOST_ALLOWED: Final = 4000
MOST_ASKED: Final = 1500
"""The blocks of 24 MiB: 500, as by default, are too few at 1 GiB/s."""
REST_SECS: Final = 60.0
"""Between two times that connections are made anew: a sixtieth of the time is lost by it at most."""


class Pace(msgspec.Struct, frozen=True):
    """How one bundle gets on."""

    rate: float
    """Bytes per second, in or out, of the last few seconds."""
    peers: int
    left: int
    """Bytes that are still to come, as far as this engine knows."""


class Queues:
    def __init__(self) -> None:
        self._crowds: dict[Digest, int] = {}
        self._quick: dict[Digest, int] = {}
        """Of how many receivers each crowd was when it was seen to be; what twice as many share may not be."""
        self._made_anew: dict[Digest, float] = {}
        """When the connections were: receivers may come and go, and crowds begin and end with them."""
        self._alone_until = 0.0
        self._told: dict[str, int] = {}

    def crowd(self, digest: Digest, receivers: int | None) -> bool:
        """So many share a swarm from now on; None: it is no crowd any more. Whether that is news."""
        if self._crowds.get(digest) == receivers:
            return False
        self._crowds.pop(digest, None)
        if receivers is not None:
            self._crowds[digest] = receivers
        if receivers is not None and receivers > 2 * self._quick.get(digest, 0):
            self._quick.pop(digest, None)
        return True

    def begin(self, *, placed: bool, now: float) -> None:
        """Whoever begins without a place may have one soon, and asks for little until then."""
        self._alone_until = now + (0.0 if placed else conductor.ALONE_SECS)

    def outgrown(self, statistics: EngineStatistics, paces: Mapping[Digest, Pace]) -> set[Digest]:
        """The bundles whose connections should be made anew now. Whoever is not connected yet counts: it will be. A
        bundle's own rate rises slowly: it tells what part it has in that of the whole engine."""
        moved = max(statistics.download_rate, statistics.upload_rate)
        of_all = sum(pace.rate for pace in paces.values())
        quick = {}
        for digest in self._crowds.keys() & paces.keys() - self._quick.keys():
            pace, receivers = paces[digest], self._crowds[digest]
            rate = moved * pace.rate / of_all if of_all else 0.0
            rested = statistics.at - self._made_anew.get(digest, float("-inf")) >= REST_SECS
            if rested and conductor.is_quick(rate, max(pace.peers, receivers), pace.left):
                quick[digest] = receivers
        if self._allowed(self._quick | quick) == self._allowed(self._quick):
            return set()  # another crowd keeps it narrow
        self._quick |= quick
        self._made_anew |= dict.fromkeys(quick, statistics.at)
        return set(quick)

    def _allowed(self, quick: Mapping[Digest, int]) -> int:
        windows = [conductor.window(crowd, quick=digest in quick) for digest, crowd in self._crowds.items()]
        return min(windows, default=MOST_ALLOWED)

    def news(self, statistics: EngineStatistics, rtt: float, now: float) -> dict[str, int]:
        """What libtorrent has to be told; nothing if it knows."""
        told = self.settings(statistics, rtt, now)
        news, self._told = {} if told == self._told else told, told
        return news

    def settings(self, statistics: EngineStatistics, rtt: float, now: float) -> dict[str, int]:
        most = max(self._crowds.values(), default=None)
        way = conductor.Way(statistics.peers, rtt)
        alone = most is None and now < self._alone_until
        return {
            "max_allowed_in_request_queue": self._allowed(self._quick),
            "request_queue_time": conductor.queue_secs(most, statistics.download_rate, way),
            "max_out_request_queue": conductor.BLOCKS_UNDER_WAY if alone else MOST_ASKED,
        }
