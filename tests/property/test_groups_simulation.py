"""Long lives of a resource group under constant faults: never two holders, and order at the end.

test_groups_model.py finds short ways to break something, this test the long ones. A failure names
its seed.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable

import pytest
from group_world import GROUP, Process, World
from hypothesis import given, settings
from hypothesis import strategies as st
from property_size import examples

from torrentdist.cluster.rebalance.group_records import Algorithm
from torrentdist.cluster.rebalance.member_signals import Tick
from torrentdist.cluster.session.znode_operations import Create, Delete

RESOURCES = tuple(f"r{n}" for n in range(7))
STEPS = 2000
MOST_PROCESSES = 5


class Life:
    def __init__(self, algorithm: Algorithm, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(algorithm)
        for resource in RESOURCES:
            self.world.tree.commit(0, (Create(GROUP.resource(resource)),))
        for _ in range(3):
            self.world.launch()
        self.faults: list[tuple[float, Callable[[Process], object]]] = [
            (3.0, self.world.drop),
            (12.0, self.lose_an_answer),
            (1.0, self.pause),
            (0.5, self.world.kill),
            (0.5, self.world.depart),
            (1.0, lambda process: self.world.finish(process, failing=True)),
        ]
        if algorithm is Algorithm.RESOURCE_BARRIER:  # with the global one, a member without a place counts as stopped
            self.faults.append((0.5, self.delete_its_place))

    def lose_an_answer(self, process: Process) -> None:
        self.world.serve(process)
        self.world.hear(process, self.rng.randrange(2), lost=True)

    def delete_its_place(self, process: Process) -> None:
        """Deletes the znode of a healthy member."""
        if process.member.ownership.name is not None:
            self.world.tree.commit(0, (Delete(process.member.ownership.path),))

    def pause(self, process: Process) -> None:
        process.paused = True

    def step(self) -> None:
        self.around()
        awake = [process for process in self.world.processes if not process.paused]
        if not awake:
            return
        # Some members are quick and some are slow, each for a while.
        moods = [1.0 if zlib.crc32(f"{process.name}{int(self.world.now)}".encode()) % 3 else 0.05 for process in awake]
        process = self.rng.choices(awake, moods)[0]
        if self.rng.random() < 0.03:
            self.rng.choices([fault for _, fault in self.faults], [weight for weight, _ in self.faults])[0](process)
            return
        for _ in range(self.rng.choice([1, 1, 2, 8])):
            self.progress(process)
            self.world.check()

    def progress(self, process: Process) -> None:
        world = self.world
        ways: list[Callable[[], object]] = [
            lambda: world.serve(process),
            lambda: world.hear(process, self.rng.randrange(2)),
            lambda: world.tell(process),
            lambda: world.finish(process),
        ]
        if world.is_over(process):
            ways.append(lambda: world.lose_session(process))
        self.rng.shuffle(ways)
        if process.session is None:
            world.open_session(process)
        elif not any(way() for way in ways):
            world.feed(process, Tick())

    def around(self) -> None:
        """Lets time, people and ZooKeeper act."""
        world, rng = self.world, self.rng
        if rng.random() < 0.2:
            world.advance(rng.choice([0.02, 0.05, 0.2]))
        if rng.random() < 0.001:
            world.advance(rng.uniform(1, 12))
        if len(world.processes) < MOST_PROCESSES and rng.random() < 0.01:
            world.launch()
        if rng.random() < 0.01:
            change = rng.choice([Create, Delete])
            world.tree.commit(0, (change(GROUP.resource(rng.choice(RESOURCES))),))
        for session in [session for session in world.sessions if world.may_expire(session)]:
            if rng.random() < 0.2:
                world.expire(session)
        for process in world.processes:
            if process.paused and rng.random() < 0.02:
                process.paused = False
            if process.member.gone:
                world.processes.remove(process)
                break


@pytest.mark.parametrize("algorithm", Algorithm)
@settings(max_examples=examples(20))
@given(seed=st.integers(0, 2**32))
def test_never_two_holders_in_a_long_life(algorithm: Algorithm, seed: int) -> None:
    """C6, C7, C8, C9, C11: if this fails, some order of faults gives a resource two holders, or
    none."""
    life = Life(algorithm, seed)

    for _ in range(STEPS):
        life.step()
        life.world.check()

    life.world.settle()
