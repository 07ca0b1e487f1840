"""What is decided about one record never walks over all of them."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NoReturn

import msgspec
import pytest
from records_of import bundle, digest_of, job, snapshot, store_of, supervisor

from torrentdist.cluster.records.record_index import RecordIndex
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Set
from torrentdist.master.bundles.bundle_operations import removal_ops
from torrentdist.master.changes.predicted_records import predicted
from torrentdist.master.policies.distribution_changes import tell_ops
from torrentdist.master.presence.attention_sight import AttentionSight
from torrentdist.master.replication.replication_plan import Abandon, DropReplica, Local, WithdrawReplica, plan
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, MasterId, SupervisorId
from torrentdist.model.policies.distribution_record import DistributionRecord
from torrentdist.model.records import BundleState
from torrentdist.swarm.directory.directory import SwarmDirectory

A, B, ME = BundleId("a"), BundleId("b"), MasterId("m1")

pytestmark = pytest.mark.case("G11")


class Records(dict[Any, Any]):
    """Records that may be looked up, and not be walked over."""

    def _refuse(self) -> NoReturn:
        raise AssertionError("walked over all records")

    def __iter__(self) -> Iterator[Any]:
        self._refuse()

    def values(self) -> Any:
        self._refuse()

    def items(self) -> Any:
        self._refuse()


class Counted(Records):
    """Records that count how often they are copied."""

    copies = 0

    def keys(self) -> Any:
        self.copies += 1
        return super().keys()


def unwalkable(seen: ClusterSnapshot) -> tuple[ClusterSnapshot, RecordIndex]:
    """The same snapshot with records that refuse a walk, and an index of it."""
    index = RecordIndex.of(seen)
    refusing = msgspec.structs.replace(
        seen, bundles=Records(seen.bundles), jobs=Records(seen.jobs), assignments=Records(seen.assignments)
    )
    return refusing, index


def test_a_removal_asks_who_needs_its_bundle() -> None:
    """If this fails, every removal walks over all jobs and the assignments of all hosts."""
    free, index = unwalkable(
        snapshot([bundle("a"), bundle("b")], jobs=[job("etl", ["b"])], assigned={"s1": ["a"], "s2": ["b"]})
    )
    paths = [op.path for op in removal_ops(free, A, index)]
    with pytest.raises(TorrentdistError) as used:
        removal_ops(free, B, index)

    assert ["/assignments/s1", "/code-distributor/a"] == paths
    assert "in_use" == used.value.code


def test_a_master_drops_content_without_a_look_at_all_bundles() -> None:
    """If this fails, every removal makes every master walk over all bundles; or the content of a
    bundle that lives goes with another one."""
    removed = [bundle(name, content=content, state=BundleState.REMOVED) for name, content in (("a", "a"), ("b", "c"))]
    seen, index = unwalkable(snapshot([*removed, bundle("c", content="c", holders=["m1"])], masters=["m1"]))
    mine = Local(
        me=ME,
        store=store_of(ME),
        published=frozenset({digest_of("a"), digest_of("c")}),
        arriving=frozenset({digest_of("gone")}),
        fetching=frozenset(),
        stale=frozenset({digest_of("gone"), digest_of("c")}),
    )
    actions = plan(seen, mine, 0.0, [A, B], index)

    assert [Abandon(digest_of("gone")), DropReplica(digest_of("a"))] == [
        action for action in actions if not isinstance(action, WithdrawReplica)
    ]


def test_a_prediction_leaves_what_is_not_written_as_it_is() -> None:
    """If this fails, every answer to a change copies all records."""
    seen = snapshot([bundle("a")], jobs=[job("etl", ["b"])], supervisors=[supervisor("s1")], assigned={"s1": ["b"]})
    ops = [op for op in removal_ops(seen, A) if isinstance(op, Set)]
    guess = predicted(seen, ops)

    assert BundleState.REMOVED is guess.bundles[A].record.state
    assert guess.jobs is seen.jobs
    assert guess.assignments is seen.assignments


def test_a_prediction_copies_what_is_written_once() -> None:
    """If this fails, a distribution to 5,000 hosts copies the assignments of all hosts 5,000 times
    while everybody else waits."""
    hosts = [f"s{number}" for number in range(20)]
    seen = snapshot(supervisors=map(supervisor, hosts), assigned={host: ["a"] for host in hosts})
    ops = tell_ops(seen, DistributionRecord(bundle=B), map(SupervisorId, hosts))
    told = Counted(seen.assignments)
    guess = predicted(msgspec.structs.replace(seen, assignments=told), ops)

    assert {(A, B)} == {entry.record.bundles for entry in guess.assignments.values()}
    assert 1 == told.copies


def test_a_scrape_walks_over_no_bundles() -> None:
    """With 20,000 bundles, each scrape and each look at the Overview would hold up all requests for
    a quarter of a second."""
    seen = snapshot(
        [bundle(name) for name in "abc"], masters=["m1"], supervisors=[supervisor("h")], assigned={"h": "a"}
    )
    refusing = msgspec.structs.replace(seen, bundles=Records(seen.bundles), assignments=Records(seen.assignments))
    said: Any = SimpleNamespace(
        snapshot=lambda: refusing, server_now=lambda: 0.0, stale_secs=lambda: None, lacks_cluster=lambda: False
    )
    leads: Any = SimpleNamespace(leader_id=lambda: ME, me=ME, elections=SimpleNamespace(recent=[]))
    heard: Any = SimpleNamespace(silent_secs=lambda _: None, recent=dict, restart_loops=list)
    swarms: Any = SimpleNamespace(directory=SwarmDirectory(), held=lambda _: None)
    sight = AttentionSight(said, leads, heard, swarms, said)
    said.snapshot = lambda: seen
    counted = sight.outline(seen).bundles
    said.snapshot = lambda: refusing

    assert (3, 3) == (counted.total, counted.under_replicated)
    assert counted == sight.outline(refusing).bundles
    assert ["a"] == [line.bundle for line in sight.distributions(refusing)]
