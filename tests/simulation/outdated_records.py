"""How long records are kept that nobody needs any more: tombstones of removed bundles, jobs that
have ended, and answers for users who ask again. Records that are written without a change are found
here, too.

Always: a moment is a change in ZooKeeper. Nothing here asks a daemon.
"""

from __future__ import annotations

import json

from simulation.invariants import Invariants, published
from simulation.record_history import ROOT
from simulation.simulated_cluster import SimulatedCluster

LATE_SECS = 30.0
"""How much longer such a record may be there: a leader looks every ten seconds, a new one listens
for fifteen, and users may not be told of the end of a job before its workers have stopped."""
CLOCK_SECS = 0.5
COMPARED = ("code-distributor", "assignments", "distributions", "jobs", "retention", "tokens", "requests")
"""Where a write that changes nothing is a decision made twice. Records of replicas are written anew
when a cluster is upgraded."""
ANSWER_CLOCK_SECS = 2.0
"""How far masters may be wrong about ZooKeeper's time."""


class OutdatedRecords:
    def __init__(self, cluster: SimulatedCluster, invariants: Invariants, *, compares: bool) -> None:
        """`compares`: whether no write is made again because its answer was lost."""
        self._cluster, self._invariants, self._compares = cluster, invariants, compares
        self._since: dict[str, float] = {}
        """When each record that is there became useless, by its path."""
        self._needed_at: dict[str, float] = {}
        """When a daemon last had the content of a tombstone that is old."""
        self._led_since = 0.0
        """When the cluster last had no leader, or another one, or no ZooKeeper."""
        self._leader: object = None
        self._answered: dict[str, float] = {}
        """When each answer was last written, by its path."""
        self._seen: dict[str, bytes] = {}
        """What each record of those that are compared had when it was last written."""
        cluster.zookeeper.on_change.append(self._on_change)

    def _on_change(self, kind: str, path: str) -> None:
        top, _, name = path.removeprefix(f"{ROOT}/").partition("/")
        if self._compares and top in COMPARED and not (top == "code-distributor" and "/" in name):
            self._compare(kind, path)
        if top == "requests" and "/" in name:
            self._hear_answer(kind, path)
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

    def _compare(self, kind: str, path: str) -> None:
        node, writer = self._cluster.zookeeper.nodes.get(path), self._cluster.zookeeper.writer_name()
        before = self._seen.pop(path, None)
        if kind != "delete" and node is not None:
            self._seen[path] = node.data
            if kind == "set" and before == node.data and self._invariants.host(writer) is not None:
                self._invariants.say("15", f"{writer} writes {path} again, which has not changed")

    def _hear_answer(self, kind: str, path: str) -> None:
        now, least = self._cluster.loop.time(), self._cluster.answers_secs - ANSWER_CLOCK_SECS
        if kind != "delete":
            self._answered[path] = now
        elif now - (since := self._answered.pop(path, -least)) < least:
            writer = self._cluster.zookeeper.writer_name()
            self._invariants.say("answers", f"{writer} drops {path} after {now - since:.0f} s")

    def _most(self, top: str) -> float:
        kept = self._cluster.kept
        return kept.removed if top == "code-distributor" else kept.ended_job

    def look(self) -> None:
        now = self._cluster.loop.time()
        leader = self._cluster.leader()
        if leader is None or leader.process is not self._leader or not self._cluster.zookeeper.up:
            self._leader, self._led_since = None if leader is None else leader.process, now
        for path, since in self._since.items():
            most = self._most(path.split("/")[2])
            if now - since > most and self._is_kept(path):
                self._needed_at[path] = now
            if now - max(since + most, self._needed_at.get(path, 0.0), self._led_since) > LATE_SECS:
                self._invariants.say("17", f"{path} is still there {now - since:.0f} s after its end")

    def _is_kept(self, path: str) -> bool:
        """Whether a daemon still has what was removed, for a program that uses it, or because it
        cannot delete it."""
        digest = json.loads(self._cluster.zookeeper.nodes[path].data).get("digest")
        return any(digest in published(host.data_dir) for host in self._cluster.hosts)
