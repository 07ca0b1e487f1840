"""How much daemons do while things go wrong: a loop that tries again without a pause is found here,
also if all is well in the end.

Always: counted from outside, from the tasks, the requests to ZooKeeper and the calls in threads
that a process began.
"""

from __future__ import annotations

from collections import deque

from simulation.invariants import Invariants
from simulation.simulated_cluster import SimulatedCluster

PERIOD_SECS = 5.0
MOST_WORK, MOST_PER_HOST = 2000, 150
"""What a daemon may begin in this time, and how much more for each host of the cluster."""


class WorkRate:
    def __init__(self, cluster: SimulatedCluster, invariants: Invariants) -> None:
        self._cluster, self._invariants = cluster, invariants
        self._seen: dict[str, deque[tuple[object, float, int]]] = {}
        """What each host's process had begun at the looks of the last period."""

    def look(self) -> None:
        now, most = self._cluster.loop.time(), MOST_WORK + MOST_PER_HOST * len(self._cluster.hosts)
        for host in self._cluster.hosts:
            process, looks = host.process, self._seen.setdefault(host.name, deque())
            if looks and looks[0][0] is not process:
                looks.clear()
            looks.append((process, now, len(process.tasks) + process.calls))
            while now - looks[0][1] > PERIOD_SECS:
                looks.popleft()
            if (count := looks[-1][2] - looks[0][2]) > most:
                self._invariants.say("17", f"{host.name} is busy: {count // 1000} thousand tasks and calls in a moment")
