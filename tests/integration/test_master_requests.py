"""A change takes effect once, however often it is sent; with a real ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import msgspec
import pytest
from masters_in_process import BUNDLE, Enter, leader_with_bundle, request
from zookeeper_fixtures import SHORT, TcpProxy, eventually, eventually_async

from torrentdist.cluster import paths
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Stat
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.master.bundles.bundle_operations import BATCH
from torrentdist.master.changes.answered_requests import BUCKETS_A_ROUND, RequestTrimmer
from torrentdist.master.jobs.job_operations import NewJob, submit_ops
from torrentdist.master.policies.distribution_orders import DistributionOrder
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import JobId, RequestId, StoreId, SupervisorId
from torrentdist.model.jobs.job import JobSpec
from torrentdist.model.records import (
    RequestRecord,
    SupervisorRecord,
    decode,
    encode,
)

pytestmark = pytest.mark.anyio

KEPT_SECS = 5.0
"""The longest time in seconds that a round of trimming takes on a busy machine."""


async def test_the_next_leader_gives_the_answer_of_the_last(enter: Enter) -> None:
    """B7: without this, a retry after a failover would undo what another client did in between."""
    first = await leader_with_bundle(enter)
    second = await enter("m2")
    answer = await first.operations.set_pinned(request("r1"), BUNDLE, True)
    await first.retires()
    await second.leads()
    await second.operations.set_pinned(request("r2"), BUNDLE, False)
    before = await second.version(paths.bundle(BUNDLE))

    again = await second.operations.set_pinned(request("r1"), BUNDLE, True)

    assert answer == again
    assert before == await second.version(paths.bundle(BUNDLE)) == 2


async def test_a_commit_whose_answer_was_lost_is_made_once(enter: Enter, proxy: TcpProxy) -> None:
    """B7: without this, a removal that succeeded would be reported as a bundle that never
    existed."""
    first = await leader_with_bundle(enter, servers=[proxy.address], **SHORT)
    second = await enter("m2")
    await first.zk.ensure(
        paths.parent(paths.request(RequestId("r1")))
    )  # otherwise the change would need a second attempt
    proxy.swallow_answer_to(b'"state":"removed"')

    with pytest.raises(TorrentdistError) as caught:
        await first.operations.remove(request("r1"), BUNDLE)
    await second.leads()
    before = await second.version(paths.bundle(BUNDLE))
    again = msgspec.json.decode(await second.operations.remove(request("r1"), BUNDLE))
    after = await second.version(paths.bundle(BUNDLE))
    proxy.mend()
    proxy.drop()
    await first.zk.wait_connected(10.0)

    assert "outcome_unknown" == caught.value.code
    assert "removed" == again["state"]
    assert (1, 1) == (before, after)


async def test_an_id_stands_for_one_content(enter: Enter) -> None:
    """B7: without this, a client that reuses ids would be told that something was done which was
    not."""
    master = await leader_with_bundle(enter)
    await master.operations.set_pinned(request("r1"), BUNDLE, True)

    with pytest.raises(TorrentdistError) as caught:
        await master.operations.set_pinned(request("r1", b"other"), BUNDLE, False)

    assert ("request_reused", 9) == (caught.value.code, caught.value.exit_code)
    assert await master.version(paths.bundle(BUNDLE)) == 1


async def test_attempts_at_the_same_time_are_one(enter: Enter) -> None:
    """B7: without this, an impatient client's second attempt would be told that the bundle is
    gone."""
    master = await leader_with_bundle(enter)

    answers = await asyncio.gather(*(master.operations.remove(request("r1"), BUNDLE) for _ in range(8)))

    assert len(set(answers)) == 1
    assert await master.version(paths.bundle(BUNDLE)) == 1


async def test_a_refusal_is_not_remembered(enter: Enter) -> None:
    """Without this, a change that has become possible would stay refused when it is retried."""
    master = await leader_with_bundle(enter)
    await master.operations.set_pinned(None, BUNDLE, True)
    with pytest.raises(TorrentdistError) as caught:
        await master.operations.remove(request("r1"), BUNDLE)
    await master.operations.set_pinned(None, BUNDLE, False)

    removed = msgspec.json.decode(await master.operations.remove(request("r1"), BUNDLE))

    assert "in_use" == caught.value.code
    assert "removed" == removed["state"]


async def test_without_an_id_nothing_is_kept(enter: Enter) -> None:
    """Without this, every curl would leave a record behind."""
    master = await leader_with_bundle(enter)

    await master.operations.set_pinned(None, BUNDLE, True)

    assert set() == await remembered(master.zk)


async def test_a_distribution_in_batches_is_claimed_by_the_first(enter: Enter) -> None:
    """B7: without this, half a distribution would be forgotten, or its retry would have other
    content."""
    master = await leader_with_bundle(enter)
    fleet = [SupervisorId(f"s{n:03}") for n in range(BATCH + 20)]
    await asyncio.gather(*(put_supervisor(master.zk, id_) for id_ in fleet))
    await master.mirror.wait_for(lambda s: len(s.supervisors) == len(fleet), 10.0)
    path = paths.request(RequestId("r1"))
    answer = await master.distributions.begin(request("r1"), DistributionOrder(BUNDLE), assigned)
    again = await master.distributions.begin(request("r1"), DistributionOrder(BUNDLE), assigned)
    found = await master.zk.get(path)
    assert found is not None

    assert sorted(fleet) == msgspec.json.decode(answer)
    assert answer == again
    assert decode(found[0], RequestRecord, path=path).status == 200
    assert found[1].version == 1  # claimed, then answered
    assert {1} == {a.record.generation for a in master.mirror.snapshot.assignments.values()}


async def test_a_removal_from_a_large_fleet_is_made_in_batches(enter: Enter) -> None:
    """B7: without this, a bundle that many hosts keep could never be removed, because one
    transaction for all is too large."""
    master = await leader_with_bundle(enter)
    fleet = [SupervisorId(f"s{n:03}") for n in range(BATCH + 20)]
    await asyncio.gather(*(put_supervisor(master.zk, id_) for id_ in fleet))
    await master.mirror.wait_for(lambda s: len(s.supervisors) == len(fleet), 10.0)
    await master.distributions.begin(request("r1"), DistributionOrder(BUNDLE), assigned)
    answer = await master.operations.remove(request("r2"), BUNDLE)
    again = await master.operations.remove(request("r2"), BUNDLE)
    path = paths.request(RequestId("r2"))
    found = await master.zk.get(path)
    assert found is not None
    named = [a.record.bundles for a in master.mirror.snapshot.assignments.values()]

    assert ("removed", answer) == (msgspec.json.decode(answer)["state"], again)
    assert [()] * len(fleet) == named
    assert found[1].version == 1  # claimed, then answered


async def test_the_next_leader_goes_on_with_a_claim(enter: Enter) -> None:
    """B7: without this, a distribution whose leader died between two batches could never be
    finished under its id.
    """
    master = await leader_with_bundle(enter)
    await put_supervisor(master.zk, SupervisorId("s1"))
    await master.mirror.wait_for(lambda s: len(s.supervisors) == 1, 10.0)
    path = paths.request(RequestId("r1"))
    await master.zk.ensure(paths.parent(path))
    await master.zk.create(path, encode(RequestRecord(content=request("r1").content)))

    answer = await master.distributions.begin(request("r1"), DistributionOrder(BUNDLE), assigned)
    found = await master.zk.get(path)
    assert found is not None

    assert ["s1"] == msgspec.json.decode(answer)
    assert decode(found[0], RequestRecord, path=path).body.encode() == answer


async def put_supervisor(zk: ZooKeeper, id_: SupervisorId) -> None:
    record = SupervisorRecord(id=id_, host="h", gateway="", swarm_port=1, store=StoreId("s"), version="0")
    await zk.create(paths.supervisor(id_), encode(record))


def assigned(snapshot: ClusterSnapshot) -> list[SupervisorId]:
    return sorted(id_ for id_, entry in snapshot.assignments.items() if BUNDLE in entry.record.bundles)


# forgetting


async def remember(zk: ZooKeeper, *names: str) -> None:
    for name in names:
        path = paths.request(RequestId(name))
        await zk.ensure(paths.parent(path))
        await zk.create(path, encode(RequestRecord(content="x", status=200)))


async def remembered(zk: ZooKeeper) -> set[str]:
    buckets = await zk.children(paths.REQUESTS) or []
    lists = await asyncio.gather(*(zk.children(paths.request_bucket(bucket)) for bucket in buckets))
    return {name for names in lists for name in names or ()}


async def written_at(zk: ZooKeeper, name: str) -> float:
    stat = await zk.exists(paths.request(RequestId(name)))
    assert isinstance(stat, Stat)
    return stat.mtime


async def test_old_requests_are_forgotten_and_young_ones_kept(enter: Enter) -> None:
    """B7: without this, ZooKeeper would fill up, or a retry within the stated time would run
    again."""
    master = await leader_with_bundle(enter)
    old, young = [f"old-{n}" for n in range(40)], [f"young-{n}" for n in range(5)]
    await remember(master.zk, *old)
    last = await written_at(master.zk, old[-1])
    await eventually(lambda: (master.zk.server_now() or 0.0) > last + KEPT_SECS)
    await remember(master.zk, *young)
    trimmer = RequestTrimmer(master.zk, keep_secs=KEPT_SECS)

    for _ in range(256 // BUCKETS_A_ROUND + 1):
        for name in young:  # they stay young on a busy machine too
            await master.zk.set(paths.request(RequestId(name)), encode(RequestRecord(content="x", status=200)))
        await trimmer.trim(master.leadership.fence())

    assert set(young) == await remembered(master.zk)


async def test_a_bundle_is_not_removed_while_a_job_is_submitted_that_needs_it(enter: Enter) -> None:
    """A28: without this, a job would wait for ever for a bundle whose removal was decided in the
    same instant, or two jobs would share a name.
    """
    master = await leader_with_bundle(enter)
    await master.zk.ensure(paths.JOBS)
    spec = JobSpec(name="job", command=("true",))

    def submit(id_: str) -> Awaitable[bytes]:
        return master.changes.make_alone(
            None, lambda s: submit_ops(s, NewJob(JobId(id_), BUNDLE, spec), 1.0), lambda s: id_
        )

    ended = await asyncio.gather(
        submit("one"), submit("two"), master.operations.remove(None, BUNDLE), return_exceptions=True
    )
    refused = [error.code for error in ended if isinstance(error, TorrentdistError)]

    assert ["job_exists", "in_use"] == refused


async def test_every_bucket_is_there_before_the_first_request(enter: Enter) -> None:
    """B7: without this, the first change of each bucket fails once and costs another round trip."""
    first = await leader_with_bundle(enter)
    await eventually_async(lambda: has_all_buckets(first.zk))
    await first.zk.delete(paths.request_bucket("7f"))
    second = await enter("m2")
    await first.retires()
    await second.leads()

    await eventually_async(lambda: has_all_buckets(second.zk))


async def has_all_buckets(zk: ZooKeeper) -> bool:
    return {paths.name(bucket) for bucket in paths.request_buckets()} == set(await zk.children(paths.REQUESTS) or ())
