"""The parts of a master that its mutations and reads need, in the test's own process, on a real
ZooKeeper."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import pytest
from zookeeper_fixtures import Connect, eventually

from torrentdist.cluster import paths
from torrentdist.cluster.records.mirror import Mirror
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.host.telemetry.metrics import Metrics
from torrentdist.master.bundles.bundle_operations import BundleOperations
from torrentdist.master.changes.answered_requests import Mutation, Requests, RequestTrimmer, mutation
from torrentdist.master.changes.commit import LeaderChanges
from torrentdist.master.leading.leader_rounds import Copies, LeaderRounds, Upkeep
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.leading.lost_bundles import LostBundles
from torrentdist.master.leading.schema_upgrade import Upgrade
from torrentdist.master.master_metrics import COUNTED
from torrentdist.master.master_session import MasterSession
from torrentdist.master.policies.distribution_orders import DistributionOperations
from torrentdist.model.configuration.config import ReplicationConfig
from torrentdist.model.ids import BundleId, Digest, MasterId, RequestId
from torrentdist.model.records import (
    BundleRecord,
    BundleState,
    encode,
)

BUNDLE = BundleId("bundle")


@dataclass
class InProcess:
    """The parts of a master that mutations need."""

    zk: ZooKeeper
    mirror: Mirror
    leadership: Leadership
    changes: LeaderChanges
    operations: BundleOperations
    distributions: DistributionOperations
    task: asyncio.Task[None]
    new_rounds: Callable[[], LeaderRounds]
    """Makes rounds of a leader, which has some of its own."""

    async def leads(self) -> None:
        await eventually(self.leadership.is_leader)

    async def retires(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task
        await self.leadership.leave("stopped")

    async def version(self, path: str) -> int:
        found = await self.zk.exists(path)
        assert found is not None
        return found.version


Enter = Callable[..., Awaitable[InProcess]]


def uncounted() -> Metrics:
    """Returns metrics that nobody scrapes."""
    metrics = Metrics(tuple)
    metrics.has(*COUNTED)
    return metrics


@pytest.fixture
async def enter(connect: Connect) -> AsyncIterator[Enter]:
    masters: list[InProcess] = []

    async def make(name: str, keep_secs: float = 600.0, **settings: object) -> InProcess:
        zk = await connect(**settings)
        for parent in (*paths.PARENTS, *paths.LATER_PARENTS):
            await zk.ensure(parent)
        mirror = Mirror(zk)
        await mirror.start(10.0)
        session, config = MasterSession(MasterId(name), zk, mirror), ReplicationConfig()
        copies = Copies(lambda: (), lambda _: False, LostBundles(session, lambda _: False, config.lost_secs))
        upkeep = Upkeep(RequestTrimmer(zk, keep_secs), Upgrade(zk, 600.0))
        new_rounds = partial(LeaderRounds, session, config, copies, upkeep, lambda _: None)
        leadership = Leadership(session, config, copies, new_rounds(), lambda _: None)
        changes = LeaderChanges(mirror, leadership, Requests(zk), uncounted())
        operations = BundleOperations(changes, leadership.default_min_replicas)
        distributions = DistributionOperations(changes, lambda _: {}, time.time)
        task = asyncio.create_task(leadership.run())
        made = InProcess(zk, mirror, leadership, changes, operations, distributions, task, new_rounds)
        masters.append(made)
        return made

    yield make
    for master in masters:
        await master.retires()
        await master.mirror.close()


async def put_bundle(zk: ZooKeeper, bundle: BundleId = BUNDLE) -> None:
    record = BundleRecord(
        id=bundle,
        digest=Digest("a" * 64),
        size=1,
        files=1,
        state=BundleState.AVAILABLE,
        min_replicas=1,
        created_at=0.0,
    )
    await zk.ensure(paths.BUNDLES)
    await zk.create(paths.bundle(bundle), encode(record))


def request(name: str, content: bytes = b"") -> Mutation:
    return mutation(RequestId(name), "PUT", b"/v1/bundles/bundle/pin", b"", content)


async def leader_with_bundle(enter: Enter, name: str = "m1", **settings: object) -> InProcess:
    master = await enter(name, **settings)
    await master.leads()
    await put_bundle(master.zk)
    await master.mirror.sync(5.0)
    return master
