"""The coordinator of a resource group as a pure state machine: when to rebalance, and what to
write.

Always: every write checks the coordinator's epoch, its own member znode, and the versions of
everything that it read. With the global barrier, resources are assigned only after every member has
stopped for that generation. A new coordinator continues where the last one stopped, and writes
nothing if no resource has to move.
Never: do I/O, or look at a clock.
"""

from functools import reduce

import msgspec
from msgspec.structs import replace

from torrentdist.cluster import paths
from torrentdist.cluster.election.term import queue
from torrentdist.cluster.paths import GroupPaths, stopped_name
from torrentdist.cluster.rebalance.assignment import assign
from torrentdist.cluster.rebalance.barrier_ownership import NEVER
from torrentdist.cluster.rebalance.group_records import (
    MAX_RESOURCES,
    Algorithm,
    GroupStatus,
    PlanRecord,
    StatusRecord,
    read,
)
from torrentdist.cluster.rebalance.group_requests import (
    Answer,
    Children,
    Commit,
    Content,
    Done,
    Errand,
    Get,
    Names,
    Refused,
    RequestKind,
    Unsure,
)
from torrentdist.cluster.session.znode_operations import BadVersion, Check, NoNode, Op, Set
from torrentdist.model.records import encode


class Coordinator(msgspec.Struct, frozen=True):
    group: GroupPaths
    algorithm: Algorithm
    me: str
    """Our own member znode, which entitles us to coordinate."""
    min_interval_secs: float
    epoch: int | None = None
    epoch_seen: int | None = None
    """The version of the epoch that we are about to raise."""
    deposed: bool = False
    """Another member has raised the epoch, or our znode has disappeared."""
    stale: frozenset[RequestKind] = frozenset()
    members: tuple[str, ...] = ()
    resources: frozenset[str] = frozenset()
    plan: PlanRecord = msgspec.field(default_factory=PlanRecord)
    plan_version: int = 0
    status: StatusRecord = msgspec.field(default_factory=StatusRecord)
    status_version: int = 0
    stopped: frozenset[str] = frozenset()
    rebalanced_at: float = NEVER
    server_ahead: float = 0.0
    """ZooKeeper's clock minus ours, in seconds."""
    rebalancings: int = 0
    """Number of rebalancings that we have started."""
    busy: Errand | None = None
    serial: int = 0
    missed: tuple[str, ...] = ()
    """Paths that changed after the current request was sent."""

    @property
    def waiting_for(self) -> frozenset[str]:
        """Members that have not stopped yet, with the global barrier."""
        if self.status.status is not GroupStatus.STOP_ACTIVITY:
            return frozenset()
        names = self.members
        return frozenset(name for name in names if stopped_name(name, self.status.generation) not in self.stopped)

    def target(self) -> dict[str, tuple[str, ...]]:
        return assign(self.members, sorted(self.resources)[:MAX_RESOURCES], self.plan.members)


def answered(c: Coordinator, serial: int, answer: Answer, now: float) -> Coordinator:
    if serial != c.serial or c.busy is None:
        return c
    errand, missed = c.busy, c.missed
    return reduce(changed, missed, _understood(replace(c, busy=None, missed=()), errand, answer, now))


def _understood(c: Coordinator, errand: Errand, answer: Answer, now: float) -> Coordinator:
    match errand.kind, answer:
        case ((RequestKind.EPOCH | RequestKind.RAISE), _):
            return _office(c, errand.kind, answer, now)
        case RequestKind.WRITE, _:
            return _written(c, errand, answer, now)
        case _, Unsure():
            return c
    c = replace(c, stale=c.stale - {errand.kind})
    match errand.kind, answer:
        case RequestKind.MEMBERS, Names(names):
            return replace(c, members=tuple(queue(names)))
        case RequestKind.RESOURCES, Names(names):
            return replace(c, resources=frozenset(filter(paths.is_name, names)))
        case RequestKind.STOPPED, Names(names):
            return replace(c, stopped=frozenset(names))
        case RequestKind.PLAN, Content(data, stat):
            written = stat.mtime - c.server_ahead if data else NEVER
            plan = read(data, PlanRecord, c.group.plan)
            last = max(c.rebalanced_at, min(now, written))
            return replace(c, plan=plan, plan_version=stat.version, rebalanced_at=last)
        case RequestKind.STATUS, Content(data, stat):
            status = read(data, StatusRecord, c.group.status)
            return _watching(replace(c, status=status, status_version=stat.version))
    # A part of the group's tree is missing. Taking office again creates it.
    return replace(c, deposed=True)


def changed(c: Coordinator, path: str) -> Coordinator:
    if c.busy is not None:  # The change may have happened before the answer that we wait for.
        return replace(c, missed=(*c.missed, path))
    kinds = {
        c.group.members: RequestKind.MEMBERS,
        c.group.resources: RequestKind.RESOURCES,
        c.group.stopped: RequestKind.STOPPED,
    }
    kind = kinds.get(path)
    if kind is None or c.epoch is None:
        return c
    return replace(c, stale=c.stale | {kind})


def proceed(c: Coordinator, now: float) -> Coordinator:
    """Returns the state with the next due request in `busy`, under a new serial number."""
    if c.busy is not None or c.deposed:
        return c
    errand = _next_errand(c, now)
    if errand is None:
        return c
    begins = errand.kind is RequestKind.WRITE and c.status.status is not GroupStatus.STOP_ACTIVITY
    return replace(c, busy=errand, serial=c.serial + 1, rebalancings=c.rebalancings + begins)


def wake_at(c: Coordinator, now: float) -> float | None:
    """Returns when a pending rebalancing may start."""
    due = c.rebalanced_at + c.min_interval_secs
    return due if due > now else None


# taking office


def _office(c: Coordinator, kind: RequestKind, answer: Answer, now: float) -> Coordinator:
    match kind, answer:
        case RequestKind.EPOCH, Content(data, stat):
            if data == c.me.encode():  # We raised it; only the answer was lost.
                return _elected(c, stat.version, stat.mtime - now)
            return replace(c, epoch_seen=stat.version)
        case RequestKind.RAISE, Done():
            return _elected(c, answer.stat(1).version, answer.stat(1).mtime - now)
        case RequestKind.RAISE, Refused(_, BadVersion()):
            return replace(c, epoch_seen=None)
        case _, Unsure():
            return replace(c, epoch_seen=None)
    return replace(c, deposed=True)


def _elected(c: Coordinator, epoch: int, server_ahead: float) -> Coordinator:
    # Everything is read after the epoch was raised, so that no change of an earlier coordinator is
    # missed.
    kinds = {RequestKind.MEMBERS, RequestKind.RESOURCES, RequestKind.PLAN}
    kinds |= {RequestKind.STATUS} if c.algorithm is Algorithm.GLOBAL_BARRIER else set()
    return replace(c, epoch=epoch, server_ahead=server_ahead, stale=frozenset(kinds))


# rebalancing


def _next_errand(c: Coordinator, now: float) -> Errand | None:
    if c.epoch is None:
        if c.epoch_seen is None:
            return Errand(RequestKind.EPOCH, Get(c.group.epoch))
        raised = Set(c.group.epoch, c.me.encode(), c.epoch_seen)
        return Errand(RequestKind.RAISE, Commit((Check(c.group.member(c.me)), raised)))
    stale = c.stale if c.status.status is GroupStatus.STOP_ACTIVITY else c.stale - {RequestKind.STOPPED}
    if stale:
        return _read(c, min(stale))
    return _write(c, now)


def _read(c: Coordinator, kind: RequestKind) -> Errand:
    match kind:
        case RequestKind.MEMBERS:
            return Errand(kind, Children(c.group.members, watch=True))
        case RequestKind.RESOURCES:
            return Errand(kind, Children(c.group.resources, watch=True))
        case RequestKind.STOPPED:
            return Errand(kind, Children(c.group.stopped, watch=True))
        case RequestKind.PLAN:
            return Errand(kind, Get(c.group.plan))
    return Errand(RequestKind.STATUS, Get(c.group.status))


def _write(c: Coordinator, now: float) -> Errand | None:
    target = c.target()
    if c.status.status is GroupStatus.STOP_ACTIVITY:
        if c.waiting_for or not c.members:
            return None
        generation = c.status.generation
        return _fenced(c, _plan(c, generation, target), _status(c, GroupStatus.RESOURCES_ASSIGNED, generation))
    if target == c.plan.members or not c.members or now < c.rebalanced_at + c.min_interval_secs:
        return None
    if c.algorithm is Algorithm.RESOURCE_BARRIER:
        return _fenced(c, _plan(c, c.plan.generation + 1, target))
    return _fenced(c, _status(c, GroupStatus.STOP_ACTIVITY, max(c.status.generation, c.plan.generation) + 1))


def _plan(c: Coordinator, generation: int, members: dict[str, tuple[str, ...]]) -> Set:
    return Set(c.group.plan, encode(PlanRecord(generation=generation, members=members)), c.plan_version)


def _status(c: Coordinator, status: GroupStatus, generation: int) -> Set:
    return Set(c.group.status, encode(StatusRecord(status=status, generation=generation)), c.status_version)


def _fenced(c: Coordinator, *ops: Op) -> Errand:
    assert c.epoch is not None
    return Errand(RequestKind.WRITE, Commit((Check(c.group.epoch, c.epoch), Check(c.group.member(c.me)), *ops)))


def _written(c: Coordinator, errand: Errand, answer: Answer, now: float) -> Coordinator:
    assert isinstance(errand.request, Commit)
    match answer:
        case Done(results):
            for op, result in zip(errand.request.ops, results, strict=True):
                if isinstance(op, Set):
                    c = _wrote(c, op, result)
            return _watching(replace(c, rebalanced_at=now))
        case Refused(index, reason) if index < 2 or isinstance(reason, NoNode):
            return replace(c, deposed=True)
    reread = {RequestKind.PLAN, RequestKind.STATUS} if c.algorithm is Algorithm.GLOBAL_BARRIER else {RequestKind.PLAN}
    return replace(c, stale=c.stale | reread)


def _wrote(c: Coordinator, op: Set, result: object) -> Coordinator:
    version = getattr(result, "version")  # noqa: B009  # the result of a Set is a Stat
    if op.path == c.group.plan:
        return replace(c, plan=read(op.data, PlanRecord, op.path), plan_version=version)
    return replace(c, status=read(op.data, StatusRecord, op.path), status_version=version)


def _watching(c: Coordinator) -> Coordinator:
    """Watches which members have stopped, while all members have to stop."""
    if c.status.status is not GroupStatus.STOP_ACTIVITY:
        return c
    return replace(c, stale=c.stale | {RequestKind.STOPPED})
