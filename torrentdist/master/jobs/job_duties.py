"""Decides what the leader does for jobs: end waits, do what is due, place workers. Pure.

Always: a job starts only when all of its bundles have reached their minimum, or its wait is over.
Deadlines are by ZooKeeper's clock. A worker has one place. It moves only when the leader has
listened for a while: after an outage supervisors need time to register again, and until then they
run their workers because the masters promise to move none (docs/decisions/0008-isolation.md).
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from torrentdist.cluster import paths
from torrentdist.cluster.records.snapshot import AssignmentEntry, ClusterSnapshot, JobEntry
from torrentdist.cluster.session.znode_operations import Create, Delete, Op, Set
from torrentdist.master.changes.assignment_room import ASSIGNMENT_BYTES, WORKER_BYTES, is_surely_below
from torrentdist.master.changes.predicted_records import predicted
from torrentdist.master.jobs.job_operations import event_ops, lacking, wait_ends
from torrentdist.master.jobs.lifecycle import Due, Event, Replicated, Replicating, WorkerEnded, keeps_places, runs
from torrentdist.master.jobs.scheduling import Demand, HostSlots, Worker, demand_for, place
from torrentdist.model.ids import JobId, SupervisorId
from torrentdist.model.records import AssignmentRecord, JobStatus, WorkerAssignment, encode
from torrentdist.model.wire.job_messages import WorkerReport, WorkerState

SETTLE_SECS = 4.0
"""Longer than a proof of isolation is valid."""


def settling_secs(session_secs: float) -> float:
    """Returns for how many seconds a leader listens without a gap before it moves a worker."""
    return SETTLE_SECS + session_secs / 6


class Happened(msgspec.Struct, frozen=True):
    """An event that the leader applies to a job."""

    job: JobId
    event: Event


Decide = Callable[[str, Callable[[], list[Event]]], list[Event] | None]


def happened(
    snapshot: ClusterSnapshot,
    reports: Mapping[tuple[JobId, int], WorkerReport],
    *,
    server_now: float,
    max_wait_secs: float,
    settled: bool = True,
    decide: Decide = lambda _, make: make(),
) -> list[Happened]:
    """Returns the events that are due.

    The end of a rebalance places workers, so it comes alone and last: a plan is decided on records
    that show everything that was placed and ended before. `settled`: whether the leader has
    listened for long enough to move workers. `decide` is given each job with the decision about it,
    and returns None to leave the job out.
    """
    found = [
        Happened(id_, event)
        for id_, entry in sorted(snapshot.jobs.items())
        for event in decide(paths.job(id_), partial(_events, snapshot, entry, reports, server_now, max_wait_secs)) or ()
    ]
    others = [what for what in found if not _places_workers(snapshot, what)]
    return others or (found[:1] if settled else [])


def _places_workers(snapshot: ClusterSnapshot, what: Happened) -> bool:
    return isinstance(what.event, Due) and snapshot.jobs[what.job].record.status is JobStatus.REBALANCING


def _events(
    snapshot: ClusterSnapshot,
    entry: JobEntry,
    reports: Mapping[tuple[JobId, int], WorkerReport],
    now: float,
    max_wait: float,
) -> list[Event]:
    job = entry.record
    if job.status is JobStatus.SUBMITTED:
        return [Replicating(now)]
    if job.status is JobStatus.REPLICATING:
        end = wait_ends(entry, max_wait)
        over = end is not None and now >= end
        return [Replicated(now)] if over or not lacking(snapshot, job) else []
    if job.status in (JobStatus.ACTIVE, JobStatus.INACTIVE, JobStatus.REBALANCING):
        ended = [reports.get((job.id, k)) for k in range(job.workers) if str(k) not in job.exits]
        for report in ended:  # one at a time: each is a change of the record
            if report is not None and report.state is WorkerState.ENDED:
                host = placement(snapshot).get((job.id, report.worker))
                code = report.exit_code or 0
                return [WorkerEnded(now, report.worker, code, report.application, report.detail, host)]
    return [Due(now)] if job.pending is not None and now >= job.pending.due else []


def next_due(
    snapshot: ClusterSnapshot, max_wait_secs: float, keep_secs: float, *, settled: bool = True
) -> float | None:
    """Returns the time, by ZooKeeper's clock, at which something becomes due though no record
    changes. None: nothing will. `settled`: as for happened()."""
    moments = [
        entry.record.pending.due
        for entry in snapshot.jobs.values()
        if entry.record.pending is not None and (settled or entry.record.status is not JobStatus.REBALANCING)
    ]
    ends = (wait_ends(entry, max_wait_secs) for entry in snapshot.jobs.values())
    moments += [end for end in ends if end is not None]
    moments += [entry.mtime + keep_secs for entry in _useless(snapshot).values()]
    return min(moments, default=None)


def placement(snapshot: ClusterSnapshot) -> dict[Worker, SupervisorId]:
    return {(w.job, w.worker): id_ for id_, entry in sorted(snapshot.assignments.items()) for w in entry.record.workers}


def assignment_ops(
    snapshot: ClusterSnapshot,
    respread: Collection[JobId] = (),
    *,
    silent: Collection[SupervisorId] = (),
    resting: Collection[str] = (),
    settled: bool = True,
) -> list[Op]:
    """Returns the changes that make the assignments what they should be.

    What is taken away comes before what is given, so that a batch that is cut short leaves a worker
    without a place rather than with two.
    `silent`: registered supervisors that send no heartbeats. `resting`: paths of
    assignments that could not be written lately: they stay, with their workers, and so do damaged
    ones. `settled`: whether workers may move.
    """
    closed = (path for path in (*resting, *snapshot.damaged) if paths.parent(path) == paths.ASSIGNMENTS)
    unwritable = {SupervisorId(paths.name(path)) for path in closed}
    jobs = {id_: e.record for id_, e in snapshot.jobs.items() if keeps_places(e.record)}
    unread = _of_damaged_jobs(snapshot)
    demands = [Demand(id_, job.workers, frozenset(int(k) for k in job.exits)) for id_, job in sorted(jobs.items())]
    demands += demand_for(unread)
    places = placement(snapshot)
    used = Counter(host for demand in demands for worker in demand.wanted() if (host := places.get(worker)))
    hosts = [
        HostSlots(host.id, used[host.id]) if host.id in unwritable else _with_room(snapshot, host)
        for host in (_hosts(snapshot, silent) if settled else _hosts_as_they_are(snapshot, silent, used))
    ]
    given: dict[SupervisorId, list[WorkerAssignment]] = {}
    for (job, k), host in sorted(place(demands, hosts, places, respread).items()):
        if places.get((job, k)) in unwritable:
            continue  # It stays there, also if the host is gone.
        given.setdefault(host, []).append(
            unread.get((job, k)) or WorkerAssignment(job=job, worker=k, active=runs(jobs[job]), of=jobs[job].workers)
        )
    changes = [
        _assignment_change(id_, snapshot.assignments.get(id_), tuple(given.get(id_, ())))
        for id_ in sorted({*given, *snapshot.assignments}.difference(unwritable))
    ]
    return [*(op for taking, _ in changes for op in taking), *(op for _, giving in changes for op in giving)]


def _of_damaged_jobs(snapshot: ClusterSnapshot) -> dict[Worker, WorkerAssignment]:
    """Returns the workers with places whose jobs' records cannot be read. Nobody has ended them."""
    unread = {paths.name(path) for path in snapshot.damaged if paths.parent(path) == paths.JOBS}
    found = (w for entry in snapshot.assignments.values() for w in entry.record.workers if w.job in unread)
    return {(w.job, w.worker): w for w in found} if unread else {}


def _assignment_change(
    supervisor: SupervisorId, entry: AssignmentEntry | None, workers: tuple[WorkerAssignment, ...]
) -> tuple[list[Op], list[Op]]:
    """Returns the writes that take workers from a supervisor, and those that give it some.

    A supervisor that loses one worker and gains another is written twice: a single write would give
    it one before every other supervisor has lost its own.
    """
    before = entry.record if entry else AssignmentRecord()
    if workers == before.workers:
        return [], []
    had, has = ({(w.job, w.worker) for w in some} for some in (before.workers, workers))
    taking: list[Op] = []
    giving: list[Op] = []
    version, generation, path = entry.version if entry else None, before.generation, paths.assignment(supervisor)
    for ops, due, kept in ((taking, not has > had, has & had), (giving, bool(has - had), has)):
        if due:
            generation += 1
            remaining = tuple(w for w in workers if (w.job, w.worker) in kept)
            data = encode(msgspec.structs.replace(before, workers=remaining, generation=generation))
            ops.append(Create(path, data) if version is None else Set(path, data, version))
            if version is not None:
                version += 1
    return taking, giving


def _hosts(snapshot: ClusterSnapshot, silent: Collection[SupervisorId]) -> list[HostSlots]:
    return [
        HostSlots(id_, record.slots, draining=_draining(snapshot, id_), silent=id_ in silent)
        for id_, record in sorted(snapshot.supervisors.items())
    ]


def _with_room(snapshot: ClusterSnapshot, host: HostSlots) -> HostSlots:
    """Returns no more slots than its assignment can name workers, besides its bundles."""
    entry = snapshot.assignments.get(host.id)
    record = AssignmentRecord() if entry is None else entry.record
    if is_surely_below(record, host.slots, ASSIGNMENT_BYTES):
        return host
    others = len(encode(msgspec.structs.replace(record, workers=())))
    room = max(len(record.workers), (ASSIGNMENT_BYTES - others) // WORKER_BYTES)
    return replace(host, slots=min(host.slots, room))


def _hosts_as_they_are(
    snapshot: ClusterSnapshot, silent: Collection[SupervisorId], used: Mapping[SupervisorId, int]
) -> list[HostSlots]:
    """Returns slots such that every worker stays where it is, and only hosts that take part get
    more. `used`: how many workers of each host go on."""
    open_hosts = {host.id: host.slots for host in _hosts(snapshot, silent) if not (host.draining or host.silent)}
    return [HostSlots(id_, max(open_hosts.get(id_, 0), used.get(id_, 0))) for id_ in sorted({*open_hosts, *used})]


def ops_of(
    snapshot: ClusterSnapshot,
    what: Happened,
    *,
    silent: Collection[SupervisorId] = (),
    resting: Collection[str] = (),
) -> list[Op]:
    """Returns what an event changes.

    The end of a rebalance moves workers first and is noted last: a leader that dies in the middle
    leaves it pending for the next one.
    """
    ops = [*event_ops(snapshot, what.job, what.event)]
    if ops and _places_workers(snapshot, what):
        return [*assignment_ops(predicted(snapshot, ops), [what.job], silent=silent, resting=resting), *ops]
    return ops


def cleanup_ops(snapshot: ClusterSnapshot, server_now: float, keep_secs: float) -> list[Op]:
    """Deletes the records that have been useless for `keep_secs`."""
    old = server_now - keep_secs
    return [Delete(path, entry.version) for path, entry in _useless(snapshot).items() if entry.mtime < old]


def _useless(snapshot: ClusterSnapshot) -> dict[str, JobEntry | AssignmentEntry]:
    """Returns, by path, jobs that have ended and assignments of nothing to supervisors that are
    gone."""
    ended = {paths.job(id_): entry for id_, entry in sorted(snapshot.jobs.items()) if not entry.record.live}
    orphans = {
        paths.assignment(id_): entry
        for id_, entry in sorted(snapshot.assignments.items())
        if id_ not in snapshot.supervisors and _is_empty(entry.record)
    }
    return {**ended, **orphans}


def _is_empty(record: AssignmentRecord) -> bool:
    return not (record.workers or record.bundles or record.draining)


def _draining(snapshot: ClusterSnapshot, supervisor: SupervisorId) -> bool:
    entry = snapshot.assignments.get(supervisor)
    return entry is not None and entry.record.draining


def drain_ops(snapshot: ClusterSnapshot, supervisor: SupervisorId, draining: bool) -> Sequence[Op]:
    entry = snapshot.assignments.get(supervisor)
    record = entry.record if entry else AssignmentRecord()
    if record.draining is draining:
        return []
    changed = msgspec.structs.replace(record, draining=draining, generation=record.generation + 1)
    path = paths.assignment(supervisor)
    return [Set(path, encode(changed), entry.version) if entry else Create(path, encode(changed))]
