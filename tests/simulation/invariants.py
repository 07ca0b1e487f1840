"""What must hold at every moment of a story, checked from outside: from ZooKeeper's tree and from
the disks, by code that shares nothing with the product's decisions.

Always: a finding names the number of its invariant in design.md.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from simulation.host_process import NOBODY
from simulation.kazoo_connection import ZK
from simulation.record_history import ROOT, RecordHistory, barrier_in
from simulation.simulated_cluster import SimulatedCluster, leads
from simulation.simulated_host import Host
from simulation.simulated_runs import SimulatedRun, SimulatedRunning
from simulation.znodes import Znode

from torrentdist.supervisor.exclusivity.barriers import resource_of

LEADERS = ("assignments", "distributions", "retention", "requests", "jobs", "known-masters", "known-supervisors")
HEARD_SECS = 0.1
"""A host may hear of a change in ZooKeeper so much later, and act as before until then."""
LOOK_SECS = 0.5
DELETION_SECS = 5.0
"""A host with a slow disk may end a deletion so long after a record that it could not know."""
MOST_RECORD = 50_000
"""Bytes of the largest record that a story's few bundles, hosts and jobs can need."""
Tree = dict[str, bytes]


class Invariants:
    def __init__(self, cluster: SimulatedCluster, trees: dict[str, Tree]) -> None:
        """`trees`: what each digest stands for."""
        self.cluster, self.trees = cluster, trees
        self.findings: list[str] = []
        self._digest_of: dict[str, str] = {}
        self._lost: dict[str, str] = {}
        """The content of each id whose record ZooKeeper has lost, until it is uploaded again."""
        self._evidence: dict[str, float] = {}
        """When each digest was last seen to be removed from the records."""
        self._needed_since: dict[str, float] = {}
        """When a record last began to name each digest."""
        self._seen: dict[tuple[str, str], float] = {}
        """Since when each host's disk has each digest."""
        self._looked_at = -1.0
        """When the disks were last looked at: what is gone went after this."""
        self.excused: set[str] = set()
        """Hosts whose disk the story has taken."""
        self.records_of_zookeeper = RecordHistory(cluster.zookeeper)
        cluster.zookeeper.on_change.append(self._on_change)
        SimulatedRunning.all_runs.on_start.append(self._on_start)

    def say(self, number: str, text: str) -> None:
        line = f"invariant {number}: {text}"
        if line not in self.findings:
            self.findings.append(line)

    def forget_records(self) -> None:
        """Called when ZooKeeper is set back: its records say again what they said before."""
        self._lost |= self._digest_of
        self._digest_of = {bundle: record["digest"] for bundle, record in self.records()}
        gone = {record["digest"] for _, record in self.records() if record["state"] in ("removed", "lost")}
        self._evidence |= dict.fromkeys(gone, self.cluster.loop.time())

    def unrecorded(self) -> set[str]:
        """Returns the contents of ids whose records ZooKeeper has lost. Nobody has removed them."""
        known = self._lost | self._digest_of
        return {digest for bundle, digest in known.items() if self.record(bundle) is None}

    # on every change in ZooKeeper

    def _on_change(self, kind: str, path: str) -> None:
        parts = path.removeprefix(f"{ROOT}/").split("/")
        if parts[0] == "code-distributor" and len(parts) == 3 and kind == "create":
            self._check_replica(parts[1], parts[2])
        if parts[0] == "code-distributor" and len(parts) == 2:
            self._check_bundle(parts[1], kind)
        if (parts[0] in LEADERS and len(parts) > 1) or (parts[0] == "code-distributor" and len(parts) == 2):
            self._check_fence(kind, path)
        if kind == "delete" and (resource := barrier_in(path)):
            self._check_barrier(resource)
        self._check_schema(path)
        self._check_size(path)
        self.look_at_leaders()

    def _check_size(self, path: str) -> None:
        node = self.cluster.zookeeper.nodes.get(path)
        if node is not None and len(node.data) > MOST_RECORD:
            writer = self.cluster.zookeeper.writer_name()
            self.say("12", f"{writer} writes {len(node.data) // 1000} kB to {'/'.join(path.split('/')[:3])}")

    def _check_schema(self, path: str) -> None:
        """A daemon of the last release that is registered can read every record."""
        node, zookeeper = self.cluster.zookeeper.nodes.get(path), self.cluster.zookeeper
        old = [host for host in self.cluster.hosts if host.up and host.process.release]
        if not old or node is None or not node.data.startswith(b"{"):
            return
        for host in old:
            kind = "masters" if host.is_master else "supervisors"
            there = f"{ROOT}/{kind}/{host.name}" in zookeeper.nodes
            if there and json.loads(node.data).get("schema", 0) > host.process.release:
                self.say("upgrade", f"{zookeeper.writer_name()} writes {path}, which {host.name} cannot read")

    def _on_start(self, run: SimulatedRun) -> None:
        for other in SimulatedRunning.all_runs.living():
            if other is not run and other.key == run.key:
                where = f"{other.host.name} and {run.host.name}"
                self.say("6", f"worker {run.key[1]} of a job runs on {where} at the same time")

    def _check_barrier(self, resource: str) -> None:
        """Called when the barrier of a worker is deleted: no run that it protected may be alive."""
        gone = self.cluster.zookeeper.gone_owner
        if self.cluster.zookeeper.writer is None:
            return  # The session has expired. Workers may run on while the masters see no ZooKeeper either.
        for run in SimulatedRunning.all_runs.living():
            if resource_of(run.key) == resource and run.record.session == gone:
                self.say("6", f"the barrier of worker {run.key[1]} is gone, and it still runs on {run.host.name}")

    def _check_fence(self, kind: str, path: str) -> None:
        zookeeper, session = self.cluster.zookeeper, self.cluster.zookeeper.writer
        epoch = zookeeper.nodes.get(f"{ROOT}/epoch")
        if session is None or epoch is None or not epoch.data or self.host(session.name) is None:
            return  # Who is no host restores a backup.
        term = json.loads(epoch.data)
        place = zookeeper.nodes.get(f"{ROOT}/election/{term['election']}")
        if (place is None or place.owner != session.id) and not self._marks_lost(path, session.id):
            self.say("3", f"{session.name} did {kind} {path}, and epoch {epoch.version} belongs to {term['leader']}")

    def _marks_lost(self, path: str, session: int) -> bool:
        """Whether the one who is elected, and may not lead yet, calls a bundle lost, which is all
        that it may do."""
        queue = self.cluster.zookeeper.nodes.get(f"{ROOT}/election")
        first = min(queue.children, key=lambda name: name[-10:], default=None) if queue is not None else None
        if first is None or self.cluster.zookeeper.nodes[f"{ROOT}/election/{first}"].owner != session:
            return False
        node = self.cluster.zookeeper.nodes.get(path)
        return "/code-distributor/" in path and node is not None and json.loads(node.data).get("state") == "lost"

    def _check_bundle(self, bundle: str, kind: str) -> None:
        record = self.record(bundle)
        if record is None or record["state"] in ("removed", "lost"):
            if digest := self._digest_of.pop(bundle, None):
                self._evidence[digest] = self.cluster.loop.time()
            return
        self._lost.pop(bundle, None)
        if bundle not in self._digest_of:
            self._needed_since[record["digest"]] = self.cluster.loop.time()
        if self._digest_of.setdefault(bundle, record["digest"]) != record["digest"]:
            self.say("8", f"the digest of {bundle} changed")

    def _check_replica(self, bundle: str, master: str) -> None:
        record, host, writer = self.record(bundle), self.host(master), self.cluster.zookeeper.writer
        if record is None or host is None or host.process.rots:
            return
        if writer is None or self.host(writer.name) is None:
            return  # Who is no host restores a backup. Masters withdraw what it brings and they lack.
        if (wrong := self.wrong_on_disk(host, record["digest"])) is not None:
            self.say("1", f"{master} has a replica record of {bundle}, but {wrong}")

    # on every look

    def look(self) -> None:
        self.look_at_leaders()
        for name in self.cluster.zookeeper.senders_of_too_much:
            self.say("3", f"{name} sends more at once than ZooKeeper takes")
        for host in self.cluster.hosts:
            self._look_at_disk(host)
        self._looked_at = self.cluster.loop.time()

    def look_at_leaders(self) -> None:
        leading = [host.name for host in self.cluster.masters if host.up and host.process.held is None and leads(host)]
        if len(leading) > 1:
            self.say("5", f"{' and '.join(leading)} lead at the same time")

    def _look_at_disk(self, host: Host) -> None:
        now, have = self.cluster.loop.time(), set(published(host.data_dir))
        for digest in have:
            self._seen.setdefault((host.name, digest), now)
        objects = host.data_dir / "objects"  # What was found damaged is set aside there, not deleted.
        gone = [key for key in self._seen if key[0] == host.name and key[1] not in have]
        gone = [key for key in gone if not (objects / key[1]).is_dir()]
        for key in gone:
            since, digest = self._seen.pop(key), key[1]
            if host.name in self.excused or self._may_go(digest, since):
                continue
            if not host.is_master and digest in self._told_to_keep(host):
                self.say("2", f"{host.name} dropped {digest[:8]}, which it is told to keep")
            if host.is_master and (digest in self._digest_of.values() or digest in self.unrecorded()):
                self.say("2", f"{host.name} deleted {digest[:8]}, and nothing in the records says that it is removed")

    def _may_go(self, digest: str, since: float) -> bool:
        """Tells whether the records gave a reason to delete what a host had since that time."""
        evidence = self._evidence.get(digest, -1.0)
        if evidence >= since - LOOK_SECS:  # It was first seen at a look.
            return True
        # It came after it was removed, and somebody needs it again since a moment ago.
        needed = self._needed_since.get(digest, -1.0)
        return 0.0 <= evidence < since < needed and self.cluster.loop.time() < needed + DELETION_SECS

    def _told_to_keep(self, host: Host) -> set[str]:
        """Returns the contents that the assignment of a host names, if the host could read it."""
        node = self.cluster.zookeeper.nodes.get(f"{ROOT}/assignments/{host.name}")
        if node is None or host.process.rots or self._cannot_know(host, node):
            return set()
        records = [self.record(bundle) for bundle in json.loads(node.data)["bundles"]]
        return {record["digest"] for record in records if record is not None and record["state"] == "available"}

    def _cannot_know(self, host: Host, node: Znode) -> bool:
        """Tells whether a host has been cut off from ZooKeeper since a znode was written, or that
        happened a moment before the last look, or later."""
        zookeeper, loop = self.cluster.zookeeper, self.cluster.loop
        heard = max((each.heard for each in zookeeper.sessions.values() if each.name == host.name), default=-1.0)
        silent_secs, age = loop.time() - heard, zookeeper.wall() - node.mtime
        is_new = age < HEARD_SECS + loop.time() - self._looked_at
        return is_new or (silent_secs > age and not loop.network.passes(ZK, host.address))

    # the parts of a cluster, as they are

    def record(self, bundle: str) -> dict[str, Any] | None:
        node = self.cluster.zookeeper.nodes.get(f"{ROOT}/code-distributor/{bundle}")
        return None if node is None else json.loads(node.data)

    def records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        parent = self.cluster.zookeeper.nodes.get(f"{ROOT}/code-distributor")
        for bundle in [] if parent is None else list(parent.children):
            record = self.record(bundle)
            if record is not None:
                yield bundle, record

    def host(self, name: str) -> Host | None:
        return next((host for host in self.cluster.hosts if host.name == name), None)

    def wrong_on_disk(self, host: Host, digest: str) -> str | None:
        """Returns what is wrong with a published bundle, byte by byte; None: nothing is."""
        tree = self.trees.get(digest)
        if tree is None:
            return f"nobody uploaded the digest {digest[:8]}"
        if digest not in published(host.data_dir):
            return f"{digest[:8]} is not published there"
        # A fault of this host's disk does not hit what looks at it.
        return NOBODY.context().run(wrong_in, host.data_dir / "objects" / digest / "content", tree)


def published(data_dir: Path) -> list[str]:
    try:
        return sorted(os.listdir(data_dir / "bundles"))
    except OSError:
        return []


def wrong_in(content: Path, tree: Tree) -> str | None:
    found: dict[str, bytes] = {}
    if content.is_file():  # A download of a bundle that is one file has the name that the user gave it.
        found = dict.fromkeys(tree, content.read_bytes())
    for top, _, names in os.walk(content):
        for name in names:
            path = Path(top, name)
            found[str(path.relative_to(content))] = path.read_bytes()
    if found.keys() != tree.keys():
        return f"it has the files {sorted(found)}, not {sorted(tree)}"
    wrong = [name for name in sorted(tree) if found[name] != tree[name]]
    return f"the bytes of {wrong[0]} are wrong" if wrong else None
