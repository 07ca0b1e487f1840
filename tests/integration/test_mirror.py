"""The mirror of the records against a real ZooKeeper."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from zookeeper_fixtures import Connect, TcpProxy, eventually

from torrentdist.cluster import paths
from torrentdist.cluster.records.mirror import WHOLE_CLUSTER, Mirror, MirrorPlan, of_supervisor
from torrentdist.cluster.session.znode_operations import SessionState, Stat
from torrentdist.cluster.session.zookeeper_session import Watch, ZooKeeper
from torrentdist.dev.embedded_zookeeper import EmbeddedZooKeeper
from torrentdist.model.configuration.config import ZooKeeperConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest, MasterId, StoreId, SupervisorId
from torrentdist.model.records import (
    SCHEMA,
    AssignmentRecord,
    BundleRecord,
    BundleState,
    ClusterRecord,
    MasterRecord,
    ReplicaRecord,
    encode,
)

pytestmark = pytest.mark.anyio

DIGEST = Digest("ab" * 32)
Follow = Callable[..., Awaitable[Mirror]]


def bundle_record(id_: str, state: BundleState = BundleState.AVAILABLE) -> BundleRecord:
    return BundleRecord(id=BundleId(id_), digest=DIGEST, size=1, files=1, state=state, min_replicas=1, created_at=0.0)


def master_record(id_: str, store: str) -> MasterRecord:
    return MasterRecord(
        id=MasterId(id_),
        host="h",
        port=1,
        url="http://h:1",
        swarm_port=2,
        store=StoreId(store),
        version="0",
        started_at=0.0,
    )


async def put_bundle(zk: ZooKeeper, id_: str) -> BundleId:
    await zk.ensure(paths.BUNDLES)
    await zk.create(paths.bundle(BundleId(id_)), encode(bundle_record(id_)))
    return BundleId(id_)


async def put_master(zk: ZooKeeper, id_: str, store: str) -> None:
    await zk.ensure(paths.MASTERS)
    await zk.create(paths.master(MasterId(id_)), encode(master_record(id_, store)), ephemeral=True)


async def put_replica(zk: ZooKeeper, bundle: BundleId, master: str, store: str) -> None:
    record = ReplicaRecord(master=MasterId(master), store=StoreId(store), digest=DIGEST)
    await zk.create(paths.replica(bundle, MasterId(master)), encode(record))


@pytest.fixture
async def follow() -> AsyncIterator[Follow]:
    mirrors: list[Mirror] = []

    async def make(zk: ZooKeeper, plan: MirrorPlan = WHOLE_CLUSTER) -> Mirror:
        mirror = Mirror(zk, plan)
        mirrors.append(mirror)
        await mirror.start(10.0)
        return mirror

    yield make
    for mirror in mirrors:
        await mirror.close()


async def test_a_missing_tree_is_seen_as_missing(connect: Connect, follow: Follow) -> None:
    """If this fails, a wiped ZooKeeper looks like a cluster without bundles, and bundles are
    deleted (A13)."""
    zk = await connect(founded=False)
    mirror = await follow(zk)
    before = mirror.snapshot
    with zk.without_cluster():
        await zk.make_chroot()
        await put_bundle(zk, "b")
        without = await mirror.wait_for(lambda s: "b" in s.bundles, 5.0)
        await zk.create(paths.CLUSTER, encode(ClusterRecord(id="c", announce_key="k")))
    after = await mirror.wait_for(lambda s: s.present, 5.0)

    assert not before.present
    assert not without.present
    assert (after.cluster and after.cluster.id) == "c"


async def test_records_from_before_and_after_the_start_are_there(connect: Connect, follow: Follow) -> None:
    """If this fails, a master knows only what changed while it ran, or only what was there when it
    started."""
    zk, other = await connect(), await connect()
    other.write_in(SCHEMA)
    await put_bundle(other, "before")
    mirror = await follow(zk)
    await put_bundle(other, "after")
    await other.ensure(paths.ASSIGNMENTS)
    assignment = AssignmentRecord(generation=3, bundles=(BundleId("before"),))
    await other.create(paths.assignment(SupervisorId("s")), encode(assignment))
    snapshot = await mirror.sync(5.0)

    assert {"before", "after"} == set(snapshot.bundles)
    assert assignment == snapshot.assignments[SupervisorId("s")].record


async def test_changes_and_removals_are_followed(connect: Connect, follow: Follow) -> None:
    """If this fails, a standby acts on a state that is long outdated."""
    zk, other = await connect(), await connect()
    bundle = await put_bundle(other, "b")
    mirror = await follow(zk)
    await other.set(paths.bundle(bundle), encode(bundle_record("b", BundleState.REMOVED)), 0)
    changed = await mirror.sync(5.0)
    await other.delete(paths.bundle(bundle))
    gone = await mirror.sync(5.0)

    assert (changed.bundles[bundle].record.state, changed.bundles[bundle].version) == (BundleState.REMOVED, 1)
    assert gone.bundles == {}
    assert changed.version < gone.version


@pytest.mark.case("A27")
async def test_a_replica_counts_only_with_its_master_and_that_store(connect: Connect, follow: Follow) -> None:
    """If this fails, copies on replaced disks and on dead masters count as replicas."""
    zk, dying = await connect(), await connect()
    bundle = await put_bundle(zk, "b")
    await put_master(zk, "m1", "store-1")
    await put_master(dying, "m2", "store-2")
    await put_master(zk, "m3", "store-new")
    for n in (1, 2, 3):
        await put_replica(zk, bundle, f"m{n}", f"store-{n}")
    mirror = await follow(zk)
    before = mirror.snapshot.holders(bundle)
    await dying.close()
    after = await mirror.wait_for(lambda s: "m2" not in s.masters, 5.0)

    assert before == ("m1", "m2")
    assert after.holders(bundle) == ("m1",)
    assert {"m1", "m2", "m3"} == set(after.bundles[bundle].replicas)


async def test_a_broken_record_hurts_no_other(connect: Connect, follow: Follow) -> None:
    """If this fails, one record that cannot be decoded blinds every master."""
    zk = await connect()
    zk.write_in(SCHEMA)  # as it stands, including what no release would write
    await put_bundle(zk, "good")
    await zk.create("/code-distributor/newer", b'{"schema": 99}')
    await zk.create("/code-distributor/other", encode(bundle_record("not-other")))
    await zk.create("/code-distributor/ no id", encode(bundle_record("x")))
    await zk.create("/code-distributor/torn", b"{")
    mirror = await follow(zk)
    await put_bundle(zk, "later")
    snapshot = await mirror.sync(5.0)
    await zk.set("/code-distributor/torn", encode(bundle_record("torn")))
    healed = await mirror.sync(5.0)

    assert {"good", "later"} == set(snapshot.bundles)
    assert {"good", "later", "torn"} == set(healed.bundles)


@pytest.mark.alone
async def test_a_new_record_arrives_at_once(connect: Connect, follow: Follow) -> None:
    """If this fails, standbys start fetching late: the median from a write to the snapshot must
    stay within 20 ms."""
    zk, other = await connect(), await connect()
    await other.ensure(paths.BUNDLES)
    mirror = await follow(zk)
    took: list[float] = []
    for n in range(21):
        begun = time.monotonic()
        await asyncio.gather(put_bundle(other, f"b{n}"), mirror.changed(mirror.snapshot.version))
        took.append(time.monotonic() - begun)

    assert sorted(took)[10] < 0.02, took


@pytest.mark.case("A26")
async def test_nothing_is_lost_under_a_storm_of_changes(connect: Connect, follow: Follow) -> None:
    """If this fails, changes that fall between a read and its watch are lost for good."""
    zk, other, third = await connect(), await connect(), await connect()
    mirror = await follow(zk)

    async def storm(client: ZooKeeper, prefix: str) -> None:
        for n in range(60):
            bundle = await put_bundle(client, f"{prefix}{n}")
            await put_replica(client, bundle, "m1", "s1")
            if n % 3 == 0:
                await client.delete(paths.replica(bundle, MasterId("m1")))
                await client.delete(paths.bundle(bundle))

    await asyncio.gather(storm(other, "x"), storm(third, "y"))
    snapshot = await mirror.sync(10.0)

    expected = {f"{p}{n}" for p in "xy" for n in range(60) if n % 3}
    assert expected == set(snapshot.bundles)
    assert all("m1" in entry.replicas for entry in snapshot.bundles.values())


async def test_sync_shows_what_others_have_written(connect: Connect, follow: Follow) -> None:
    """B11: if this fails, a client does not read its own write at another master."""
    zk, other = await connect(), await connect()
    mirror = await follow(zk)
    missed: list[str] = []
    for n in range(30):
        bundle = await put_bundle(other, f"b{n}")
        snapshot = await mirror.sync_to(other.last_zxid, 5.0)
        if bundle not in snapshot.bundles or mirror.applied_zxid < other.last_zxid:
            missed.append(bundle)

    assert missed == []


@pytest.mark.case("A15")
async def test_changes_during_a_cut_off_are_caught_up(connect: Connect, follow: Follow, proxy: TcpProxy) -> None:
    """If this fails, a master that was cut off for a moment stays behind for ever, because kazoo
    forgets its watches."""
    zk, other = await connect(servers=[proxy.address]), await connect()
    gone = await put_bundle(other, "gone")
    kept = await put_bundle(other, "kept")
    mirror = await follow(zk)
    proxy.cut()
    await eventually(lambda: not mirror.fresh)
    await other.delete(paths.bundle(gone))
    await put_bundle(other, "new")
    await put_replica(other, kept, "m1", "s1")
    proxy.mend()
    snapshot = await mirror.wait_for(lambda s: "new" in s.bundles, 10.0)
    await put_bundle(other, "later")
    after = await mirror.wait_for(lambda s: "later" in s.bundles, 5.0)

    assert {"kept", "new"} == set(snapshot.bundles)
    assert list(after.bundles[kept].replicas) == ["m1"]


async def test_the_plan_of_a_supervisor_sees_masters_and_its_own_assignment(connect: Connect, follow: Follow) -> None:
    """If this fails, every supervisor reads the whole tree, or all of them are notified about every
    master at once."""
    zk, other = await connect(), await connect()
    mirror = await follow(zk, of_supervisor(SupervisorId("s1")))
    await put_bundle(other, "b")
    await put_master(other, "m1", "store")
    await other.ensure(paths.ASSIGNMENTS)
    for name in ("s1", "s2"):
        await other.create(paths.assignment(SupervisorId(name)), encode(AssignmentRecord(generation=1)))
    watched = await mirror.sync(5.0)
    await mirror.look_again(5.0)
    snapshot = mirror.snapshot

    assert (set(), {"s1"}) == (set(watched.masters), set(watched.assignments))
    assert ({"m1"}, {"s1"}, {}) == (set(snapshot.masters), set(snapshot.assignments), snapshot.bundles)


class Deaf(ZooKeeper):
    """A client whose watches on records never fire."""

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat] | None:
        return await super().get(path)


async def test_what_a_lost_watch_hides_is_seen_by_looking_again(
    connect: Connect, follow: Follow, zookeeper: EmbeddedZooKeeper, chroot: str
) -> None:
    """If this fails, a supervisor whose watch was lost never hears of its assignment again."""
    other, deaf = await connect(), Deaf(ZooKeeperConfig(servers=zookeeper.addresses, chroot=chroot))
    s1 = SupervisorId("s1")
    path = paths.assignment(s1)
    await other.ensure(paths.ASSIGNMENTS)
    await other.create(path, encode(AssignmentRecord(generation=1)))
    await deaf.start(10.0)
    try:
        mirror = await follow(deaf, of_supervisor(s1))
        await other.set(path, encode(AssignmentRecord(generation=2)))
        await mirror.sync(5.0)
        before = mirror.snapshot.assignments[s1].record.generation
        await mirror.look_again(5.0)

        assert (1, 2) == (before, mirror.snapshot.assignments[s1].record.generation)
    finally:
        await mirror.close()
        await deaf.close()


class Wiped(ZooKeeper):
    """A client that comes to a wiped ensemble just as it reads the list of bundles again."""

    wipe: Callable[[], Awaitable[None]] | None = None

    async def children(self, path: str, watch: Watch | None = None) -> list[str] | None:
        if path == paths.BUNDLES and self.wipe is not None:
            wipe, self.wipe = self.wipe, None
            await wipe()
            for tell in self.on_state:
                tell(SessionState.CONNECTED)
        return await super().children(path, watch)


async def test_a_wiped_tree_is_never_a_cluster_without_bundles(
    connect: Connect, follow: Follow, zookeeper: EmbeddedZooKeeper, chroot: str
) -> None:
    """If this fails, users are told for a moment that all their bundles are gone, when ZooKeeper
    comes back empty."""
    other, wiped = await connect(), Wiped(ZooKeeperConfig(servers=zookeeper.addresses, chroot=chroot))
    await other.ensure(paths.BUNDLES)
    await other.set(paths.CLUSTER, encode(ClusterRecord(id="c", announce_key="k")))
    await put_bundle(other, "one")
    await wiped.start(10.0)

    async def wipe() -> None:
        for name in await other.children(paths.BUNDLES) or ():
            await other.delete(f"{paths.BUNDLES}/{name}")
        await other.delete(paths.CLUSTER)

    try:
        mirror = await follow(wiped)
        shown: list[tuple[bool, int]] = []
        mirror.on_change.append(lambda: shown.append((mirror.snapshot.present, len(mirror.snapshot.bundles))))
        wiped.wipe = wipe
        await put_bundle(other, "two")
        await mirror.wait_for(lambda s: not s.present, 10.0)

        assert (True, 0) not in shown
    finally:
        await mirror.close()
        await wiped.close()


async def test_a_wait_has_a_deadline(connect: Connect, follow: Follow) -> None:
    """If this fails, a wait for something that never comes never ends."""
    mirror = await follow(await connect())
    with pytest.raises(TorrentdistError) as caught:
        await mirror.wait_for(lambda s: False, 0.05)

    assert caught.value.code == "timed_out"


async def test_what_goes_and_comes_back_at_once_is_seen(connect: Connect, follow: Follow) -> None:
    """A13: if this fails, a record that was gone for a moment is missing in the mirror for ever,
    and not watched."""
    zk, watcher = await connect(), await connect()
    mirror = await follow(watcher)
    await zk.ensure(paths.MASTERS)

    for number in range(100):
        await put_master(zk, "m1", f"{number:016x}")
        await eventually(lambda number=number: stores(mirror) == [f"{number:016x}"])  # type: ignore[misc]
        leaving = asyncio.create_task(zk.delete(paths.master(MasterId("m1"))))
        coming = asyncio.create_task(put_master(zk, "m1", f"{number + 1:016x}"))
        await asyncio.gather(leaving, coming)
        await eventually(lambda number=number: stores(mirror) == [f"{number + 1:016x}"])  # type: ignore[misc]
        await zk.delete(paths.master(MasterId("m1")))


def stores(mirror: Mirror) -> list[str]:
    return [master.store for master in mirror.snapshot.masters.values()]
