"""What a client has seen of its cluster, and how old an answer is in comparison.

Always: transactions are compared within one cluster only. The highest number seen decreases only
when a master that had to include it shows a lower one, which means that ZooKeeper restarted its
count.
Never: ask a master.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from torrentdist.client.masters.remembered_masters import recall_seen, remember_seen
from torrentdist.model.wire.headers import CLUSTER, ZXID, AnswerAge, age_in


class Stale(msgspec.Struct, frozen=True):
    """A warning that an answer may be outdated."""

    secs: float | None
    """Age of the answer's records in seconds. None: the master does not know that they are old."""
    behind: bool
    """Whether the answer may lack something that we have seen."""

    def sentence(self) -> str:
        age = "may be old" if self.secs is None else f"are {self.secs:.0f} s old"
        missing = ", and may lack what you did last" if self.behind else ""
        return f"the records behind this {age}: ZooKeeper is away{missing}"


class Seen:
    """The newest transaction that this user's commands have seen, by cluster."""

    def __init__(self, directory: Path, cluster: str) -> None:
        """`cluster` is the id of the masters' cluster; empty if it is not known yet."""
        self.cluster = cluster
        self._directory = directory
        self._recalled = recall_seen(directory)
        self._now = dict(self._recalled)

    @property
    def zxid(self) -> int:
        return self._now.get(self.cluster, 0)

    def demand(self) -> dict[str, str]:
        """Returns the headers that require a master to include everything that we have seen."""
        if not self.zxid:
            return {}
        return {ZXID: str(self.zxid)} | ({CLUSTER: self.cluster} if self.cluster else {})

    def hear(self, demanded: Mapping[str, str], headers: Mapping[str, str], *, answers: bool) -> bool:
        """Learns from an answer's age. `answers` tells whether the answer contains records that we
        required to be new.

        Returns False if the answer lacks something that we have seen and that its master was not
        asked to include.
        """
        age = age_in(headers)
        self.cluster = self.cluster if age.cluster is None else age.cluster
        if age.zxid is None:
            return True
        if answers and age.zxid < self.zxid and age.stale_secs is None:
            if demanded != self.demand():
                return False
            self._now[self.cluster] = age.zxid
        self._now[self.cluster] = max(self.zxid, age.zxid)
        return True

    def warning(self, headers: Mapping[str, str], *, takes_old: bool) -> Stale | None:
        """Returns the warning for the user about an answer's age. `takes_old` tells that we did not
        require a new one."""
        age: AnswerAge = age_in(headers)
        behind = takes_old and (age.zxid or 0) < self.zxid
        return Stale(age.stale_secs, behind) if behind or age.stale_secs is not None else None

    def keep(self) -> None:
        """Saves what was seen, for the user's next command."""
        for cluster, zxid in self._now.items():
            before = self._recalled.get(cluster, 0)
            if cluster and zxid != before:
                remember_seen(self._directory, cluster, zxid, before)
