"""What a client has seen of its cluster, so that no master shows it the past unnoticed.

Always holds: a number is compared only with numbers of the same cluster; it falls only when an answer that had to show
it shows less, which means that ZooKeeper counts anew. Must not do: ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from torrentdist.client.masters.remembered_masters import recall_seen, remember_seen
from torrentdist.client.masters.request_exchange import CLUSTER_HEADER, SEEN_HEADER, STALE_HEADER


class Stale(msgspec.Struct, frozen=True):
    """An answer that may be of the past."""

    secs: float | None
    """So old its records are; None: its master doesn't know that they are."""
    behind: bool
    """What we have seen may be missing in it."""

    def sentence(self) -> str:
        age = "may be old" if self.secs is None else f"are {self.secs:.0f} s old"
        missing = ", and may lack what you did last" if self.behind else ""
        return f"the records behind this {age}: ZooKeeper is away{missing}"


class Seen:
    def __init__(self, directory: Path, cluster: str) -> None:
        """`cluster`: that of the masters which are about to be asked, as far as we know; or empty."""
        self.cluster = cluster
        self._directory = directory
        self._recalled = recall_seen(directory)
        self._now = dict(self._recalled)

    @property
    def zxid(self) -> int:
        return self._now.get(self.cluster, 0)

    def demand(self) -> dict[str, str]:
        """The headers that oblige a master to show what we have seen."""
        if not self.zxid:
            return {}
        return {SEEN_HEADER: str(self.zxid)} | ({CLUSTER_HEADER: self.cluster} if self.cluster else {})

    def hear(self, demanded: Mapping[str, str], headers: Mapping[str, str], *, answers: bool) -> bool:
        """Take note of an answer; False: it lacks what we have seen, and its master wasn't told. `answers`: it shows
        records, of which ours was demanded."""
        self.cluster = headers.get(CLUSTER_HEADER, self.cluster)
        shown = _number(headers.get(SEEN_HEADER, ""))
        if shown is None:
            return True
        if answers and shown < self.zxid and STALE_HEADER not in headers:
            if demanded != self.demand():
                return False
            self._now[self.cluster] = shown
        self._now[self.cluster] = max(self.zxid, shown)
        return True

    def behind(self, headers: Mapping[str, str]) -> bool:
        return (_number(headers.get(SEEN_HEADER, "")) or 0) < self.zxid

    def keep(self) -> None:
        for cluster, zxid in self._now.items():
            before = self._recalled.get(cluster, 0)
            if cluster and zxid != before:
                remember_seen(self._directory, cluster, zxid, before)


def _number(text: str) -> int | None:
    return int(text[:20]) if text.isascii() and text.isdigit() else None
