"""What a master does after a step of its replication failed, on a simulated ZooKeeper."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from contenders import master_record
from records_of import bundle
from simulation.host_process import NOBODY
from simulation.kazoo_connection import ZK
from simulation.operating_system import simulated
from simulation.virtual_loop import VirtualLoop
from zookeeper_fixtures import eventually_async

from torrentdist.cluster import paths
from torrentdist.cluster.records.mirror import Mirror
from torrentdist.cluster.session.founding import found_cluster
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.master.master_session import MasterSession
from torrentdist.master.replication.fetch_attempts import FetchAttempts
from torrentdist.master.replication.replicator import LONGEST_RETRY_SECS, Replicator
from torrentdist.model.configuration.config import ReplicationConfig, ZooKeeperConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import MasterId
from torrentdist.model.records import BundleState, encode

ETL = bundle("etl", state=BundleState.UPLOADING)
SILENT_SECS = 17.0
"""The connection is lost after that time, and the session lives on."""


class PublishedStore:
    """A store that has the whole bundle."""

    id = "store-m1"

    def published_digests(self) -> frozenset[str]:
        return frozenset({ETL.record.digest})

    def arriving(self) -> list[str]:
        return []

    def names(self, digest: str) -> list[str]:
        return [ETL.record.id]

    async def bind(self, *_: object) -> None:
        pass


class DamagedStore(PublishedStore):
    """It also has an arriving bundle whose files cannot be read."""

    def arriving(self) -> list[str]:
        return ["e" * 64]

    async def arrival(self, digest: str) -> None:
        raise TorrentdistError("disk_error", path="set-aside", detail="Input/output error")


def test_a_replica_record_that_could_not_be_written_is_written_soon() -> None:
    """An upload would wait for up to two minutes for a copy that is there, because ZooKeeper did
    not answer for a moment."""
    loop = VirtualLoop(random.Random(1))
    with simulated(loop, 1):
        waited = loop.run_until_complete(_secs_until_recorded(loop))

    assert waited < LONGEST_RETRY_SECS + 1.0


class FaultyStore(PublishedStore):
    """Its first step fails by a mistake of ours."""

    binds = 0

    async def bind(self, *_: object) -> None:
        self.binds += 1
        if self.binds == 1:
            raise ZeroDivisionError


def test_a_mistake_in_one_step_ends_no_master() -> None:
    """A master would end at each start because of one bundle, and so would each standby."""
    loop = VirtualLoop(random.Random(1))
    with simulated(loop, 1):
        loop.run_until_complete(_recorded_on(FaultyStore()))


def test_a_note_that_cannot_be_read_ends_no_master() -> None:
    """A master would end at each start because of one bad sector, or of a moment without
    descriptors."""
    loop = VirtualLoop(random.Random(1))
    with simulated(loop, 1):
        loop.run_until_complete(_recorded_on(DamagedStore()))


async def _recorded_on(store: PublishedStore) -> None:
    """Returns once this master's copy is recorded."""
    async with _mirrored() as (zk, mirror), _replicating(zk, mirror, store):
        await mirror.wait_for(lambda s: s.holders(ETL.record.id) == ("m1",), 10.0)


def test_a_replica_record_that_is_damaged_is_written_anew() -> None:
    """The copy would count for nobody, and the master would try to make the record again and again,
    as fast as ZooKeeper answers."""
    loop = VirtualLoop(random.Random(1))
    with simulated(loop, 1):
        loop.run_until_complete(_mended())


async def _mended() -> None:
    """Returns once a damaged record of this master's copy is right again."""
    replica = paths.replica(ETL.record.id, MasterId("m1"))
    async with _mirrored() as (zk, mirror):
        await zk.create(replica, b"{")
        await mirror.wait_for(lambda s: replica in s.damaged, 10.0)
        async with _replicating(zk, mirror):
            await mirror.wait_for(lambda s: s.holders(ETL.record.id) == ("m1",), 10.0)


@contextlib.asynccontextmanager
async def _mirrored() -> AsyncIterator[tuple[ZooKeeper, Mirror]]:
    """Yields the records of a cluster with one upload that this master has the whole bundle of."""
    zk = ZooKeeper(ZooKeeperConfig(servers=["zookeeper:2181"], chroot="/cluster", session_timeout_secs=20.0))
    await zk.start(10.0)
    await found_cluster(zk)
    for parent in (*paths.PARENTS, *paths.LATER_PARENTS):
        await zk.ensure(parent)
    await zk.create(paths.master(MasterId("m1")), encode(master_record("m1")), ephemeral=True)
    await zk.create(paths.bundle(ETL.record.id), encode(ETL.record))
    mirror = Mirror(zk)
    await mirror.start(10.0)
    yield zk, mirror
    await mirror.close()
    await zk.close()


async def _secs_until_recorded(loop: VirtualLoop) -> float:
    """Returns how long after ZooKeeper answers again the master has recorded its copy."""
    link = {(NOBODY.address, ZK)}
    async with _mirrored() as (zk, mirror), _replicating(zk, mirror):
        loop.network.cut(link)
        await asyncio.sleep(SILENT_SECS)
        loop.network.uncut(link)
        mended_at = loop.time()
        replica = paths.replica(ETL.record.id, MasterId("m1"))
        await eventually_async(lambda: _exists(zk, replica))
        return loop.time() - mended_at


@contextlib.asynccontextmanager
async def _replicating(zk: ZooKeeper, mirror: Mirror, store: PublishedStore | None = None) -> AsyncIterator[None]:
    running = asyncio.create_task(_replicator(zk, mirror, store or PublishedStore()).run())
    yield
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def _exists(zk: ZooKeeper, path: str) -> bool:
    return await zk.exists(path) is not None


def _replicator(zk: ZooKeeper, mirror: Mirror, store: PublishedStore) -> Replicator:
    core: Any = SimpleNamespace(
        session=MasterSession(MasterId("m1"), zk, mirror),
        host=SimpleNamespace(runtime=SimpleNamespace(store=store)),
        config=SimpleNamespace(replication=ReplicationConfig()),
    )
    fetches: Any = SimpleNamespace(under_way=frozenset, joins_uploads=True, cancel=lambda: None)
    leadership: Any = SimpleNamespace(is_leader=lambda: False)
    return Replicator(core, leadership, fetches, FetchAttempts())
