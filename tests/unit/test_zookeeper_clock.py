"""What a daemon knows of ZooKeeper's clock, with simulated servers whose clock is set."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
from records_of import supervisor
from simulation.operating_system import simulated
from simulation.simulated_zookeeper import SimulatedZooKeeper
from simulation.virtual_loop import EPOCH, VirtualLoop
from zookeeper_fixtures import eventually

from torrentdist.cluster.records.registration import Registration
from torrentdist.cluster.session.founding import found_cluster
from torrentdist.cluster.session.zookeeper_session import Set, ZooKeeper
from torrentdist.model.configuration.config import ZooKeeperConfig

STEP_SECS = 3600.0
NEAR_SECS = 1.0
Scenario = Callable[[SimulatedZooKeeper, ZooKeeper], Awaitable[None]]


def errors_before_and_after(scenario: Scenario, *, look_secs: float | None = None) -> tuple[float, float]:
    """Registers a daemon, and sets the servers' clock ahead. Returns by how much the daemon's
    notion of that clock is late before the scenario, and after it."""
    loop = VirtualLoop(random.Random(1))
    with simulated(loop, 1) as servers:
        return loop.run_until_complete(_errors(servers, scenario, look_secs))


async def _errors(servers: SimulatedZooKeeper, scenario: Scenario, look_secs: float | None) -> tuple[float, float]:
    zk = ZooKeeper(ZooKeeperConfig(servers=["zookeeper:2181"], chroot="/cluster"))
    await zk.start(10.0)
    await found_cluster(zk)
    registration = Registration(zk, supervisor("h1"), look_secs=look_secs)
    await registration.start()
    await eventually(lambda: registration.registered)
    servers.wall = lambda: EPOCH + servers.loop.time() + STEP_SECS  # type: ignore[method-assign]
    errors = [servers.wall() - (zk.server_now() or 0.0)]
    await scenario(servers, zk)
    errors.append(servers.wall() - (zk.server_now() or 0.0))
    await registration.close()
    await zk.close()
    return errors[0], errors[1]


async def change_twice(_: SimulatedZooKeeper, zk: ZooKeeper) -> None:
    path = await zk.create("/a")
    await zk.commit([Set(path, b"1"), Set(path, b"2")])


async def lose_session(servers: SimulatedZooKeeper, zk: ZooKeeper) -> None:
    assert zk.session_id is not None
    servers.end_session(zk.session_id)
    await asyncio.sleep(60.0)


async def wait_two_hours(_: SimulatedZooKeeper, __: ZooKeeper) -> None:
    await asyncio.sleep(7200.0)


@pytest.mark.parametrize(
    ("scenario", "look_secs"),
    [(change_twice, None), (lose_session, None), (wait_two_hours, None), (wait_two_hours, 10.0)],
    ids=["a transaction", "a new session", "two hours", "two hours of looks"],
)
def test_a_clock_of_zookeeper_that_was_set_is_noticed(scenario: Scenario, look_secs: float | None) -> None:
    """If this failed, a host would refuse passes that are good for seconds, and warn of its own
    clock, until it is started again."""
    before, after = errors_before_and_after(scenario, look_secs=look_secs)

    assert STEP_SECS - NEAR_SECS < before < STEP_SECS + NEAR_SECS
    assert 0.0 <= after < NEAR_SECS


def test_a_daemon_writes_no_more_often_than_its_knowledge_needs() -> None:
    """If this failed, all hosts together would write to ZooKeeper at each look at their records."""
    writes: list[str] = []

    async def count(servers: SimulatedZooKeeper, zk: ZooKeeper) -> None:
        servers.on_change.append(lambda kind, path: writes.append(path))
        await wait_two_hours(servers, zk)

    errors_before_and_after(count, look_secs=10.0)

    assert 1 <= writes.count("/cluster/supervisors/h1") <= 3
