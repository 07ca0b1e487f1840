"""What nobody needs any more once a cluster has come to rest: places in the election, sessions,
barriers, members, claims, transfers, files, tasks, and daemons that are busy.

Always: a complaint names the host and what it has left. Nothing here asks a daemon what it needs.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from simulation.history import History
from simulation.invariants import Invariants, published
from simulation.record_history import ROOT
from simulation.simulated_cluster import SimulatedCluster
from simulation.simulated_engine import SimulatedEngine
from simulation.simulated_host import Host
from simulation.simulated_runs import SimulatedRunning

from torrentdist.host.process.background_loops import repeated
from torrentdist.supervisor.exclusivity.barriers import resource_of

BUSY_SECS = 3.0
MOST_WORK, MOST_PER_HOST = 60, 10
"""Tasks, requests to ZooKeeper and calls in threads that a daemon at rest may begin in this time,
and how many more for each host of the cluster."""
KEPT = 1.6
"""How much longer than told an answer may be kept, since it is looked at twice in that time."""
MOST_ALIKE = 12
"""Tasks of one kind that a daemon may have at rest."""
TEMPORARY = re.compile(r"\.tmp$|^\.torrentdist-|-part$|^[0-9a-f]{64}\.[0-9a-f]{16}$")
OF_RUNS = frozenset({"spec.json.tmp", "status.json.tmp"})
"""The next write of a run goes over them, and they go with the run."""


def _kind_of(task: asyncio.Task[Any]) -> str:
    """Returns what a task runs. Loops that begin anew are told apart by their names."""
    function = str(task.get_coro()).split()[2]
    return f"{function} {task.get_name()}" if function == repeated.__qualname__ else function


class LeftOver:
    def __init__(self, cluster: SimulatedCluster, invariants: Invariants, history: History) -> None:
        self._history = history
        self._cluster, self._invariants = cluster, invariants
        self._work: dict[str, list[tuple[float, int]]] = {}
        """How much each process had begun at the last looks."""

    def complaints(self) -> Iterator[str]:
        yield from self._places()
        yield from self._barriers()
        for host in self._cluster.hosts:
            if host.up:
                yield from self._files(host)
                yield from self._tasks(host)
                yield from self._busy(host)
        yield from self._transfers()

    def _children(self, parent: str) -> list[str]:
        node = self._cluster.zookeeper.nodes.get(f"{ROOT}/{parent}")
        return [] if node is None else list(node.children)

    def _places(self) -> Iterator[str]:
        """Each daemon has one session, and each master one place in the election."""
        nodes, zookeeper = self._cluster.zookeeper.nodes, self._cluster.zookeeper
        places = [nodes[f"{ROOT}/election/{name}"].data.decode() for name in self._children("election")]
        for host in self._cluster.hosts:
            sessions = [session for session in zookeeper.sessions.values() if session.name == host.name]
            if len(sessions) != 1:
                yield f"{host.name} has {len(sessions)} sessions"
            if host.is_master and places.count(host.name) != 1:
                yield f"{host.name} has {places.count(host.name)} places in the election"
            members = [path for session in sessions for path in session.ephemerals if "/members/" in path]
            if len(members) > 1:
                yield f"{host.name} is {len(members)} members of the group of jobs"
        for session in zookeeper.sessions.values():
            if session.connection is None:
                yield f"a session of {session.name} has no connection"
        for bucket in self._children("requests"):
            for name in self._children(f"requests/{bucket}"):
                node = nodes[f"{ROOT}/requests/{bucket}/{name}"]
                if json.loads(node.data).get("status", 0) == 0:
                    yield f"the claim {name} has no answer"
                if zookeeper.wall() - node.mtime > KEPT * self._cluster.answers_secs + BUSY_SECS:
                    yield f"the answer {name} is kept for {zookeeper.wall() - node.mtime:.0f} s"

    def _barriers(self) -> Iterator[str]:
        living = {resource_of(run.key) for run in SimulatedRunning.all_runs.living()}
        for name in self._children("groups/jobs/barriers"):
            node = self._cluster.zookeeper.nodes[f"{ROOT}/groups/jobs/barriers/{name}"]
            if name not in living and (node.owner or node.children):
                yield f"the barrier {name} is left, and its worker does not run"

    def _files(self, host: Host) -> Iterator[str]:
        records = dict(self._invariants.records())
        digests = {record["digest"] for record in records.values() if record["state"] != "removed"}
        for top, folders, names in os.walk(host.data_dir):
            for name in sorted([*folders, *names]):
                if TEMPORARY.search(name) and name not in OF_RUNS:
                    yield f"{host.name} has left {os.path.relpath(os.path.join(top, name), host.data_dir)}"
            folders[:] = [name for name in folders if name != "content"]  # What users named is theirs.
        place = host.data_dir / "distributor"
        for name in sorted(os.listdir(place)) if place.is_dir() and not self._history.restored_at else ():
            if name.partition("@")[2].partition(".")[0] not in digests:
                yield f"{host.name} has left the metafile {name[:40]}"

    def _tasks(self, host: Host) -> Iterator[str]:
        undone = Counter(_kind_of(task) for task in set(host.process.tasks) if not task.done())
        for name, count in undone.items():
            if count > MOST_ALIKE + len(self._cluster.hosts):
                yield f"{host.name} has {count} tasks {name}"

    def _busy(self, host: Host) -> Iterator[str]:
        now, process = self._cluster.loop.time(), host.process
        looks = self._work.setdefault(f"{host.name} {id(process)}", [])
        looks.append((now, len(process.tasks) + process.calls))
        while len(looks) > 1 and now - looks[1][0] >= BUSY_SECS:
            looks.pop(0)
        work, most = looks[-1][1] - looks[0][1], MOST_WORK + MOST_PER_HOST * len(self._cluster.hosts)
        if now - looks[0][0] <= 2 * BUSY_SECS and work > most:
            yield f"{host.name} is busy: {work} tasks and calls in {now - looks[0][0]:.0f} s"

    def _transfers(self) -> Iterator[str]:
        # A host that returns may bring what is lost.
        records = [record for _, record in self._invariants.records()]
        arriving = {record["digest"] for record in records if record["state"] in ("uploading", "lost")}
        for engine in SimulatedEngine.everywhere.values():
            host = self._invariants.host(engine._process.name)
            if host is None or host.process is not engine._process:
                continue
            for digest in engine.digests():
                if str(digest) not in published(host.data_dir) and str(digest) not in arriving:
                    yield f"{host.name} has a transfer of {str(digest)[:8]}, and not the bundle"
