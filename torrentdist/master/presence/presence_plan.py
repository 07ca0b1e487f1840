"""Decides what the cluster remembers of its masters and supervisors, and which of them are gone.

Always: a daemon is remembered from its first registration until it stops cleanly, is drained or
revoked, or is forgotten. Times are ZooKeeper's, so that a new leader counts on from the old one's.
Never: remember more than MOST_KNOWN daemons of a role, or more than MOST_GONE that are gone.
Pure: no I/O and no clock.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import msgspec

from torrentdist.cluster import paths
from torrentdist.cluster.records.snapshot import ClusterSnapshot, PresenceEntry
from torrentdist.cluster.session.znode_operations import Create, Delete, Op, Set
from torrentdist.model.access.host_record import PresenceRecord
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import JobId, MasterId, SupervisorId
from torrentdist.model.records import MasterRecord, SupervisorRecord, encode
from torrentdist.model.wire.cluster_messages import GoneView

ABSENT_SECS = 10.0
"""How long a daemon may be unregistered before it counts as gone. After an outage of ZooKeeper all
register again within this time."""
LOOP_SECS = 900.0
LOOP_STARTS = 4
"""A daemon that starts so often again within LOOP_SECS is in a loop. A rolling restart, and one
more, is none."""
MOST_ABSENCES = 5
MOST_KNOWN = 20_000
MOST_GONE = 1_000
MOST_JOBS = 20
"""Most jobs that a record names."""


class _Role(msgspec.Struct, frozen=True):
    """The daemons of one role: those that are registered, and those that are remembered."""

    name: str
    path: Callable[[str], str]
    registered: Mapping[Any, MasterRecord | SupervisorRecord]
    known: Mapping[Any, PresenceEntry]


def _roles(snapshot: ClusterSnapshot) -> tuple[_Role, _Role]:
    return (
        _Role("master", paths.known_master, snapshot.masters, snapshot.known_masters),
        _Role("supervisor", paths.known_supervisor, snapshot.supervisors, snapshot.known_supervisors),
    )


class Heard(msgspec.Struct, frozen=True):
    """What only this master has heard."""

    goodbyes: Collection[str] = ()
    """The daemons that told it that they stop."""
    unheard: Mapping[SupervisorId, float] = msgspec.field(default_factory=dict)
    """The supervisors that owe it heartbeats, and since when, by ZooKeeper's clock."""


def presence_ops(snapshot: ClusterSnapshot, heard: Heard, now: float, forget_after: float) -> list[Op]:
    """Returns the changes that are due."""
    return [op for role in _roles(snapshot) for op in _role_ops(snapshot, role, heard, now, forget_after)]


def _role_ops(snapshot: ClusterSnapshot, role: _Role, heard: Heard, now: float, forget_after: float) -> Iterator[Op]:
    unheard: Mapping[Any, float] = heard.unheard if role.name == "supervisor" else {}
    for id_ in sorted(role.registered.keys() - role.known.keys())[: max(0, MOST_KNOWN - len(role.known))]:
        yield Create(role.path(id_), encode(_here(PresenceRecord(id=id_), role.registered[id_], now, 0.0)))
    absent = sorted(
        (e.record.absent_at, id_) for id_, e in role.known.items() if e.record.absent_at and id_ not in role.registered
    )
    too_many = {id_ for _, id_ in absent[: max(0, len(absent) - MOST_GONE)]}
    for id_, entry in sorted(role.known.items()):
        before = entry.record
        if id_ in role.registered:
            here = _here(before, role.registered[id_], now, unheard.get(id_, 0.0))
            if here != before:
                yield Set(role.path(id_), encode(here), entry.version)
        elif _left_on_purpose(snapshot, id_, heard.goodbyes) or id_ in too_many:
            yield Delete(role.path(id_), entry.version)
        elif not before.absent_at:
            absent_now = msgspec.structs.replace(before, absent_at=now, ran=_jobs_on(snapshot, id_))
            yield Set(role.path(id_), encode(absent_now), entry.version)
        elif now - before.absent_at >= forget_after:
            yield Delete(role.path(id_), entry.version)


def _here(
    before: PresenceRecord, registered: MasterRecord | SupervisorRecord, now: float, silent: float
) -> PresenceRecord:
    """Returns the record of a daemon that is registered. `silent`: since when it owes
    heartbeats."""
    starts, absences = before.starts, before.absences
    if before.started_at not in (0.0, registered.started_at):
        starts = (*starts, now)[-LOOP_STARTS:]
    if before.absent_at and now - before.absent_at >= ABSENT_SECS:
        absences = (*absences, (before.absent_at, now))[-MOST_ABSENCES:]
    return msgspec.structs.replace(
        before,
        host=registered.host,
        absent_at=0.0,
        ran=(),
        silent_since=(before.silent_since or silent) if silent else 0.0,
        started_at=registered.started_at,
        starts=starts,
        absences=absences,
    )


def restarting(snapshot: ClusterSnapshot, now: float) -> dict[str, dict[str, str]]:
    """Returns the masters and the hosts that start again and again, by role, and how often each
    did."""
    return {
        role.name: {
            id_: f"it started {LOOP_STARTS} times within {max(1, round((now - entry.record.starts[0]) / 60))} min"
            for id_, entry in role.known.items()
            if len(entry.record.starts) == LOOP_STARTS and now - entry.record.starts[0] <= LOOP_SECS
        }
        for role in _roles(snapshot)
    }


def _left_on_purpose(snapshot: ClusterSnapshot, id_: str, said_goodbye: Collection[str]) -> bool:
    assignment, certificate = snapshot.assignments.get(SupervisorId(id_)), snapshot.hosts.get(id_)
    drained = assignment is not None and assignment.record.draining
    return id_ in said_goodbye or drained or (certificate is not None and certificate.record.is_revoked)


def _jobs_on(snapshot: ClusterSnapshot, id_: str) -> tuple[JobId, ...]:
    assignment = snapshot.assignments.get(SupervisorId(id_))
    return () if assignment is None else tuple(sorted({w.job for w in assignment.record.workers}))[:MOST_JOBS]


def forget_ops(snapshot: ClusterSnapshot, id_: str) -> list[Op]:
    """Forgets a daemon that is gone. Raises `host_running` if it is registered."""
    found: list[Op] = []
    for role in _roles(snapshot):
        if id_ in role.registered:
            raise TorrentdistError("host_running", id=id_)
        if id_ in role.known:
            found.append(Delete(role.path(id_), role.known[id_].version))
    if not found:
        raise TorrentdistError("not_found", what=f"a host or master {id_!r} that is gone")
    return found


def gone(snapshot: ClusterSnapshot, now: float) -> list[GoneView]:
    """Returns the masters and supervisors that are gone, with what they should keep and run. Every
    page, command, metric and alert counts these."""
    return [
        _gone_view(snapshot, role, record, now)
        for role in _roles(snapshot)
        for record in (role.known[id_].record for id_ in sorted(role.known.keys() - role.registered.keys()))
        if record.absent_at and now - record.absent_at >= ABSENT_SECS
    ]


def returned(snapshot: ClusterSnapshot) -> Iterator[tuple[str, str, float, float]]:
    """Yields role and id of the daemons that were gone and are back, from when and until when."""
    for role in _roles(snapshot):
        for id_, entry in role.known.items():
            for left_at, back_at in entry.record.absences:
                yield role.name, id_, left_at, back_at


def _gone_view(snapshot: ClusterSnapshot, role: _Role, record: PresenceRecord, now: float) -> GoneView:
    assignment = snapshot.assignments.get(SupervisorId(record.id))
    if role.name == "master":
        keeps = sum(MasterId(record.id) in entry.replicas for entry in snapshot.bundles.values())
    else:
        keeps = 0 if assignment is None else len(assignment.record.bundles)
    return GoneView(
        id=record.id,
        role=role.name,
        host=record.host,
        since=record.absent_at,
        gone_secs=round(now - record.absent_at, 1),
        bundles=keeps,
        jobs=[job for job in record.ran if job in snapshot.jobs],
    )


def next_look(snapshot: ClusterSnapshot, now: float, forget_after: float) -> float:
    """Returns the seconds until a daemon that is gone is forgotten."""
    entries = [*snapshot.known_masters.values(), *snapshot.known_supervisors.values()]
    ends = (e.record.absent_at + forget_after - now for e in entries if e.record.absent_at)
    return max(0.0, min(ends, default=float("inf")))
