"""A member of a resource group as a pure state machine: an event goes in, the next state and
actions come out.

Always: work runs only on resources that the plan gives this member and, with resource barriers,
whose barrier it owns. Work is told to stop before the lease ends. A barrier is released, or a stop
reported, only after `on_stop`. At most one request and one callback are in progress.
Never: do I/O, or look at a clock.
Longer than most files: its transitions form one machine.
"""

from collections.abc import Mapping
from functools import reduce

import msgspec
from msgspec.structs import replace

from torrentdist.cluster.election.term import queue
from torrentdist.cluster.paths import GroupPaths, stopped_name
from torrentdist.cluster.rebalance.barrier_ownership import NEVER, BarrierLease, BarrierOwnership
from torrentdist.cluster.rebalance.group_records import Algorithm, GroupStatus, PlanRecord, StatusRecord, read
from torrentdist.cluster.rebalance.group_requests import (
    Absent,
    Answer,
    Children,
    Content,
    Done,
    Errand,
    Get,
    Names,
    Refused,
    RequestKind,
)
from torrentdist.cluster.rebalance.member_signals import (
    NEXT_WORK,
    Action,
    Answered,
    AskZooKeeper,
    CallStart,
    CallStop,
    CancelStart,
    Changed,
    Depart,
    Event,
    InSession,
    Order,
    StartFailed,
    Stopped,
    Work,
    WorkStarted,
)
from torrentdist.cluster.session.znode_operations import Create, Delete, NodeExists, NoNode, Op
from torrentdist.model.backoff import pause_secs

FIRST_BACKOFF_SECS = 0.5


class MemberMachine(msgspec.Struct, frozen=True):
    ownership: BarrierOwnership
    algorithm: Algorithm
    patience_secs: float = 0.5
    """How long to wait for missing resources before work starts on those that are available."""
    max_backoff_secs: float = 30.0
    work: Work = Work.IDLE
    running: Mapping[str, int] = msgspec.field(default_factory=dict)
    """The argument of `on_start`, until `on_stop` is done."""
    cancelled: bool = False
    """Whether `on_start` was cancelled."""
    broken: bool = False
    """Whether `on_start` failed, so that whatever it started must be stopped."""
    gained_at: float = NEVER
    """When we gained resources that work has not started on yet."""
    order: Order = msgspec.field(default_factory=Order)
    announced: int | None = None
    """Generation of a plan that has to be read."""
    stale: frozenset[RequestKind] = frozenset()
    """The reads that have to be repeated."""
    reported: int = -1
    """The last generation for which other members may know that we stopped."""
    confirmed: int = -1
    """The last generation for which other members certainly know that we stopped."""
    stop_nodes: frozenset[str] = frozenset()
    """Our znodes that report a stop and may exist."""
    predecessor: str | None = None
    watched: frozenset[str] = frozenset()
    """Members whose znodes we watch."""
    first: bool = False
    departing: bool = False
    start_failed: bool = False
    """`on_start` failed, so other members should get our resources."""
    failures: int = 0
    rejoin_at: float = NEVER
    busy: Errand | None = None
    serial: int = 0
    missed: tuple[str, ...] = ()
    """Paths that changed after the current request was sent."""

    @property
    def group(self) -> GroupPaths:
        return self.ownership.group

    @property
    def wanted(self) -> frozenset[str]:
        """The resources that we should own."""
        if self.departing or self.start_failed or self.order.stop:
            return frozenset()
        return self.order.mine

    @property
    def barriers_wanted(self) -> frozenset[str]:
        return self.wanted if self.algorithm is Algorithm.RESOURCE_BARRIER else frozenset()

    @property
    def may_run(self) -> Mapping[str, int]:
        if self.ownership.name is None:
            return {}
        if self.algorithm is Algorithm.RESOURCE_BARRIER:
            return {r: fence for r, fence in sorted(self.ownership.owned.items()) if r in self.wanted}
        if self.order.generation < self.reported:
            return {}
        return dict.fromkeys(sorted(self.wanted), self.order.zxid)

    @property
    def gone(self) -> bool:
        """Whether no work runs here and ZooKeeper holds nothing of ours."""
        return self.departing and self.work is Work.IDLE and self.ownership.clean

    def held(self) -> Mapping[str, int]:
        """Returns the resources that work may use while the lease is valid."""
        return self.running if self.work in (Work.STARTING, Work.RUNNING) else {}


def step(member: MemberMachine, event: Event, now: float) -> tuple[MemberMachine, list[Action]]:
    actions: list[Action] = []
    member = _decide_work(_absorb(member, event, now), now, actions)
    if member.busy is None:
        errand = _next_errand(member, now)
        if errand is not None:
            member = _sent(member, errand)
            actions.append(AskZooKeeper(member.serial, member.ownership.session, errand.request))
    return member, actions


def wake_at(member: MemberMachine, now: float) -> float:
    """Returns when to send a Tick if nothing else happens."""
    lease = member.ownership.lease
    moments = [lease.renewal, lease.end]
    if member.work in (Work.STARTING, Work.RUNNING):
        moments.append(lease.stop)
    if member.gained_at != NEVER:
        moments.append(member.gained_at + member.patience_secs)
    if member.ownership.name is None:
        moments.append(member.rejoin_at)
    return min((moment for moment in moments if moment > now), default=now + 1.0)


# handling events


def _absorb(m: MemberMachine, event: Event, now: float) -> MemberMachine:
    match event:
        case InSession(session) if session != m.ownership.session:
            return _rejoining(
                _without_place(replace(m, ownership=m.ownership.in_session(session), busy=None, missed=())), now
            )
        case Answered(serial, answer, lease) if serial == m.serial and m.busy is not None:
            m, missed = _answered(replace(m, busy=None, missed=()), m.busy, answer, lease, now), m.missed
            return reduce(_changed, missed, m)
        case Changed(path) if m.busy is not None:
            # The change may have happened before the answer that we wait for, so apply it after
            # that answer.
            return replace(m, missed=(*m.missed, path))
        case Changed(path):
            return _changed(m, path)
        case WorkStarted() if m.work is Work.STARTING:
            return _worked(replace(m, failures=0), Work.RUNNING)
        case StartFailed() if m.work is Work.STARTING:
            failed = replace(m, start_failed=True, failures=m.failures + 1)
            return replace(m if m.cancelled else failed, broken=True)
        case Stopped() if m.work is Work.STOPPING:
            return replace(_worked(m, Work.IDLE), running={})
        case Depart():
            return replace(m, departing=True)
    return m


def _without_place(m: MemberMachine) -> MemberMachine:
    """Returns the member without any state that depended on its place in the group."""
    return replace(
        m,
        order=Order(),
        announced=None,
        stale=frozenset(),
        reported=-1,
        confirmed=-1,
        stop_nodes=frozenset(),
        predecessor=None,
        watched=frozenset(),
        first=False,
        gained_at=NEVER,
    )


def _changed(m: MemberMachine, path: str) -> MemberMachine:
    folder, _, name = path.rpartition("/")
    if path in (m.group.status, m.group.plan):
        return replace(m, stale=m.stale | {RequestKind.STATUS if path == m.group.status else RequestKind.PLAN})
    if folder == m.group.members and name in m.watched:
        return _without(replace(m, watched=m.watched - {name}), name)
    if folder == m.group.barriers:
        return replace(m, ownership=m.ownership.barrier_changed(name))
    return m


def _without(m: MemberMachine, name: str) -> MemberMachine:
    """Records that another member seems to have left."""
    if name == m.ownership.name:
        return replace(m, ownership=replace(m.ownership, version=None))
    if name == m.predecessor:
        return replace(m, predecessor=None, stale=m.stale | {RequestKind.QUEUE})
    return m


def _answered(m: MemberMachine, errand: Errand, answer: Answer, lease: BarrierLease, now: float) -> MemberMachine:
    before = m.ownership
    m = replace(m, ownership=replace(before, lease=lease))
    match errand.kind, answer:
        case RequestKind.QUEUE, Names(names):
            return _queued(m, names)
        case RequestKind.WATCH, Absent():
            return _without(m, errand.subject[0])
        case RequestKind.WATCH, Names():
            return replace(m, watched=m.watched | {errand.subject[0]})
        case RequestKind.STATUS, Content(data, _):
            return _told(replace(m, stale=m.stale - {RequestKind.STATUS}), read(data, StatusRecord, m.group.status))
        case RequestKind.PLAN, Content(data, stat):
            return _planned(m, read(data, PlanRecord, m.group.plan), stat.modified_zxid, now)
        case RequestKind.REPORT, _:
            m = _reported(m, errand, answer)
        case RequestKind.CLEAR, _:
            m = _cleared(m, answer)
    return _with_answer(m, before, errand, answer, now)


def _with_answer(
    m: MemberMachine, before: BarrierOwnership, errand: Errand, answer: Answer, now: float
) -> MemberMachine:
    """Applies the part of an answer that concerns our place and barriers."""
    ownership = m.ownership.answered(errand, answer)
    m = replace(m, ownership=ownership)
    if before.name is None and ownership.name is not None:
        first_order = RequestKind.PLAN if m.algorithm is Algorithm.RESOURCE_BARRIER else RequestKind.STATUS
        return replace(_without_place(m), stale=frozenset({RequestKind.QUEUE, first_order}))
    if before.name is not None and ownership.name is None:
        return _rejoining(_without_place(m), now)
    gained = ownership.owned.keys() - before.owned.keys()
    # Resources that arrive later count from the first one's time.
    return replace(m, gained_at=now) if gained and now >= m.gained_at + m.patience_secs else m


def _rejoining(m: MemberMachine, now: float) -> MemberMachine:
    if not m.start_failed:
        return m
    return replace(
        m, start_failed=False, rejoin_at=now + pause_secs(m.failures, FIRST_BACKOFF_SECS, m.max_backoff_secs)
    )


def _queued(m: MemberMachine, names: tuple[str, ...]) -> MemberMachine:
    order = queue(names)
    if m.ownership.name not in order:
        return replace(m, ownership=replace(m.ownership, version=None))
    place = order.index(m.ownership.name)
    predecessor = order[place - 1] if place else None
    return replace(m, first=place == 0, predecessor=predecessor, stale=m.stale - {RequestKind.QUEUE})


def _told(m: MemberMachine, status: StatusRecord) -> MemberMachine:
    if status.status is GroupStatus.STOP_ACTIVITY:
        return replace(m, order=Order(status.generation, stop=True), announced=None)
    if status.generation == 0:
        return replace(m, order=Order(), announced=None)
    return replace(m, announced=status.generation, stale=m.stale | {RequestKind.PLAN})


def _planned(m: MemberMachine, plan: PlanRecord, zxid: int, now: float) -> MemberMachine:
    m = replace(m, stale=m.stale - {RequestKind.PLAN})
    if m.algorithm is Algorithm.GLOBAL_BARRIER and plan.generation != m.announced:
        return m  # The status has advanced, and its watch reports that.
    mine = frozenset(plan.members.get(m.ownership.name or "", ()))
    gained_at = now if mine - m.ownership.owned.keys() else NEVER
    order = Order(plan.generation, mine, zxid=zxid)
    return replace(m, order=order, announced=None, gained_at=gained_at, ownership=m.ownership.wants_changed())


def _reported(m: MemberMachine, errand: Errand, answer: Answer) -> MemberMachine:
    (node,) = errand.subject
    match answer:
        case Done():
            return replace(m, stop_nodes=frozenset({node}), confirmed=m.reported)
        case Refused(_, NodeExists()):  # The znode is ours: the answer that reported its creation was lost.
            return replace(m, confirmed=m.reported)
        case Refused(_, NoNode(path=path)):
            return replace(m, stop_nodes=m.stop_nodes - {path.rpartition("/")[2]})
    return m


def _cleared(m: MemberMachine, answer: Answer) -> MemberMachine:
    match answer:
        case Done():
            return replace(m, stop_nodes=frozenset())
        case Refused(_, NoNode(path=path)):
            return replace(m, stop_nodes=m.stop_nodes - {path.rpartition("/")[2]})
    return m


# choosing the next request


def _worked(m: MemberMachine, work: Work) -> MemberMachine:
    assert work in NEXT_WORK[m.work], (m.work, work)
    return replace(m, work=work)


def _decide_work(m: MemberMachine, now: float, actions: list[Action]) -> MemberMachine:
    target = dict(m.may_run) if now < m.ownership.lease.stop else {}
    settled = target.keys() == m.wanted or now >= m.gained_at + m.patience_secs
    fits = m.running.keys() <= target.keys()
    match m.work:
        case Work.IDLE if target and settled:
            actions.append(CallStart(target))
            fresh = replace(m, running=target, cancelled=False, broken=False, gained_at=NEVER)
            return _worked(fresh, Work.STARTING)
        case Work.STARTING if m.broken:
            actions.append(CallStop())
            return _worked(m, Work.STOPPING)
        case Work.STARTING if not (fits or m.cancelled):
            actions.append(CancelStart())
            return replace(m, cancelled=True)
        case Work.RUNNING if not fits or (settled and m.running.keys() < target.keys()):
            actions.append(CallStop())
            return _worked(m, Work.STOPPING)
    return m


def _sent(m: MemberMachine, errand: Errand) -> MemberMachine:
    m = replace(m, busy=errand, serial=m.serial + 1)
    if errand.kind is RequestKind.REPORT:
        # Others may act on it as soon as it is sent.
        return replace(m, reported=m.order.generation, stop_nodes=m.stop_nodes | {errand.subject[0]})
    if errand.kind is RequestKind.ENTER:
        return replace(m, ownership=replace(m.ownership, entering=True))
    return m


def _next_errand(m: MemberMachine, now: float) -> Errand | None:
    ownership = m.ownership
    entering = not m.departing and m.work is Work.IDLE and now >= m.rejoin_at
    errand = ownership.upkeep(now, entering=entering)
    if errand is not None or not ownership.placed:
        return errand
    errand = ownership.surrender(m.wanted, frozenset(m.running))
    if errand is not None:
        return errand
    if m.departing or m.start_failed:
        return _leave(m)
    return _read(m) or _declare(m) or ownership.acquisition(m.barriers_wanted, now)


def _leave(m: MemberMachine) -> Errand | None:
    if m.work is not Work.IDLE:
        return None
    return _clear(m) if m.stop_nodes else m.ownership.departure()


def _read(m: MemberMachine) -> Errand | None:
    if RequestKind.STATUS in m.stale:
        return Errand(RequestKind.STATUS, Get(m.group.status, watch=True))
    if RequestKind.PLAN in m.stale:
        return Errand(RequestKind.PLAN, Get(m.group.plan, watch=m.algorithm is Algorithm.RESOURCE_BARRIER))
    if RequestKind.QUEUE in m.stale:
        return Errand(RequestKind.QUEUE, Children(m.group.members))
    for name in (m.predecessor, m.ownership.name):
        # Watch the children: a watch on the data would fire with every keep-alive.
        if name is not None and name not in m.watched:
            return Errand(RequestKind.WATCH, Children(m.group.member(name), watch=True), (name,))
    return None


def _declare(m: MemberMachine) -> Errand | None:
    """Reports that we have stopped, with the global barrier."""
    if not m.order.stop or m.work is not Work.IDLE or m.confirmed >= m.order.generation:
        return None
    return _report(m)


def _report(m: MemberMachine) -> Errand:
    node = stopped_name(m.ownership.name or "", m.order.generation)
    older: list[Op] = [Delete(f"{m.group.stopped}/{name}") for name in sorted(m.stop_nodes - {node})]
    create = Create(f"{m.group.stopped}/{node}", ephemeral=True)
    return Errand(RequestKind.REPORT, m.ownership.guarded(create, *older), (node,))


def _clear(m: MemberMachine) -> Errand:
    nodes = sorted(m.stop_nodes)
    return Errand(RequestKind.CLEAR, m.ownership.guarded(*(Delete(f"{m.group.stopped}/{name}") for name in nodes)))
