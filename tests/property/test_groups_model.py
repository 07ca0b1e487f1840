"""Whatever happens to the members of a resource group, no resource has two holders, and all
resources are worked on again when the faults end. The real state machines run against a model of
ZooKeeper."""

from __future__ import annotations

from group_world import GROUP, Process, World
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from property_size import examples

from torrentdist.cluster.rebalance.group_records import Algorithm
from torrentdist.cluster.session.znode_operations import Create, Delete

RESOURCES = tuple(f"r{n}" for n in range(5))
MOST_PROCESSES = 4
which = st.integers(0, 11)


class GroupMachine(RuleBasedStateMachine):
    algorithm: Algorithm

    @initialize(
        members=st.integers(1, 3),
        resources=st.integers(1, len(RESOURCES)),
        settled=st.sampled_from([True, True, False]),
    )
    def start(self, members: int, resources: int, settled: bool) -> None:
        self.world = World(self.algorithm)
        for resource in RESOURCES[:resources]:
            self.world.tree.commit(0, (Create(GROUP.resource(resource)),))
        for _ in range(members):
            self.world.launch()
        if settled:
            self.world.settle()

    def one(self, number: int) -> Process | None:
        awake = [process for process in self.world.processes if not process.paused]
        return awake[number % len(awake)] if awake else None

    # ordinary steps

    @rule(number=which, requests=st.integers(1, 3))
    def serve(self, number: int, requests: int) -> None:
        if process := self.one(number):
            for _ in range(requests):
                self.world.serve(process)

    @rule(number=which, position=st.integers(0, 1))
    def hear(self, number: int, position: int) -> None:
        if process := self.one(number):
            self.world.hear(process, position)

    @rule(number=which, times=st.integers(1, 6))
    def serve_and_hear(self, number: int, times: int) -> None:
        if process := self.one(number):
            for _ in range(times):
                self.world.serve(process)
                self.world.hear(process)

    @rule(number=which)
    def tell(self, number: int) -> None:
        if process := self.one(number):
            self.world.tell(process)

    @rule(number=which, failing=st.booleans())
    def finish(self, number: int, failing: bool) -> None:
        if process := self.one(number):
            self.world.finish(process, failing=failing)

    @rule(numbers=st.lists(which, min_size=1, max_size=6), seconds=st.sampled_from([0.01, 0.3, 1.1]))
    def turn(self, numbers: list[int], seconds: float) -> None:
        """Lets some members continue while others hear nothing."""
        self.world.advance(seconds)
        for number in numbers:
            if process := self.one(number):
                self.world.turn(process)
                self.world.check()

    @rule(seconds=st.sampled_from([0.05, 0.6, 1.1, 1.1, 3.0, 9.0]))
    def advance(self, seconds: float) -> None:
        self.world.advance(seconds)

    # faults

    @rule(number=which)
    def drop_a_request(self, number: int) -> None:
        if process := self.one(number):
            self.world.drop(process)

    @rule(number=which)
    def lose_an_answer(self, number: int) -> None:
        if process := self.one(number):
            self.world.serve(process)
            self.world.hear(process, lost=True)

    @rule(number=which)
    def pause(self, number: int) -> None:
        if process := self.one(number):
            process.paused = True

    @rule(number=which)
    def resume(self, number: int) -> None:
        paused = [process for process in self.world.processes if process.paused]
        if paused:
            paused[number % len(paused)].paused = False

    @rule(number=which)
    def expire_a_session(self, number: int) -> None:
        expirable = [session for session in self.world.sessions if self.world.may_expire(session)]
        if expirable:
            self.world.expire(expirable[number % len(expirable)])

    @rule(number=which)
    def notice_the_end_of_a_session(self, number: int) -> None:
        process = self.one(number)
        if process and self.world.is_over(process):
            self.world.lose_session(process)

    @rule(number=which)
    def get_a_session(self, number: int) -> None:
        process = self.one(number)
        if process and process.session is None:
            self.world.open_session(process)

    @rule(number=which)
    def crash(self, number: int) -> None:
        if process := self.one(number):
            self.world.kill(process)

    # actions of people

    @precondition(lambda self: len(self.world.processes) < MOST_PROCESSES)
    @rule()
    def launch(self) -> None:
        self.world.launch()

    @rule(number=which)
    def depart(self, number: int) -> None:
        if process := self.one(number):
            self.world.depart(process)

    @rule(number=which)
    def add_a_resource(self, number: int) -> None:
        self.world.tree.commit(0, (Create(GROUP.resource(RESOURCES[number % len(RESOURCES)])),))

    @rule(number=which)
    def remove_a_resource(self, number: int) -> None:
        self.world.tree.commit(0, (Delete(GROUP.resource(RESOURCES[number % len(RESOURCES)])),))

    @rule()
    def leave_them_alone(self) -> None:
        self.world.settle()

    @invariant()
    def never_two_holders(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.settle()


class ResourceBarrierMachine(GroupMachine):
    algorithm = Algorithm.RESOURCE_BARRIER


class GlobalBarrierMachine(GroupMachine):
    algorithm = Algorithm.GLOBAL_BARRIER


for machine in (ResourceBarrierMachine, GlobalBarrierMachine):
    machine.TestCase.settings = settings(
        max_examples=examples(60),
        stateful_step_count=50,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
TestResourceBarrier = ResourceBarrierMachine.TestCase
TestGlobalBarrier = GlobalBarrierMachine.TestCase
