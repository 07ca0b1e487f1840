"""The leader's notice of removals, with a real ZooKeeper and many hosts that watch it."""

import asyncio
import time
from collections.abc import AsyncIterator

import msgspec
import pytest
from masters_in_process import Enter, InProcess
from records_of import digest_of
from zookeeper_fixtures import Connect, eventually_async

from torrentdist.cluster import paths
from torrentdist.cluster.election.fence import Fence
from torrentdist.cluster.election.term import Term
from torrentdist.cluster.records.mirror import Mirror, of_supervisor
from torrentdist.cluster.records.snapshot import BundleEntry, Changes, ClusterSnapshot
from torrentdist.master.changes import removal_notice
from torrentdist.master.changes.removal_notice import NOTICE_SCHEMA, RemovalNotice
from torrentdist.model.errors import TorrentdistError, required
from torrentdist.model.ids import BundleId, SupervisorId
from torrentdist.model.records import BundleRecord, BundleState, decode, encode
from torrentdist.model.removals import RemovalsRecord, removal_mark

pytestmark = pytest.mark.anyio

HOSTS = 100
CLIENTS = 5


def bundle(name: str, state: BundleState) -> BundleRecord:
    return BundleRecord(
        id=BundleId(name), digest=digest_of(name), size=1, files=1, state=state, min_replicas=1, created_at=0.0
    )


async def put(leader: InProcess, name: str, state: BundleState) -> None:
    path = paths.bundle(BundleId(name))
    if await leader.zk.exists(path) is None:
        await leader.zk.create(path, encode(bundle(name, state)))
    else:
        await leader.zk.set(path, encode(bundle(name, state)))


def mark_of(name: str) -> str:
    return removal_mark(BundleId(name), digest_of(name))


@pytest.fixture
async def host(connect: Connect) -> AsyncIterator[Mirror]:
    """What a supervisor reads of ZooKeeper."""
    mirror = Mirror(await connect(), of_supervisor(SupervisorId("h1")))
    await mirror.start(10.0)
    yield mirror
    await mirror.close()


async def test_a_hundred_hosts_hear_of_a_removal_at_once(enter: Enter, connect: Connect) -> None:
    """If this fails, a host goes on giving out what was removed until its next announce."""
    leader, zks = await enter("m1"), [await connect() for _ in range(CLIENTS)]
    await leader.leads()
    mirrors = [Mirror(zks[n % CLIENTS], of_supervisor(SupervisorId(f"h{n}"))) for n in range(HOSTS)]
    await asyncio.gather(*(mirror.start(10.0) for mirror in mirrors))
    await put(leader, "etl", BundleState.AVAILABLE)
    began = time.monotonic()
    await put(leader, "etl", BundleState.REMOVED)
    heard = [mirror.wait_for(lambda s: mark_of("etl") in s.removals, 5.0) for mirror in mirrors]
    await asyncio.gather(*heard)
    took = time.monotonic() - began
    for mirror in mirrors:
        await mirror.close()

    assert took < 5.0, "only: not for ever; the figure is in docs/distribution.md"


async def test_a_notice_that_is_not_written_yet_is_no_damage(enter: Enter, host: Mirror) -> None:
    """If this fails, each host of a new cluster warns of a damaged record."""
    leader = await enter("m1")
    await leader.zk.ensure(paths.REMOVALS)
    snapshot = await host.sync(5.0)

    assert ((), frozenset()) == (snapshot.removals, snapshot.damaged)


async def test_what_is_uploaded_again_leaves_the_notice(enter: Enter, host: Mirror) -> None:
    """If this fails, a host forgets a bundle that it has fetched again."""
    leader = await enter("m1")
    await leader.leads()
    for name in ("etl", "other"):
        await put(leader, name, BundleState.REMOVED)
    await host.wait_for(lambda s: {*s.removals} == {mark_of("etl"), mark_of("other")}, 10.0)
    await put(leader, "etl", BundleState.UPLOADING)

    await host.wait_for(lambda s: s.removals == (mark_of("other"),), 10.0)


async def test_a_new_leader_names_the_newest(enter: Enter, host: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a removal is told to nobody when the leader dies right after it, or the notice
    grows with the number of removals."""
    monkeypatch.setattr(removal_notice, "MOST_MARKS", 3)
    first = await enter("m1")
    await first.leads()
    await first.retires()
    await host.wait_for(lambda s: s.removals == (), 10.0)
    second = await enter("m2")
    for number in range(5):
        await put(second, f"etl-{number}", BundleState.REMOVED)
    await second.leads()

    await host.wait_for(lambda s: {*s.removals} == {mark_of(f"etl-{number}") for number in (2, 3, 4)}, 10.0)


async def test_there_is_no_notice_before_every_daemon_knows_it(enter: Enter, host: Mirror, connect: Connect) -> None:
    """If this fails, a master of the last release that starts again during a rolling upgrade finds
    an ACL that it does not know, and ends; or removals of that time are told to nobody."""
    zk = await connect()
    record = required(host.snapshot.cluster, "not_ready")

    async def use(schema: int) -> None:
        await zk.set(paths.CLUSTER, msgspec.json.encode(msgspec.structs.replace(record, schema=schema)))

    await use(NOTICE_SCHEMA - 1)
    leader = await enter("m1")
    await put(leader, "etl", BundleState.REMOVED)
    await leader.leads()

    async def has_begun() -> bool:
        return bool(await zk.children(paths.REQUESTS))

    await eventually_async(has_begun)
    await asyncio.sleep(0.5)
    before = await zk.exists(paths.REMOVALS)
    await use(NOTICE_SCHEMA)

    await host.wait_for(lambda s: s.removals == (mark_of("etl"),), 10.0)
    assert before is None


async def test_a_notice_whose_write_failed_is_written_although_nothing_is_new(connect: Connect) -> None:
    """If this fails, no host hears of a removal that came as ZooKeeper was away."""
    zk, election, is_leader = await connect(), "/m1-waits", [True]
    for path in (paths.EPOCH, paths.REMOVALS, election):
        await zk.ensure(path)
    fence = Fence(zk, Term(0, election, 1), lambda: is_leader[0])
    old, new = BundleId("old"), BundleId("new")
    entries = {name: BundleEntry(bundle(name, BundleState.REMOVED), 0, 0.0) for name in (old, new)}
    snapshot, notice = ClusterSnapshot(bundles=entries), RemovalNotice()
    await notice.tell(snapshot, None, {old}, fence)
    is_leader[0] = False
    with pytest.raises(TorrentdistError, match="leader"):
        await notice.tell(snapshot, Changes(bundles=frozenset({new})), {old, new}, fence)
    is_leader[0] = True
    await notice.tell(snapshot, Changes(), {old, new}, fence)
    written = decode(required(await zk.get(paths.REMOVALS), "not_ready")[0], RemovalsRecord, path=paths.REMOVALS)

    assert {mark_of("old"), mark_of("new")} == {*written.marks}
