"""What must be true once everything is mended and some time has passed.

Always: a complaint is about what a user was told, what a record says, or what is left over.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

from simulation.history import History
from simulation.invariants import Invariants, published
from simulation.left_over import LeftOver
from simulation.record_history import ROOT
from simulation.simulated_cluster import SimulatedCluster, leads
from simulation.simulated_runs import SimulatedRunning
from simulation.told_overviews import wrong_memories


class Ending:
    def __init__(self, cluster: SimulatedCluster, invariants: Invariants, history: History) -> None:
        self._cluster, self._invariants, self._history = cluster, invariants, history
        self._left_over = LeftOver(cluster, invariants, history)

    def has_bugs(self) -> bool:
        """Whether a daemon has failed in a way that it never may. It would fail again and again."""
        return bool(self._cluster.bugs)

    def complaints(self) -> list[str]:
        """Returns everything that is not as it must be in the end."""
        found = [*self._daemons(), *self._bundles(), *self._told(), *self._orders(), *self._jobs()]
        return [*found, *self._parts(), *self._left_over.complaints(), *wrong_memories(self._cluster)]

    def _children(self, parent: str) -> list[str]:
        node = self._cluster.zookeeper.nodes.get(f"{ROOT}/{parent}")
        return [] if node is None else list(node.children)

    def _daemons(self) -> Iterator[str]:
        for host in self._cluster.hosts:
            parent = "masters" if host.is_master else "supervisors"
            if not host.up:
                yield f"{host.name} is not up"
            elif host.name not in self._children(parent) and not self._children(f"places/{host.name}"):
                yield f"{host.name} is not registered"
        if not any(host.up and leads(host) for host in self._cluster.masters):
            yield "nobody leads"

    def _bundles(self) -> Iterator[str]:
        for bundle, record in self._invariants.records():
            if record["state"] != "available":
                for host in self._cluster.masters:
                    is_holder = host.name in self._children(f"code-distributor/{bundle}")
                    if is_holder and self._invariants.wrong_on_disk(host, record["digest"]) is not None:
                        yield f"{host.name} has a replica record of {bundle}, and not the bundle"
                continue
            for host in self._cluster.masters:
                if (wrong := self._invariants.wrong_on_disk(host, record["digest"])) is not None:
                    yield f"{bundle} is available, and on {host.name} {wrong}"
                elif host.name not in self._children(f"code-distributor/{bundle}"):
                    yield f"{host.name} holds {bundle} and has no replica record"

    def _told(self) -> Iterator[str]:
        for bundle, expected in self._history.expected().items():
            record = self._invariants.record(bundle)
            state = "removed" if record is None else record["state"]
            if record is not None and state == "lost" and self._rotted_away(record["digest"]):
                continue
            if expected != state:
                yield f"users were told that {bundle} is {expected}, and its record says {state}"

    def _rotted_away(self, digest: str) -> bool:
        """Tells whether the bits that turned on disks have left no copy."""
        sound = (host for host in self._cluster.hosts if self._invariants.wrong_on_disk(host, digest) is None)
        return any(host.process.rots for host in self._cluster.masters) and next(sound, None) is None

    def _orders(self) -> Iterator[str]:
        for bundle in self._children("distributions"):
            record = json.loads(self._cluster.zookeeper.nodes[f"{ROOT}/distributions/{bundle}"].data)
            if record["state"] == "running" and not any(host.room for host in self._cluster.hosts):
                yield f"the distribution of {bundle} is still running"
        for bundle, name in sorted(self._history.sent()):
            record, node = (
                self._invariants.record(bundle),
                self._cluster.zookeeper.nodes.get(f"{ROOT}/assignments/{name}"),
            )
            if record is None or record["state"] != "available":
                continue
            if node is None or bundle not in json.loads(node.data)["bundles"]:
                yield f"{name} got {bundle} by an order of its own, and is not told to keep it any more"
        yield from self._standing()
        for host in self._cluster.supervisors:
            node = self._cluster.zookeeper.nodes.get(f"{ROOT}/assignments/{host.name}")
            for bundle in [] if node is None else json.loads(node.data)["bundles"]:
                record = self._invariants.record(bundle)
                if record is None or record["state"] == "removed":
                    yield f"{host.name} is told to keep {bundle}, which is removed"
                elif record["state"] == "available" and not host.room:
                    wrong = self._invariants.wrong_on_disk(host, record["digest"])
                    if wrong is not None:
                        yield f"{host.name} keeps {bundle}, but {wrong}"

    def _standing(self) -> Iterator[str]:
        """A standing order is for every host that is registered, whenever it joined."""
        if any(host.room for host in self._cluster.hosts):
            return
        for bundle in self._children("distributions"):
            if json.loads(self._cluster.zookeeper.nodes[f"{ROOT}/distributions/{bundle}"].data)["state"] != "standing":
                continue
            for name in self._children("supervisors"):
                node = self._cluster.zookeeper.nodes.get(f"{ROOT}/assignments/{name}")
                if node is None or bundle not in json.loads(node.data)["bundles"]:
                    yield f"{bundle} is for every host, and {name} is not told to keep it"

    def _jobs(self) -> Iterator[str]:
        living = Counter[str](run.key[0] for run in SimulatedRunning.all_runs.living())
        for job in {*self._children("jobs"), *living}:
            node = self._cluster.zookeeper.nodes.get(f"{ROOT}/jobs/{job}")
            record: dict[str, Any] = {"status": "removed", "name": "?"} if node is None else json.loads(node.data)
            wanted = record["workers"] - len(record["exits"]) if record["status"] == "active" else 0
            bundle = self._invariants.record(record.get("bundle", ""))
            if bundle is not None and bundle["state"] == "lost":
                wanted = living[job]
            if record["status"] not in ("active", "finished", "failed", "removed"):
                yield f"the job {record['name']} is still {record['status']}"
            elif living[job] != wanted:
                yield f"the job {record['name']} is {record['status']}: {living[job]} workers run instead of {wanted}"

    def _parts(self) -> Iterator[str]:
        wanted = {record["digest"] for _, record in self._invariants.records() if record["state"] != "removed"}
        removed = {record["digest"] for _, record in self._invariants.records()} - wanted
        removed -= self._invariants.unrecorded()
        for host in self._cluster.hosts:
            for digest in published(host.data_dir):
                if digest in removed or (digest not in wanted and not self._history.restored_at):
                    yield f"{host.name} still has the removed {digest[:8]}"
            objects = host.data_dir / "objects"
            for name in sorted(os.listdir(objects)) if objects.is_dir() and host.is_master else []:
                # What never had a record stays for a while, and at hosts all that nobody wants.
                if name not in published(host.data_dir) and name in removed:
                    yield f"{host.name} still has a part of the removed {name[:8]}"
            for link in host.ids_dir.iterdir() if host.ids_dir.is_dir() else ():
                if link.is_symlink() and not link.exists():
                    yield f"{host.name} has a link of {link.name} that leads nowhere"
            transit = host.data_dir / "transit"
            # An order to delete what is still there is carried out later.
            if left := sorted({*os.listdir(transit)} - {*os.listdir(objects)} if transit.is_dir() else ()):
                yield f"{host.name} has left {left[0]} in transit"
