"""The contract of a LeaderElector, which the one on ZooKeeper keeps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

import pytest
from contenders import master_record
from zookeeper_fixtures import Connect, eventually, eventually_async

from torrentdist.cluster.election.elector import Elector, LeaderElector
from torrentdist.cluster.records.registration import Registration
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import MasterId

pytestmark = pytest.mark.anyio


@dataclass
class Gate:
    """Whether a master is ready; the test sets it."""

    open: bool = True
    asked: int = 0

    async def __call__(self) -> bool:
        self.asked += 1
        return self.open


@dataclass
class Polls:
    """The electors of one cluster, and a way to make more."""

    make: Callable[[str, Gate], Awaitable[LeaderElector]]
    electors: list[LeaderElector] = field(default_factory=list)

    async def add(self, name: str, *, ready: bool = True) -> tuple[LeaderElector, Gate]:
        gate = Gate(ready)
        elector = await self.make(name, gate)
        self.electors.append(elector)
        return elector, gate

    def leaders(self) -> int:
        return sum(elector.is_leader() for elector in self.electors)


@pytest.fixture
async def polls(connect: Connect) -> AsyncIterator[Polls]:
    registrations: list[Registration] = []

    async def make(name: str, gate: Gate) -> LeaderElector:
        zk = await connect()
        registration = Registration(zk, master_record(name))
        await registration.start()
        registrations.append(registration)
        return Elector(zk, MasterId(name), gate, pause_secs=0.05)

    made = Polls(make)
    yield made
    for elector in made.electors:
        await elector.leave_queue()
    for registration in registrations:
        await registration.close()


async def queue_is(elector: LeaderElector, names: list[str]) -> bool:
    return await elector.candidates() == names


async def test_nobody_leads_before_anybody_queues(polls: Polls) -> None:
    """If this fails, a cluster without candidates has a leader."""
    elector, _ = await polls.add("m1")
    with pytest.raises(TorrentdistError) as caught:
        await elector.leader()

    assert caught.value.code == "no_leader"
    assert not elector.is_leader()
    assert await elector.candidates() == []


async def test_the_first_leads_and_the_others_wait_in_order(polls: Polls) -> None:
    """If this fails, candidates do not lead in the order in which they came, or two lead at
    once."""
    names = ["m1", "m2", "m3"]
    electors = [(await polls.add(name))[0] for name in names]
    for n, elector in enumerate(electors, 1):
        await elector.queue_up()
        await eventually_async(partial(queue_is, elector, names[:n]))
    await eventually(electors[0].is_leader)

    assert polls.leaders() == 1
    assert [await elector.leader() for elector in electors] == ["m1"] * 3


async def test_queueing_and_leaving_twice_is_as_once(polls: Polls) -> None:
    """If this fails, a repeated call leaves a second place in the queue, or frees another master's
    place."""
    first, _ = await polls.add("m1")
    second, _ = await polls.add("m2")
    await second.leave_queue()
    for _ in range(2):
        await first.queue_up()
    await eventually(first.is_leader)
    for _ in range(2):
        await second.queue_up()
    await eventually_async(lambda: queue_is(first, ["m1", "m2"]))
    for _ in range(2):
        await first.leave_queue()
    await eventually(second.is_leader)

    assert await second.candidates() == ["m2"]
    assert not first.is_leader()


async def test_an_elector_that_left_can_queue_again_behind_the_others(polls: Polls) -> None:
    """If this fails, a leader that stepped down never leads again, or jumps the queue."""
    first, _ = await polls.add("m1")
    second, _ = await polls.add("m2")
    await first.queue_up()
    await eventually(first.is_leader)
    await second.queue_up()
    await first.leave_queue()
    await eventually(second.is_leader)
    await first.queue_up()
    await eventually_async(lambda: queue_is(second, ["m2", "m1"]))

    assert second.is_leader()
    assert polls.leaders() == 1


@pytest.mark.case("D11")
async def test_an_elector_that_is_not_ready_yields_and_leads_later(polls: Polls) -> None:
    """If this fails, an unready master leads, blocks the others, or is never asked again."""
    unready, gate = await polls.add("m1", ready=False)
    other, _ = await polls.add("m2")
    await unready.queue_up()
    await eventually(lambda: gate.asked >= 2)
    led_unready = unready.is_leader()
    await other.queue_up()
    await eventually(other.is_leader)
    gate.open = True
    await other.leave_queue()
    await eventually(unready.is_leader)

    assert not led_unready
    assert polls.leaders() == 1


async def test_there_is_one_leader_at_most_whoever_comes_and_goes(polls: Polls) -> None:
    """If this fails, a change in the queue makes two leaders for a moment."""
    electors = [(await polls.add(f"m{n}"))[0] for n in range(3)]
    seen: list[int] = []
    for turn in range(9):
        await electors[turn % 3].queue_up()
        await electors[(turn + 1) % 3].queue_up()
        await eventually(lambda: polls.leaders() > 0)
        seen.append(polls.leaders())
        await electors[turn % 3].leave_queue()
        seen.append(polls.leaders())
    await eventually(lambda: polls.leaders() == 1)

    assert max(seen) <= 1
