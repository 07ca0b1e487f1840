"""Deadlines that go on under the next leader, against a real ZooKeeper."""

from __future__ import annotations

import msgspec
import pytest
from masters_in_process import Enter
from zookeeper_fixtures import eventually_async

from torrentdist.cluster import paths
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.model.records import SCHEMA, ClusterRecord, decode

pytestmark = pytest.mark.anyio


async def cluster_record(zk: ZooKeeper) -> ClusterRecord:
    found = await zk.get(paths.CLUSTER)
    assert found is not None
    return decode(found[0], ClusterRecord, path=paths.CLUSTER)


async def test_a_new_leader_counts_the_time_since_an_upgrade_on(enter: Enter) -> None:
    """Under leaders that change every few minutes, the records would stay in the older schema for
    ever."""
    master = await enter("m1")
    await master.leads()
    found = await cluster_record(master.zk)
    older = msgspec.structs.replace(found, schema=SCHEMA - 1)
    await master.zk.set(paths.CLUSTER, msgspec.json.encode(older))

    async def noted() -> bool:
        return (await cluster_record(master.zk)).newer_since > 0.0

    async def raised() -> bool:
        return (await cluster_record(master.zk)).schema == SCHEMA

    await eventually_async(noted)
    noted_at = (await cluster_record(master.zk)).newer_since
    await master.zk.set(
        paths.CLUSTER, msgspec.json.encode(msgspec.structs.replace(older, newer_since=noted_at - 600.0))
    )
    await eventually_async(raised)

    assert 0.0 == (await cluster_record(master.zk)).newer_since
