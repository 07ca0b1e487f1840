"""The cluster's records as one immutable value, and how to derive the next snapshot from what was
read.

Always: a replica counts only while a registered master runs with exactly that store. An unreadable
record counts as absent and affects no other record.
Pure: no I/O and no clock.
Longer than most files: the value and the rule that derives the next one belong together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlsplit

import msgspec

from torrentdist.cluster import paths
from torrentdist.cluster.election.term import TermRecord, queue
from torrentdist.cluster.session.znode_operations import Stat
from torrentdist.model import records
from torrentdist.model.access.host_record import HostRecord, InvitationRecord, PresenceRecord
from torrentdist.model.access.token_messages import TokenRecord
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, JobId, MasterId, SupervisorId
from torrentdist.model.policies.distribution_record import DistributionRecord
from torrentdist.model.policies.retention_record import RetentionRecord
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
from torrentdist.model.removals import RemovalsRecord

K = TypeVar("K", bound=str)
V = TypeVar("V")
E = TypeVar("E", bound=records.Record)


class RecordEntry(msgspec.Struct, Generic[E], frozen=True):
    """A record as it was read."""

    record: E
    version: int
    """The version to write with."""
    mtime: float = 0.0
    """ZooKeeper's time of the record's last write."""


class BundleEntry(RecordEntry[BundleRecord], frozen=True):
    replicas: Mapping[MasterId, ReplicaRecord] = msgspec.field(default_factory=dict)
    """Replica records as written. holders() returns those that count."""


AssignmentEntry = RecordEntry[AssignmentRecord]
JobEntry = RecordEntry[JobRecord]
TokenEntry = RecordEntry[TokenRecord]
HostEntry = RecordEntry[HostRecord]
InvitationEntry = RecordEntry[InvitationRecord]
PresenceEntry = RecordEntry[PresenceRecord]
DistributionEntry = RecordEntry[DistributionRecord]
RetentionEntry = RecordEntry[RetentionRecord]


class Changes(msgspec.Struct, frozen=True):
    """Ids of the records that differ, or may differ, between two snapshots."""

    bundles: frozenset[BundleId] = frozenset()
    jobs: frozenset[JobId] = frozenset()
    assignments: frozenset[SupervisorId] = frozenset()
    masters: bool = False
    """A master registered, registered again, or left. The holders of any bundle may have
    changed."""
    supervisors: bool = False
    registrations: frozenset[SupervisorId] = frozenset()
    """The supervisors that registered, registered again, or left."""
    cluster: bool = False
    """The cluster's own record changed: the tree may have appeared or disappeared."""
    tokens: bool = False
    hosts: bool = False
    """Hosts' certificates, revocations or invitations changed."""
    places: frozenset[str] = frozenset()
    policies: bool = False
    """Distributions or retention rules changed."""
    presence: bool = False
    """What the cluster remembers of masters or supervisors changed."""

    @property
    def any_bundle(self) -> bool:
        """Whether the status of bundles whose own records did not change may differ."""
        return self.masters or self.cluster


def _joined(values: Sequence[Any]) -> Any:
    """Returns all ids of several steps, or whether one of them is true."""
    return any(values) if isinstance(values[0], bool) else frozenset().union(*values)


RECENT = 256
"""Number of steps remembered. A reader that is further behind examines everything."""


class ClusterSnapshot(msgspec.Struct, frozen=True):
    version: int = 0
    """Increases with every change that this process observes."""
    cluster: ClusterRecord | None = None
    masters: Mapping[MasterId, MasterRecord] = msgspec.field(default_factory=dict)
    supervisors: Mapping[SupervisorId, SupervisorRecord] = msgspec.field(default_factory=dict)
    bundles: Mapping[BundleId, BundleEntry] = msgspec.field(default_factory=dict)
    assignments: Mapping[SupervisorId, AssignmentEntry] = msgspec.field(default_factory=dict)
    jobs: Mapping[JobId, JobEntry] = msgspec.field(default_factory=dict)
    tokens: Mapping[str, TokenEntry] = msgspec.field(default_factory=dict)
    hosts: Mapping[str, HostEntry] = msgspec.field(default_factory=dict)
    invitations: Mapping[str, InvitationEntry] = msgspec.field(default_factory=dict)
    places: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The hosts with a place of their own, and the ZooKeeper users that they are there."""
    distributions: Mapping[BundleId, DistributionEntry] = msgspec.field(default_factory=dict)
    retention: Mapping[str, RetentionEntry] = msgspec.field(default_factory=dict)
    """Retention rules, by the names of their znodes."""
    known_masters: Mapping[MasterId, PresenceEntry] = msgspec.field(default_factory=dict)
    known_supervisors: Mapping[SupervisorId, PresenceEntry] = msgspec.field(default_factory=dict)
    election: tuple[MasterId, ...] = ()
    """Masters in the election queue, in order. The first is elected, but leads only after it has
    raised the epoch."""
    leader: MasterId | None = None
    epoch: int = 0
    leader_since: float = 0.0
    """Time of the last epoch change, on ZooKeeper's clock."""
    removals: tuple[str, ...] = ()
    """The marks of the bundles that were removed last. Only supervisors read them."""
    damaged: frozenset[str] = frozenset()
    """Paths of records that are there and cannot be read."""
    recent: tuple[Changes, ...] = ()
    """The latest steps that led to this version, the newest last."""

    def changes_since(self, version: int) -> Changes | None:
        """Returns what changed after an earlier version, or None if everything may have changed."""
        steps = self.version - version
        if version < 0 or not 0 < steps <= len(self.recent):
            return Changes() if steps == 0 else None
        some = self.recent[len(self.recent) - steps :]
        if steps == 1:
            return some[0]
        names = Changes.__struct_fields__
        return Changes(**{name: _joined([getattr(step, name) for step in some]) for name in names})

    @property
    def present(self) -> bool:
        """Whether the tree belongs to a cluster. A missing or wiped tree is evidence of nothing."""
        return self.cluster is not None

    @property
    def schema(self) -> int:
        """The schema in which all records are written."""
        return records.OLDEST_READABLE if self.cluster is None else self.cluster.schema

    def holders(self, bundle: BundleId) -> tuple[MasterId, ...]:
        """Returns the live masters that hold a verified copy in the store that they currently
        use."""
        entry = self.bundles.get(bundle)
        if entry is None:
            return ()
        return tuple(id_ for id_, replica in sorted(entry.replicas.items()) if self._counts(entry.record, replica))

    def _counts(self, bundle: BundleRecord, replica: ReplicaRecord) -> bool:
        master = self.masters.get(replica.master)
        return master is not None and master.store == replica.store and replica.digest == bundle.digest


@dataclass
class ReadTree:
    """Everything read so far: data and stats, and names of children, by path."""

    nodes: dict[str, tuple[bytes, Stat]] = field(default_factory=dict)
    children: dict[str, frozenset[str]] = field(default_factory=dict)

    def drop(self, path: str) -> None:
        self.nodes.pop(path, None)
        for name in self.children.pop(path, ()):
            self.drop(f"{path}/{name}")


MOST_REGISTRATION_BYTES = 64 * 1024
"""Largest registration. A host writes its own, and every master and console reads it."""

OnBad = Callable[[str, TorrentdistError], None]


def updated(old: ClusterSnapshot, tree: ReadTree, touched: Iterable[str], on_bad: OnBad) -> ClusterSnapshot:
    """Returns the next snapshot, or `old` itself if nothing changed. Decodes only the touched
    paths."""
    touched = list(touched)
    damaged = {path for path in old.damaged.difference(touched) if path in tree.nodes}

    def note(path: str, error: TorrentdistError) -> None:
        damaged.add(path)
        on_bad(path, error)

    by_section, read = _by_section(touched), _RecordReader(tree, note)
    now: dict[str, Any] = {}
    changed: dict[str, frozenset[Any]] = {}
    for name, (section, build) in _SECTIONS.items():
        now[name], changed[name] = _rebuilt(getattr(old, name), by_section.get(section, ()), partial(build, read))
    cluster = read.record(paths.CLUSTER, ClusterRecord) if paths.CLUSTER in by_section else old.cluster
    removals = old.removals
    if paths.REMOVALS in by_section:
        notice = read.record(paths.REMOVALS, RemovalsRecord) if tree.nodes.get(paths.REMOVALS, (b"",))[0] else None
        removals = removals if notice is None else notice.marks
    new = _with_leader(msgspec.structs.replace(old, cluster=cluster, removals=removals, **now), by_section, read)
    if damaged != old.damaged:
        new = msgspec.structs.replace(new, damaged=frozenset(damaged))
    step = Changes(
        changed["bundles"],
        changed["jobs"],
        changed["assignments"],
        masters=bool(changed["masters"]),
        supervisors=bool(changed["supervisors"]),
        registrations=changed["supervisors"],
        cluster=cluster != old.cluster,
        tokens=bool(changed["tokens"]),
        hosts=bool(changed["hosts"] or changed["invitations"]),
        places=changed["places"],
        policies=bool(changed["distributions"] or changed["retention"]),
        presence=bool(changed["known_masters"] or changed["known_supervisors"]),
    )
    if step == Changes() and _same_heads(old, new):
        return old
    return msgspec.structs.replace(new, version=old.version + 1, recent=(*old.recent[1 - RECENT :], step))


def _by_section(touched: Iterable[str]) -> Mapping[str, set[str]]:
    """Returns the names in each section to which touched paths belong."""
    found: dict[str, set[str]] = {}
    for path in touched:
        _, first, *rest = path.split("/")
        found.setdefault("/" + first, set()).add(rest[0] if rest else "")
    found.setdefault(paths.SUPERVISORS, set()).update(found.get(paths.PLACES, ()), found.get(paths.HOSTS, ()))
    return found


def _same_heads(old: ClusterSnapshot, new: ClusterSnapshot) -> bool:
    """Whether two snapshots agree in everything except the collections of records."""
    heads = [(s.election, s.leader, s.epoch, s.leader_since, s.removals, s.damaged) for s in (old, new)]
    return heads[0] == heads[1]


def _with_leader(snapshot: ClusterSnapshot, by_section: Collection[str], read: _RecordReader) -> ClusterSnapshot:
    if paths.ELECTION not in by_section and paths.EPOCH not in by_section:
        return snapshot
    names = queue(read.tree.children.get(paths.ELECTION, frozenset()))
    candidates = [read.tree.nodes.get(paths.election_node(name)) for name in names]
    node = read.tree.nodes.get(paths.EPOCH)
    term = read.record(paths.EPOCH, TermRecord) if node and node[0] else None
    return msgspec.structs.replace(
        snapshot,
        election=tuple(MasterId(node[0].decode(errors="replace")) for node in candidates if node is not None),
        leader=term.leader_among(names) if term else None,
        epoch=node[1].version if node else 0,
        leader_since=node[1].mtime if node else 0.0,
    )


def _rebuilt(
    current: Mapping[K, V], touched: Collection[str], build: Callable[[K], V | None]
) -> tuple[Mapping[K, V], frozenset[K]]:
    """Returns `current` with the touched entries rebuilt, and the keys that changed.

    Returns the same mapping object if no entry changed.
    """
    changed: dict[K, V | None] = {}
    for name in touched:
        key: K = name  # type: ignore[assignment]  # ids are strings
        value = build(key) if name else None  # an empty name stands for the list itself
        if value != current.get(key):
            changed[key] = value
    if not changed:
        return current, frozenset()
    result = {**current}
    for key, value in changed.items():
        if value is None:
            del result[key]
        else:
            result[key] = value
    return result, frozenset(changed)


def as_certified(record: SupervisorRecord, host: HostEntry | None) -> SupervisorRecord:
    """Returns the registration without addresses that the host's certificate does not name: a
    hostile host would send all others to any address."""
    if host is None or not host.record.has_certificate:
        return record
    known = host.record.addresses
    place = record.host if record.host in known else ""
    return msgspec.structs.replace(record, host=place, url=record.url if _hostname(record.url) in known else "")


def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:  # such as an address whose bracket does not end
        return ""


class _RecordReader(msgspec.Struct, frozen=True):
    tree: ReadTree
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
        """Reads a record that contains its own id. A record stored under a different name counts as
        absent."""
        record = self.record(path, kind)
        said = getattr(record, key, None)
        if record is not None and said != paths.name(path):
            self.on_bad(path, TorrentdistError("invalid_request", detail=f"{path} holds the record of {said!r}"))
            return None
        return record

    def master(self, id_: MasterId) -> MasterRecord | None:
        return self.named(f"{paths.MASTERS}/{id_}", MasterRecord, "id")

    def supervisor(self, id_: SupervisorId) -> SupervisorRecord | None:
        """A host with a place of its own registers there, and all others in one list."""
        own = f"{paths.PLACES}/{id_}/{paths.REGISTRATION}"
        if self.place(id_) == "":  # It has lost its place, and what is left there counts for nothing.
            return None
        path = own if own in self.tree.nodes else f"{paths.SUPERVISORS}/{id_}"
        node = self.tree.nodes.get(path)
        if node is not None and len(node[0]) > MOST_REGISTRATION_BYTES:
            self.on_bad(path, TorrentdistError("invalid_request", detail=f"{path} has {len(node[0])} bytes"))
            return None
        record = self.record(path, SupervisorRecord)
        if record is not None and record.id != id_:
            self.on_bad(path, TorrentdistError("invalid_request", detail=f"{path} holds the record of {record.id!r}"))
            return None
        return record and as_certified(record, self.entry(f"{paths.HOSTS}/{id_}", HostRecord, "id"))

    def place(self, id_: str) -> str | None:
        node = self.tree.nodes.get(f"{paths.PLACES}/{id_}")
        return None if node is None else node[0].decode(errors="replace")

    def entry(self, path: str, kind: type[R], key: str = "") -> RecordEntry[R] | None:
        """Reads a record and its version. `key`: its field that holds its own id, if it has one."""
        record = self.named(path, kind, key) if key else self.record(path, kind)
        stat = self.tree.nodes[path][1] if record is not None else None
        return None if record is None or stat is None else RecordEntry(record, stat.version, stat.mtime)

    def bundle(self, id_: BundleId) -> BundleEntry | None:
        path = f"{paths.BUNDLES}/{id_}"
        record = self.named(path, BundleRecord, "id")
        if record is None:
            return None
        stat = self.tree.nodes[path][1]
        names = sorted(self.tree.children.get(path, ()))
        replicas = [self.named(f"{path}/{name}", ReplicaRecord, "master") for name in names]
        return BundleEntry(record, stat.version, stat.mtime, {r.master: r for r in replicas if r is not None})


_Section = tuple[str, Callable[[_RecordReader, Any], Any]]
"""The parent of the records of one kind, and how one of them is read."""


def _entries(parent: str, kind: type[R], key: str = "") -> _Section:
    return parent, lambda reader, id_: reader.entry(f"{parent}/{id_}", kind, key)


_SECTIONS: Final[Mapping[str, _Section]] = {
    "masters": (paths.MASTERS, _RecordReader.master),
    "supervisors": (paths.SUPERVISORS, _RecordReader.supervisor),
    "bundles": (paths.BUNDLES, _RecordReader.bundle),
    "assignments": _entries(paths.ASSIGNMENTS, AssignmentRecord),
    "jobs": _entries(paths.JOBS, JobRecord, "id"),
    "tokens": _entries(paths.TOKENS, TokenRecord, "name"),
    "hosts": _entries(paths.HOSTS, HostRecord, "id"),
    "invitations": _entries(paths.INVITATIONS, InvitationRecord, "id"),
    "places": (paths.PLACES, _RecordReader.place),
    "distributions": _entries(paths.DISTRIBUTIONS, DistributionRecord, "bundle"),
    "retention": _entries(paths.RETENTION, RetentionRecord),
    "known_masters": _entries(paths.KNOWN_MASTERS, PresenceRecord, "id"),
    "known_supervisors": _entries(paths.KNOWN_SUPERVISORS, PresenceRecord, "id"),
}
