"""A damaged record stops nothing else, with a real ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

import pytest
from masters_in_process import BUNDLE, Enter, InProcess, leader_with_bundle, put_bundle
from zookeeper_fixtures import eventually

from torrentdist.cluster import paths
from torrentdist.master.master_session import MasterSession
from torrentdist.master.policies.distribution_orders import DistributionOrder
from torrentdist.master.policies.policy_loop import PolicyLoop, PolicyParts
from torrentdist.master.policies.retention_operations import RetentionOperations
from torrentdist.model.ids import BundleId, Digest, MasterId, PeerId, StoreId, SupervisorId
from torrentdist.model.records import SupervisorRecord, encode
from torrentdist.model.wire.swarm_messages import SwarmEntry

pytestmark = pytest.mark.anyio

HOSTS = (SupervisorId("h1"), SupervisorId("h2"), SupervisorId("h3"))
SECOND = BundleId("second")
DAMAGED = b"{"
PATIENCE_SECS = 600.0


async def register(master: InProcess) -> None:
    for id_ in HOSTS:
        record = SupervisorRecord(
            id=id_, host="127.0.0.1", gateway="", swarm_port=1, store=StoreId(f"store-{id_}"), version="1"
        )
        await master.zk.create(paths.supervisor(id_), encode(record))
    await master.mirror.wait_for(lambda s: s.supervisors.keys() >= {*HOSTS}, 10.0)


def session_of(master: InProcess, name: str) -> MasterSession:
    return MasterSession(MasterId(name), master.zk, master.mirror)


@asynccontextmanager
async def running(loop: PolicyLoop) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(loop.run())
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_damaged_bundle_record_stops_no_standby(enter: Enter) -> None:
    """If this fails, one damaged record during a distribution ends all standbys, and each again
    when it is started."""
    leader, looked = await leader_with_bundle(enter), set[Digest]()
    await put_bundle(leader.zk, SECOND)
    await register(leader)
    for bundle in (BUNDLE, SECOND):
        await leader.distributions.begin(None, DistributionOrder(bundle), lambda _: None)
    standby = await enter("m2")

    def members(digest: Digest) -> Mapping[PeerId, SwarmEntry]:
        looked.add(digest)
        return {}

    parts = PolicyParts(
        standby.changes, RetentionOperations(standby.changes, standby.zk.server_now), members, lambda: 0
    )
    await standby.zk.set(paths.bundle(BUNDLE), DAMAGED)
    await standby.mirror.wait_for(lambda s: BUNDLE not in s.bundles and s.distributions.keys() == {BUNDLE, SECOND}, 10)
    async with running(PolicyLoop(session_of(standby, "m2"), standby.leadership, parts, PATIENCE_SECS)) as loop:
        await eventually(lambda: loop.done() or bool(looked))
        ended = loop.done()

    assert not ended
