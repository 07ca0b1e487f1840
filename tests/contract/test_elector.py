"""The contract of a LeaderElector, which the one on ZooKeeper keeps."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

import pytest
from contenders import master_record
from simulation.host_process import HostProcess
from simulation.kazoo_connection import ZK
from simulation.operating_system import simulated
from simulation.virtual_loop import VirtualLoop
from zookeeper_fixtures import Connect, eventually, eventually_async

from torrentdist.cluster.election.elector import Elector, LeaderElector
from torrentdist.cluster.records.registration import Registration
from torrentdist.cluster.session.founding import found_cluster
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.model.configuration.config import ZooKeeperConfig
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


@pytest.mark.case("D11")
def test_a_standby_leads_whenever_zookeeper_was_silent() -> None:
    """If this fails, a standby that is cut off from ZooKeeper while it begins to watch its
    predecessor never leads: nobody leads once that predecessor is gone."""
    loop = VirtualLoop(random.Random(1))
    with simulated(loop, 1):
        stuck = [ms for ms in range(40) if not loop.run_until_complete(_leads_after_silence(loop, ms / 1000))]

    assert stuck == []


async def _leads_after_silence(loop: VirtualLoop, moment: float) -> bool:
    """`moment`: when the silence begins, in seconds after the standby has queued up."""
    hosts = [HostProcess(f"m{n}", f"10.0.0.{n}") for n in (1, 2)]
    config = ZooKeeperConfig(servers=["zookeeper:2181"], chroot=f"/at-{moment}", session_timeout_secs=20.0)
    clients = [ZooKeeper(config) for _ in hosts]
    for host, zk in zip(hosts, clients, strict=True):
        await loop.create_task(zk.start(10.0), context=host.context())
        await found_cluster(zk)
    first, second = (
        Elector(zk, MasterId(host.name), Gate(), pause_secs=0.05) for host, zk in zip(hosts, clients, strict=True)
    )
    await first.queue_up()
    await eventually(first.is_leader)
    await second.queue_up()
    await asyncio.sleep(moment)
    links = {(hosts[1].address, ZK), (ZK, hosts[1].address)}
    loop.network.cut(links)
    await asyncio.sleep(17.0)  # The connection is lost; the session lives on.
    loop.network.uncut(links)
    await asyncio.sleep(10.0)
    await first.leave_queue()
    await asyncio.sleep(10.0)
    leads = second.is_leader()
    await second.leave_queue()
    await asyncio.gather(*(zk.close() for zk in clients))
    return leads
