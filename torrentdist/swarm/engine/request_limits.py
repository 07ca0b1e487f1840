"""Limits how many blocks an engine and its peers request from each other at a time.

A peer learns the limit when it connects and never again, so a wider limit needs new connections.
Always: the connections of a bundle are renewed at most once a minute, and only if the narrow limit
slows its swarm down.
Never: talk to libtorrent.
"""

from collections.abc import Mapping
from typing import Final

from torrentdist.model.ids import Digest
from torrentdist.swarm.engine.traffic import EngineStatistics, TransferPace
from torrentdist.swarm.plan import request_window

MOST_ALLOWED: Final = 4000
MOST_ASKED: Final = 1500
"""24 MiB of blocks. libtorrent's default of 500 blocks is too few at 1 GiB/s."""
REST_SECS: Final = 60.0
"""Shortest interval between reconnections, so that they take at most a sixtieth of the time."""


class RequestLimits:
    """The request limits of one engine, derived from its swarms."""

    def __init__(self) -> None:
        self._crowds: dict[Digest, int] = {}
        self._quick: dict[Digest, int] = {}
        """Number of receivers at the time when a swarm was found to be fast. The finding expires
        when that number doubles."""
        self._made_anew: dict[Digest, float] = {}
        """When the connections of each bundle were last renewed."""
        self._alone_until = 0.0
        self._told: dict[str, int] = {}

    def crowd(self, digest: Digest, receivers: int | None) -> bool:
        """Sets how many receivers share this swarm (None: no longer a crowd). Returns whether that
        changed anything."""
        if self._crowds.get(digest) == receivers:
            return False
        self._crowds.pop(digest, None)
        if receivers is not None:
            self._crowds[digest] = receivers
        if receivers is not None and receivers > 2 * self._quick.get(digest, 0):
            self._quick.pop(digest, None)
        return True

    def begin(self, *, placed: bool, now: float) -> None:
        """Records that a transfer starts. Without a place in the plan it requests little during the
        first second."""
        self._alone_until = now + (0.0 if placed else request_window.ALONE_SECS)

    def outgrown(self, statistics: EngineStatistics, paces: Mapping[Digest, TransferPace]) -> set[Digest]:
        """Returns the bundles whose connections should be renewed now, in order to get a wider
        window.

        Receivers that are not connected yet count, since they will be. A bundle's own rate rises
        slowly, so it only serves to divide the whole engine's rate.
        """
        moved = max(statistics.download_rate, statistics.upload_rate)
        of_all = sum(pace.rate for pace in paces.values())
        quick = {}
        for digest in self._crowds.keys() & paces.keys() - self._quick.keys():
            pace, receivers = paces[digest], self._crowds[digest]
            rate = moved * pace.rate / of_all if of_all else 0.0
            rested = statistics.at - self._made_anew.get(digest, float("-inf")) >= REST_SECS
            if rested and request_window.is_quick(rate, max(pace.peers, receivers), pace.left):
                quick[digest] = receivers
        if self._allowed(self._quick | quick) == self._allowed(self._quick):
            return set()  # Another swarm keeps the window narrow.
        self._quick |= quick
        self._made_anew |= dict.fromkeys(quick, statistics.at)
        return set(quick)

    def _allowed(self, quick: Mapping[Digest, int]) -> int:
        windows = [request_window.window(crowd, quick=digest in quick) for digest, crowd in self._crowds.items()]
        return min(windows, default=MOST_ALLOWED)

    def news(self, statistics: EngineStatistics, rtt: float, now: float) -> dict[str, int]:
        """Returns the settings that libtorrent has to be given; empty if it has them already."""
        told = self.settings(statistics, rtt, now)
        news, self._told = {} if told == self._told else told, told
        return news

    def settings(self, statistics: EngineStatistics, rtt: float, now: float) -> dict[str, int]:
        most = max(self._crowds.values(), default=None)
        path = request_window.NetworkPath(statistics.peers, rtt)
        alone = most is None and now < self._alone_until
        return {
            "max_allowed_in_request_queue": self._allowed(self._quick),
            "request_queue_time": request_window.queue_secs(most, statistics.download_rate, path),
            "max_out_request_queue": request_window.BLOCKS_UNDER_WAY if alone else MOST_ASKED,
        }
