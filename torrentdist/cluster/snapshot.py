"""The cluster's records as one immutable value, and how it follows from what was read of the tree.

Always holds: a replica counts only while a registered master has that very store; a record that cannot be read is as
good as absent and hurts no other. Pure: no I/O, no clock.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from torrentdist.cluster import paths
from torrentdist.cluster.operations import Stat
from torrentdist.cluster.term import TermRecord, queue
from torrentdist.model import records
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, JobId, MasterId, SupervisorId
from torrentdist.model.records import (
    AssignmentRecord,
    BundleRecord,
    ClusterRecord,
    JobRecord,
    MasterRecord,
    R,
    ReplicaRecord,
    SupervisorRecord,
    decode,
)

K = TypeVar("K", bound=str)
V = TypeVar("V")


@dataclass(frozen=True)
class BundleEntry:
    record: BundleRecord
    version: int
    mtime: float
    """ZooKeeper's time of the record's last write."""
    replicas: Mapping[MasterId, ReplicaRecord]
    """As written; whether one counts, holders() says."""


@dataclass(frozen=True)
class AssignmentEntry:
    record: AssignmentRecord
    version: int
    mtime: float = 0.0
    """ZooKeeper's time of the record's last write."""


@dataclass(frozen=True)
class JobEntry:
    record: JobRecord
    version: int
    mtime: float
    """ZooKeeper's time of the record's last write."""


@dataclass(frozen=True)
class ClusterSnapshot:
    version: int = 0
    """Grows with every change that this process has seen."""
    cluster: ClusterRecord | None = None
    masters: Mapping[MasterId, MasterRecord] = field(default_factory=dict)
    supervisors: Mapping[SupervisorId, SupervisorRecord] = field(default_factory=dict)
    bundles: Mapping[BundleId, BundleEntry] = field(default_factory=dict)
    assignments: Mapping[SupervisorId, AssignmentEntry] = field(default_factory=dict)
    jobs: Mapping[JobId, JobEntry] = field(default_factory=dict)
    election: tuple[MasterId, ...] = ()
    """Who queues for leadership, in order. The first is elected, but leads only once it has raised the epoch."""
    leader: MasterId | None = None
    epoch: int = 0
    leader_since: float = 0.0
    """ZooKeeper's time of the epoch's last rise."""

    @property
    def present(self) -> bool:
        """Whether this is a cluster's tree at all. A missing or wiped one is no evidence of anything."""
        return self.cluster is not None

    @property
    def schema(self) -> int:
        """That all records are written in."""
        return records.OLDEST_READABLE if self.cluster is None else self.cluster.schema

    def holders(self, bundle: BundleId) -> tuple[MasterId, ...]:
        """The live masters that hold a verified copy in the store that they run with now."""
        entry = self.bundles.get(bundle)
        if entry is None:
            return ()
        return tuple(id_ for id_, replica in sorted(entry.replicas.items()) if self._counts(entry.record, replica))

    def _counts(self, bundle: BundleRecord, replica: ReplicaRecord) -> bool:
        master = self.masters.get(replica.master)
        return master is not None and master.store == replica.store and replica.digest == bundle.digest


@dataclass
class Tree:
    """What was read: data with stat, and names of children, by path."""

    nodes: dict[str, tuple[bytes, Stat]] = field(default_factory=dict)
    children: dict[str, frozenset[str]] = field(default_factory=dict)

    def drop(self, path: str) -> None:
        self.nodes.pop(path, None)
        for name in self.children.pop(path, ()):
            self.drop(f"{path}/{name}")


OnBad = Callable[[str, TorrentdistError], None]


def updated(old: ClusterSnapshot, tree: Tree, touched: Iterable[str], on_bad: OnBad) -> ClusterSnapshot:
    """The next snapshot; `old` itself if nothing of it changed. Only what is at the touched paths is decoded."""
    by_section: dict[str, set[str]] = {}
    for path in touched:
        _, first, *rest = path.split("/")
        by_section.setdefault("/" + first, set()).add(rest[0] if rest else "")
    read = _Reader(tree, on_bad)

    def section(name: str, current: Mapping[K, V], build: Callable[[K], V | None]) -> Mapping[K, V]:
        return _rebuilt(current, by_section.get(name, ()), lambda id_: f"{name}/{id_}" in tree.nodes, build)

    new = dataclasses.replace(
        old,
        cluster=read.record(paths.CLUSTER, ClusterRecord) if paths.CLUSTER in by_section else old.cluster,
        masters=section(paths.MASTERS, old.masters, read.master),
        supervisors=section(paths.SUPERVISORS, old.supervisors, read.supervisor),
        bundles=section(paths.BUNDLES, old.bundles, read.bundle),
        assignments=section(paths.ASSIGNMENTS, old.assignments, read.assignment),
        jobs=section(paths.JOBS, old.jobs, read.job),
    )
    if paths.ELECTION in by_section or paths.EPOCH in by_section:
        new = _with_leader(new, read)
    return old if new == old else dataclasses.replace(new, version=old.version + 1)


def _with_leader(snapshot: ClusterSnapshot, read: _Reader) -> ClusterSnapshot:
    names = queue(read.tree.children.get(paths.ELECTION, frozenset()))
    candidates = [read.tree.nodes.get(paths.election_node(name)) for name in names]
    node = read.tree.nodes.get(paths.EPOCH)
    term = read.record(paths.EPOCH, TermRecord) if node and node[0] else None
    return dataclasses.replace(
        snapshot,
        election=tuple(MasterId(node[0].decode(errors="replace")) for node in candidates if node is not None),
        leader=term.leader_among(names) if term else None,
        epoch=node[1].version if node else 0,
        leader_since=node[1].mtime if node else 0.0,
    )


def _rebuilt(
    current: Mapping[K, V], touched: Collection[str], exists: Callable[[str], bool], build: Callable[[K], V | None]
) -> Mapping[K, V]:
    """`current` with the touched entries built anew; the very same mapping if that changes nothing."""
    # An empty name stands for the list itself: entries may have gone from it.
    names = set(touched) - {""} | {str(key) for key in current if "" in touched and not exists(key)}
    result: dict[K, V] = dict(current)
    for name in names:
        key: K = name  # type: ignore[assignment]  # ids are strings
        value = build(key)
        if value is None:
            result.pop(key, None)
        else:
            result[key] = value
    return current if result == current else result


@dataclass(frozen=True)
class _Reader:
    tree: Tree
    on_bad: OnBad

    def record(self, path: str, kind: type[R]) -> R | None:
        node = self.tree.nodes.get(path)
        if node is None:
            return None
        try:
            return decode(node[0], kind, path=path)
        except TorrentdistError as exc:
            self.on_bad(path, exc)
            return None

    def named(self, path: str, kind: type[R], key: str) -> R | None:
        """A record that says itself where it belongs; elsewhere it is somebody's mistake."""
        record = self.record(path, kind)
        said = getattr(record, key, None)
        if record is not None and said != paths.name(path):
            self.on_bad(path, TorrentdistError("invalid_request", detail=f"{path} holds the record of {said!r}"))
            return None
        return record

    def master(self, id_: MasterId) -> MasterRecord | None:
        return self.named(f"{paths.MASTERS}/{id_}", MasterRecord, "id")

    def supervisor(self, id_: SupervisorId) -> SupervisorRecord | None:
        return self.named(f"{paths.SUPERVISORS}/{id_}", SupervisorRecord, "id")

    def assignment(self, id_: SupervisorId) -> AssignmentEntry | None:
        path = f"{paths.ASSIGNMENTS}/{id_}"
        record = self.record(path, AssignmentRecord)
        if record is None:
            return None
        stat = self.tree.nodes[path][1]
        return AssignmentEntry(record, stat.version, stat.mtime)

    def job(self, id_: JobId) -> JobEntry | None:
        path = f"{paths.JOBS}/{id_}"
        record = self.named(path, JobRecord, "id")
        if record is None:
            return None
        stat = self.tree.nodes[path][1]
        return JobEntry(record, stat.version, stat.mtime)

    def bundle(self, id_: BundleId) -> BundleEntry | None:
        path = f"{paths.BUNDLES}/{id_}"
        record = self.named(path, BundleRecord, "id")
        if record is None:
            return None
        stat = self.tree.nodes[path][1]
        names = sorted(self.tree.children.get(path, ()))
        replicas = [self.named(f"{path}/{name}", ReplicaRecord, "master") for name in names]
        return BundleEntry(record, stat.version, stat.mtime, {r.master: r for r in replicas if r is not None})
