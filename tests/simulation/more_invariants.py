"""What must hold at every moment of leaders and workers: invariants 4, 6 and 7.

Always: checked from outside, from ZooKeeper's tree, the disks and the runs.
"""

from __future__ import annotations

import json

from simulation.invariants import LOOK_SECS, Invariants
from simulation.record_history import ROOT, barrier_in
from simulation.simulated_cluster import SimulatedCluster
from simulation.simulated_host import Host
from simulation.simulated_runs import SimulatedRun, SimulatedRunning

from torrentdist.supervisor.exclusivity.barriers import resource_of

QUIET_SECS = 14.0
"""Time without any other fault after which an outage of ZooKeeper alone must end no worker."""


class MoreInvariants:
    def __init__(self, cluster: SimulatedCluster, invariants: Invariants) -> None:
        self._cluster, self._invariants = cluster, invariants
        self._barriers: dict[str, str] = {}
        """The path of each worker's barrier, by its resource."""
        self._workers: dict[str, set[tuple[str, int]]] = {}
        """The workers that each assignment names, by its path."""
        self._gone: set[str] = set()
        self._trouble_at = 0.0
        """When something else than ZooKeeper was last seen to be in trouble."""
        self._processes: list[object] = []
        """The process of each host at the last look."""
        cluster.zookeeper.on_change.append(self._on_change)
        SimulatedRunning.all_runs.on_start.append(self._look_at_barrier)

    def _on_change(self, kind: str, path: str) -> None:
        if path == f"{ROOT}/epoch" and kind == "set":
            self._look_at_new_leader()
        if path.startswith(f"{ROOT}/assignments/") and kind != "delete":
            self._look_at_drained(path)
        zookeeper = self._cluster.zookeeper
        owner = zookeeper.gone_owner if kind == "delete" else zookeeper.nodes[path].owner
        if owner and (resource := barrier_in(path)):
            self._barriers[resource] = path

    def look(self) -> None:
        for run in SimulatedRunning.all_runs.living():
            self._look_at_barrier(run)
        self._look_at_outage()

    # 4: elected is not ready

    def _look_at_new_leader(self) -> None:
        term = json.loads(self._cluster.zookeeper.nodes[f"{ROOT}/epoch"].data or b"{}")
        leader = self._invariants.host(term.get("leader") or "")
        parent = self._cluster.zookeeper.nodes.get(f"{ROOT}/election/{term.get('election')}")
        if leader is None or parent is None or leader.process.rots:
            return  # The epoch is left, not taken; or a bit has turned, and no check of all bytes was due since.
        for bundle in sorted(self._needed()):
            record = self._invariants.record(bundle)
            if record is None or record["state"] not in ("available", "uploading"):
                continue
            if (wrong := self._invariants.wrong_on_disk(leader, record["digest"])) is not None:
                self._invariants.say("4", f"{leader.name} leads, a live job needs {bundle}, and {wrong}")

    # no work for a host that is drained

    def _look_at_drained(self, path: str) -> None:
        record = json.loads(self._cluster.zookeeper.nodes[path].data)
        workers = {(one["job"], one["worker"]) for one in record["workers"]}
        before, self._workers[path] = self._workers.get(path, set()), workers
        if record.get("draining") and workers - before:
            writer, host = self._cluster.zookeeper.writer_name(), path.rpartition("/")[2]
            self._invariants.say("drain", f"{writer} gives a worker to {host}, which is drained")

    def _needed(self) -> set[str]:
        """Returns the bundles that live jobs need."""
        nodes, found = self._cluster.zookeeper.nodes, set()
        jobs = nodes.get(f"{ROOT}/jobs")
        for job in [] if jobs is None else jobs.children:
            record = json.loads(nodes[f"{ROOT}/jobs/{job}"].data)
            if record["status"] not in ("finished", "failed"):
                found |= {record["bundle"], *record.get("dependencies", ())}
        return found

    # 6: never two

    def _look_at_barrier(self, run: SimulatedRun) -> None:
        """A run whose host's session lives must have its barrier, and nobody else may."""
        zookeeper, resource = self._cluster.zookeeper, resource_of(run.key)
        node = zookeeper.nodes.get(self._barriers.get(resource, ""))
        owner = None if node is None else zookeeper.sessions.get(node.owner)
        if owner is not None and owner.name != run.host.name:
            text = f"worker {run.key[1]} runs on {run.host.name}, and {owner.name} has its barrier"
            self._invariants.say("6", text)
        if node is None and run.record.session in zookeeper.sessions:
            self._invariants.say("6", f"worker {run.key[1]} runs on {run.host.name} without its barrier")

    # 7: control down, data up

    def _look_at_outage(self) -> None:
        """While ZooKeeper alone is down or frozen, and everything else goes well, no worker is
        stopped."""
        now, away_since = self._cluster.loop.time(), self._cluster.zookeeper.away_since()
        ended = [run for run in SimulatedRunning.all_runs.runs.values() if run.gone.is_set()]
        new = [run for run in ended if run.record.id not in self._gone]
        self._gone |= {run.record.id for run in new}
        before, self._processes = self._processes, [host.process for host in self._cluster.hosts]
        has_started = before != self._processes
        if has_started and away_since is not None:
            self._trouble_at = float("inf")  # A master that has just started may lack the newest records.
        elif has_started or self._others_in_trouble():
            self._trouble_at = max(self._trouble_at, now)
        if away_since is None:
            self._trouble_at = min(self._trouble_at, now)
        if away_since is None or now - self._trouble_at < QUIET_SECS or now - away_since < LOOK_SECS:
            return
        for run in new:
            if run.reason in ("lease", "stop", "kill") and self._is_wanted(run):
                text = f"ZooKeeper is away, and worker {run.key[1]} on {run.host.name} ended by {run.reason}"
                self._invariants.say("7", text)

    def _others_in_trouble(self) -> bool:
        network = self._cluster.loop.network
        return bool(network.cut_links or network.slow_links) or any(_is_troubled(host) for host in self._cluster.hosts)

    def _is_wanted(self, run: SimulatedRun) -> bool:
        """Whether its host's assignment still names it, in an active job."""
        nodes = self._cluster.zookeeper.nodes
        told, job = nodes.get(f"{ROOT}/assignments/{run.host.name}"), nodes.get(f"{ROOT}/jobs/{run.key[0]}")
        if told is None or job is None or json.loads(job.data)["status"] != "active":
            return False
        return any(
            (one["job"], one["worker"], one.get("active", True)) == (*run.key, True)
            for one in json.loads(told.data)["workers"]
        )


def _is_troubled(host: Host) -> bool:
    return not host.up or host.process.held is not None or bool(host.process.disk)
