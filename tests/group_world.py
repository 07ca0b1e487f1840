"""Members of a resource group in a world where everything can go wrong, and nothing happens until a
test makes it happen.

The state machines are the real ones; tree_model.py stands for ZooKeeper. A process answers, hears,
pauses and dies step by step. Invariants are checked at the steps that could break them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace
from tree_model import Tree

from torrentdist.cluster.election.term import LEASE_SHARE
from torrentdist.cluster.paths import GroupPaths
from torrentdist.cluster.rebalance import coordinator as coordination
from torrentdist.cluster.rebalance import member_machine as membership
from torrentdist.cluster.rebalance.barrier_ownership import NEVER, BarrierLease, BarrierOwnership
from torrentdist.cluster.rebalance.coordinator import Coordinator
from torrentdist.cluster.rebalance.group_records import Algorithm
from torrentdist.cluster.rebalance.group_requests import Answer, Commit, Ensure, Request, RequestKind, Unsure
from torrentdist.cluster.rebalance.member_machine import MemberMachine
from torrentdist.cluster.rebalance.member_signals import (
    Answered,
    AskZooKeeper,
    CallStart,
    CallStop,
    CancelStart,
    Changed,
    Depart,
    Event,
    InSession,
    StartFailed,
    Stopped,
    Tick,
    Work,
    WorkStarted,
)
from torrentdist.cluster.session.znode_operations import Check, Create, Delete, Op, Set

GROUP = GroupPaths("g")
TIMEOUT = 9.0
MIN_INTERVAL = 1.0


@dataclass
class Sent:
    """A request on its way to ZooKeeper, or its answer on the way back."""

    coordinator: str | None
    """The name of the coordinator, if this is a coordinator's request."""
    serial: int
    session: int | None
    request: Request
    at: float
    answer: Answer | None = None


@dataclass
class Process:
    name: str
    member: MemberMachine
    session: int | None = None
    acknowledged: float = NEVER
    coordinator: Coordinator | None = None
    sent: list[Sent] = field(default_factory=list)
    changes: list[tuple[bool, str]] = field(default_factory=list)
    working_on: dict[str, int] = field(default_factory=dict)
    starting: dict[str, int] | None = None
    stopping: bool = False
    cancelled: bool = False
    paused: bool = False
    alive: bool = True

    def lease(self) -> BarrierLease:
        return BarrierLease(self.acknowledged, TIMEOUT)

    def holds(self, resource: str, now: float) -> bool:
        held = resource in self.working_on and resource in self.member.held()
        return held and now < self.lease().end


class World:
    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm
        self.now = 100.0
        self.tree = Tree(self._fired)
        self.processes: list[Process] = []
        self.sessions: dict[int, float] = {}
        """Live sessions, with the time at which their last executed write was sent."""
        self.last_fence: dict[str, tuple[int, str]] = {}
        self._numbers = 0
        for path in GROUP.parts:
            self.tree.ensure(path)

    # processes and sessions

    def launch(self) -> Process:
        self._numbers += 1
        name = f"p{self._numbers}"
        process = Process(name, MemberMachine(BarrierOwnership(GROUP, name), self.algorithm, max_backoff_secs=4.0))
        self.processes.append(process)
        self.open_session(process)
        return process

    def open_session(self, process: Process) -> None:
        self._numbers += 1
        process.session = self._numbers
        self.sessions[self._numbers] = self.now
        process.acknowledged = NEVER
        self.feed(process, InSession(process.session))

    def may_expire(self, session: int) -> bool:
        return self.now >= self.sessions[session] + LEASE_SHARE * TIMEOUT

    def expire(self, session: int) -> None:
        del self.sessions[session]
        self.tree.expire(session)

    def is_over(self, process: Process) -> bool:
        return process.session is not None and process.session not in self.sessions

    def lose_session(self, process: Process) -> bool:
        """The process learns that its session is over; a new one follows."""
        process.session, process.acknowledged = None, NEVER
        process.changes.clear()
        self.feed(process, InSession(None))
        for sent in process.sent:
            sent.answer = sent.answer or Unsure()
        return True

    def kill(self, process: Process) -> None:
        process.alive = False
        process.working_on = {}
        self.processes.remove(process)

    def _fired(self, session: int, path: str) -> None:
        for process in self.processes:
            if process.session == session:
                process.changes.append((True, path))

    # the shell, in short

    def feed(self, process: Process, event: Event) -> None:
        process.member, actions = membership.step(process.member, event, self.now)
        for action in actions:
            match action:
                case AskZooKeeper(serial, session, request):
                    process.sent.append(Sent(None, serial, session, request, self.now))
                case CallStart(resources):
                    assert not process.working_on, "work starts while other work runs"
                    process.starting, process.cancelled = dict(resources), False
                    self._begin(process)
                case CancelStart():
                    process.cancelled = True
                case CallStop():
                    process.stopping, process.starting = True, None
        self._follow_lead(process)

    def _begin(self, process: Process) -> None:
        """Begins on_start. From its call on, work may run on its resources."""
        process.working_on = dict(process.starting or {})
        for resource, fence in process.working_on.items():
            before, holder = self.last_fence.get(resource, (0, ""))
            later = fence > before or (fence == before and holder == process.name)
            assert later, f"{process.name} starts on {resource} with fence {fence} after {holder} with {before}"
            self.last_fence[resource] = (fence, process.name)

    def _follow_lead(self, process: Process) -> None:
        name = process.member.ownership.name if process.member.first else None
        current = process.coordinator
        if current is not None and (current.me != name or current.deposed):
            process.coordinator = current = None
        if name is not None and current is None:
            process.coordinator = Coordinator(GROUP, self.algorithm, name, MIN_INTERVAL)
        self._proceed(process)

    def _proceed(self, process: Process) -> None:
        if process.coordinator is None:
            return
        before = process.coordinator
        process.coordinator = c = coordination.proceed(before, self.now)
        if c.busy is not None and c.serial != before.serial:
            session = process.member.ownership.session
            process.sent.append(Sent(c.me, c.serial, session, c.busy.request, self.now))

    # requests, answers, watches, callbacks

    def serve(self, process: Process) -> bool:
        """ZooKeeper executes the next request of the process."""
        for sent in process.sent:
            if sent.answer is None:
                sent.answer = self._execute(process, sent)
                return True
        return False

    def _execute(self, process: Process, sent: Sent) -> Answer:
        if sent.session is None or sent.session not in self.sessions:
            return Unsure()
        self.tree.now = self.now + 1000.0  # a different clock than the members'
        if isinstance(sent.request, Commit):
            self._check_before(process, sent, sent.request.ops)
        if isinstance(sent.request, Commit | Ensure):
            self.sessions[sent.session] = max(sent.at, self.sessions[sent.session])
        return self.tree.answer(sent.session, sent.request)

    def _check_before(self, process: Process, sent: Sent, ops: tuple[Op, ...]) -> None:
        for op in ops:
            if isinstance(op, Delete) and op.path.startswith(GROUP.barriers):
                resource = op.path.rpartition("/")[2]
                assert isinstance(ops[0], Set)
                guarded = (node := self.tree.nodes.get(ops[0].path)) is None or node.version != ops[0].version
                barrier = self.tree.nodes.get(op.path)
                assert guarded or barrier is None or barrier.owner == sent.session, "C8: another's barrier is deleted"
                assert guarded or resource not in process.working_on, "C9: a barrier goes before its work"
            if isinstance(op, Create) and op.path.startswith(GROUP.stopped):
                assert not process.working_on, "C9: says that it has stopped, and works"
            if isinstance(op, Set) and op.path in (GROUP.plan, GROUP.status):
                assert isinstance(ops[0], Check)
                assert isinstance(ops[1], Check)
                assert (GROUP.epoch, GROUP.member(sent.coordinator or "")) == (ops[0].path, ops[1].path)

    def hear(self, process: Process, position: int = 0, *, lost: bool = False) -> bool:
        """The process gets an answer. With `lost` it hears instead that the connection broke."""
        answered = [sent for sent in process.sent if sent.answer is not None]
        if not answered:
            return False
        sent = answered[position % len(answered)]
        process.sent.remove(sent)
        answer = Unsure() if lost or sent.answer is None else sent.answer
        written = isinstance(sent.request, Commit | Ensure) and not isinstance(answer, Unsure)
        if written and sent.session == process.session:
            process.acknowledged = max(process.acknowledged, sent.at)
        if sent.coordinator is None:
            self.feed(process, Answered(sent.serial, answer, process.lease()))
        elif process.coordinator is not None and process.coordinator.me == sent.coordinator:
            process.coordinator = coordination.answered(process.coordinator, sent.serial, answer, self.now)
            self.feed(process, Tick())
        return True

    def drop(self, process: Process) -> bool:
        """Loses a request before it gets to ZooKeeper."""
        for sent in process.sent:
            if sent.answer is None:
                sent.answer = Unsure()
                return True
        return False

    def tell(self, process: Process) -> bool:
        """Delivers a watch event to both machines; each knows what it waits for."""
        if not process.changes:
            return False
        _, path = process.changes.pop(0)
        if process.coordinator is not None:
            process.coordinator = coordination.changed(process.coordinator, path)
        self.feed(process, Changed(path))
        return True

    def finish(self, process: Process, *, failing: bool = False) -> bool:
        """Ends the callback that is running."""
        if process.stopping:
            process.stopping, process.working_on = False, {}
            self.feed(process, Stopped())
            return True
        if process.starting is None:
            return False
        process.starting = None
        self.feed(process, StartFailed() if failing or process.cancelled else WorkStarted())
        return True

    def depart(self, process: Process) -> None:
        self.feed(process, Depart())

    # time

    def advance(self, seconds: float) -> None:
        """Moves the clock. Wakes every process that is not paused when it wants to wake; its
        on_stop ends within its time."""
        end = self.now + seconds
        while self.now < end:
            self.now = min([end, *(self._wake(process) for process in self.processes if not process.paused)])
            for process in [p for p in self.processes if not p.paused]:
                self.feed(process, Tick())
                self._stop_in_time(process)

    def _wake(self, process: Process) -> float:
        return max(self.now + 0.01, membership.wake_at(process.member, self.now))

    def _stop_in_time(self, process: Process) -> None:
        if self.now < process.lease().end:
            return
        if process.starting is not None:
            assert process.cancelled, f"{process.name} goes on starting without a lease"
            self.finish(process)
        if process.stopping:
            self.finish(process)
        assert not process.working_on, f"{process.name} works on without a lease"

    # invariants

    def holders(self, resource: str) -> list[str]:
        return [process.name for process in self.processes if process.holds(resource, self.now)]

    def check(self) -> None:
        resources = {resource for process in self.processes for resource in process.working_on}
        for resource in resources:
            holders = self.holders(resource)
            assert len(holders) < 2, f"{holders} hold {resource}"
        places: dict[int, list[str]] = {}
        for name in self.tree.children(GROUP.members):
            places.setdefault(self.tree.nodes[GROUP.member(name)].owner, []).append(name)
        assert all(len(names) == 1 for names in places.values()), f"C11: ghosts: {places}"

    def turn(self, process: Process) -> None:
        """Delivers everything that is on its way, once."""
        if self.is_over(process):
            self.lose_session(process)
        if process.session is None:
            self.open_session(process)
        while self.serve(process):
            pass
        while self.hear(process):
            pass
        while self.tell(process):
            pass
        self.finish(process)

    def settle(self, rounds: int = 400) -> None:
        """Runs without further faults. After so many rounds one member works on each resource, and
        loads are even."""
        for process in self.processes:
            process.paused = False
        owners = {process.session for process in self.processes}
        for _ in range(rounds):
            self.advance(0.1)
            for session in [s for s in self.sessions if s not in owners and self.may_expire(s)]:
                self.expire(session)
            owners = {process.session for process in self.processes}
            for process in list(self.processes):
                self.turn(process)
                if process.member.gone:
                    self.processes.remove(process)
            self.check()
            if self.is_settled():
                return
        raise AssertionError(f"C7: not settled: {self.story()}")

    def is_settled(self) -> bool:
        staying = [process for process in self.processes if not process.member.departing]
        if len(staying) != len(self.processes):
            return False
        if not staying:
            return True
        resources = set(self.tree.children(GROUP.resources))
        loads = [len(process.working_on) for process in staying if process.member.work is Work.RUNNING]
        loads += [0] * (len(staying) - len(loads))
        held = [resource for process in staying for resource in process.working_on]
        return sorted(held) == sorted(resources) and max(loads) - min(loads) <= 1

    def story(self) -> str:
        lines = [repr(replace(p.member, busy=None)) + repr(p.coordinator) + repr(p.sent) for p in self.processes]
        return "\n".join([*lines, *(f"{path} {node}" for path, node in self.tree.nodes.items())])


__all__ = ["GROUP", "Process", "RequestKind", "World"]
