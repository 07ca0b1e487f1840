"""A leader looks at a running distribution when something has changed, and seldom otherwise; with
a real ZooKeeper."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

import pytest
from masters_in_process import BUNDLE, Enter, InProcess, leader_with_bundle, put_bundle
from zookeeper_fixtures import eventually

from torrentdist.cluster import paths
from torrentdist.master.master_session import MasterSession
from torrentdist.master.policies.distribution_orders import DistributionOrder
from torrentdist.master.policies.policy_loop import PolicyLoop, PolicyParts
from torrentdist.master.policies.retention_operations import RetentionOperations
from torrentdist.model.ids import BundleId, Digest, MasterId, PeerId, StoreId, SupervisorId
from torrentdist.model.policies.distribution_record import DistributionState
from torrentdist.model.records import AssignmentRecord, SupervisorRecord, encode
from torrentdist.model.wire.fleet_messages import NO_ROOM
from torrentdist.model.wire.swarm_messages import SwarmEntry

pytestmark = pytest.mark.anyio

HOST = SupervisorId("h1")
PATIENCE_SECS = 600.0
ROUNDS = 4


class Swarm:
    """What hosts say, and how often the leader asked for it."""

    def __init__(self) -> None:
        self.said: dict[PeerId, SwarmEntry] = {}
        self.revision = 0
        self.looks = 0
        self.rounds = 0
        """How often it asked whether anything is new."""

    def say(self, *, complete: bool, host: SupervisorId = HOST, problem: str = "") -> None:
        self.said[PeerId(host)] = SwarmEntry(digest=Digest("a" * 64), complete=complete, size=1, problem=problem)
        self.revision += 1

    def members(self, _: Digest) -> Mapping[PeerId, SwarmEntry]:
        self.looks += 1
        return self.said

    def current(self) -> int:
        self.rounds += 1
        return self.revision


async def register(master: InProcess, id_: SupervisorId) -> None:
    host = SupervisorRecord(id=id_, host="127.0.0.1", gateway="", swarm_port=1, store=StoreId("s"), version="1")
    await master.zk.create(paths.supervisor(id_), encode(host))
    await master.mirror.wait_for(lambda s: id_ in s.supervisors, 10.0)


@contextlib.asynccontextmanager
async def policies(master: InProcess, swarm: Swarm, patience: float) -> AsyncIterator[None]:
    session = MasterSession(MasterId("m1"), master.zk, master.mirror)
    parts = PolicyParts(
        master.changes, RetentionOperations(master.changes, master.zk.server_now), swarm.members, swarm.current
    )
    running = asyncio.create_task(PolicyLoop(session, master.leadership, parts, patience).run())
    try:
        yield
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def distribute_to_the_end(master: InProcess, bundle: BundleId) -> None:
    await master.distributions.begin(None, DistributionOrder(bundle), lambda _: None)
    await eventually(lambda: master.mirror.snapshot.distributions[bundle].record.is_over)


async def test_a_distribution_in_which_nothing_moves_is_not_looked_at(enter: Enter) -> None:
    """A master of 1,000 hosts would walk over all of them twice a second, all day if one is
    stuck."""
    master, swarm = await leader_with_bundle(enter), Swarm()
    await register(master, HOST)
    async with policies(master, swarm, PATIENCE_SECS):
        await master.distributions.begin(None, DistributionOrder(BUNDLE), lambda _: None)
        await eventually(lambda: swarm.looks > 0 and HOST in master.mirror.snapshot.assignments)
        before = swarm.looks
        swarm.say(complete=False)
        await eventually(lambda: swarm.looks > before)
        looks, rounds = swarm.looks, swarm.rounds
        await eventually(lambda: swarm.rounds >= rounds + ROUNDS)
        at_rest = swarm.looks - looks
        swarm.say(complete=True)
        await eventually(
            lambda: master.mirror.snapshot.distributions[BUNDLE].record.state is DistributionState.COMPLETE
        )

    assert 0 == at_rest


async def test_a_host_whose_assignment_is_full_is_told_as_a_failure(enter: Enter) -> None:
    """No host behind it would get the bundle, and the distribution would never end."""
    master, swarm, full = await leader_with_bundle(enter), Swarm(), SupervisorId("h0")
    record = AssignmentRecord(bundles=tuple(BundleId(f"{n:0128}") for n in range(6_500)))
    await master.zk.create(paths.assignment(full), encode(record))
    for host in (full, HOST):
        await register(master, host)
    swarm.say(complete=True)
    async with policies(master, swarm, patience=0.05):
        await master.distributions.begin(None, DistributionOrder(BUNDLE), lambda _: None)
        await eventually(lambda: master.mirror.snapshot.distributions[BUNDLE].record.is_over)
    over = master.mirror.snapshot

    assert (DistributionState.COMPLETE, f"these hosts lack it: h0 ({NO_ROOM})") == (
        over.distributions[BUNDLE].record.state,
        over.distributions[BUNDLE].record.reason,
    )
    assert BUNDLE in over.assignments[HOST].record.bundles


async def test_a_host_that_restarts_after_it_got_the_bundle_stops_nothing(enter: Enter) -> None:
    """A reboot of one host would end a distribution in small waves, with the reason that no host of
    its wave got the bundle."""
    master, swarm, first = await leader_with_bundle(enter), Swarm(), SupervisorId("h0")
    for host in (first, HOST):
        await register(master, host)
    swarm.say(complete=True, host=first)
    async with policies(master, swarm, patience=0.05):
        await master.distributions.begin(None, DistributionOrder(BUNDLE, concurrency=1), lambda _: None)
        await eventually(lambda: HOST in master.mirror.snapshot.assignments)
        await master.zk.delete(paths.supervisor(first))
        await eventually(lambda: first not in master.mirror.snapshot.supervisors)
        rounds = swarm.rounds
        await eventually(lambda: swarm.rounds >= rounds + ROUNDS)
        swarm.say(complete=True)
        await eventually(lambda: master.mirror.snapshot.distributions[BUNDLE].record.is_over)

    assert DistributionState.COMPLETE == master.mirror.snapshot.distributions[BUNDLE].record.state


async def test_the_end_of_a_distribution_ends_no_fetch_of_a_slow_host(enter: Enter) -> None:
    """If this fails, a host that is late when the others have the bundle is told to give up."""
    master, swarm, later = await leader_with_bundle(enter), Swarm(), BundleId("later")
    await put_bundle(master.zk, later)
    await register(master, HOST)
    await master.mirror.sync(5.0)
    swarm.say(complete=False, problem="nobody sends it")
    async with policies(master, swarm, patience=0.01):
        await distribute_to_the_end(master, BUNDLE)
        await distribute_to_the_end(master, later)  # Its rounds look at the first one, too.
    over = await master.mirror.sync(5.0)

    assert DistributionState.CANCELLED is not over.distributions[BUNDLE].record.state
    assert BUNDLE in over.assignments[HOST].record.bundles
