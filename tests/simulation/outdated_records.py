"""How long records are kept that nobody needs any more: tombstones of removed bundles, and jobs
that have ended.

Always: a moment is a change in ZooKeeper. Nothing here asks a daemon.
"""

from __future__ import annotations

import json

from simulation.invariants import Invariants
from simulation.record_history import ROOT
from simulation.simulated_cluster import SimulatedCluster

LATE_SECS = 25.0
"""How much longer such a record may be there: a leader looks every ten seconds, a new one has to
be elected, and users may not be told of the end of a job before its workers have stopped."""
CLOCK_SECS = 0.5


class OutdatedRecords:
    def __init__(self, cluster: SimulatedCluster, invariants: Invariants) -> None:
        self._cluster, self._invariants = cluster, invariants
        self._since: dict[str, float] = {}
        """When each record that is there became useless, by its path."""
        cluster.zookeeper.on_change.append(self._on_change)

    def _on_change(self, kind: str, path: str) -> None:
        top, _, name = path.removeprefix(f"{ROOT}/").partition("/")
        if top not in ("code-distributor", "jobs") or not name or "/" in name:
            return
        now, zookeeper = self._cluster.loop.time(), self._cluster.zookeeper
        if kind != "delete":
            record = json.loads(zookeeper.nodes[path].data)
            if record.get("state", record.get("status")) in ("removed", "finished", "failed"):
                self._since[path] = now
            else:
                self._since.pop(path, None)
            return
        since = self._since.pop(path, None)
        if since is not None and now - since < self._most(top) - CLOCK_SECS:
            self._invariants.say("2", f"{zookeeper.writer_name()} drops {path} {now - since:.0f} s after its end")

    def _most(self, top: str) -> float:
        kept = self._cluster.kept
        return kept.removed if top == "code-distributor" else kept.ended_job

    def look(self) -> None:
        now = self._cluster.loop.time()
        for path, since in self._since.items():
            if now - since > self._most(path.split("/")[2]) + LATE_SECS:
                self._invariants.say("17", f"{path} is still there {now - since:.0f} s after its end")
