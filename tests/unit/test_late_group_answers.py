"""What the coordinator of a resource group makes of an answer to another request than its own."""

from __future__ import annotations

from torrentdist.cluster.paths import GroupPaths
from torrentdist.cluster.rebalance.coordinator import Coordinator, answered, proceed
from torrentdist.cluster.rebalance.group_records import Algorithm
from torrentdist.cluster.rebalance.group_requests import Content
from torrentdist.cluster.session.znode_operations import Stat

ANSWER = Content(b"", Stat(version=3, ephemeral_owner=0, mtime=0.0, created_zxid=1, modified_zxid=2))


def test_an_answer_counts_once_and_only_for_its_own_request() -> None:
    """A coordinator would take what it was told before for the state of the group, and assign
    resources by that."""
    asking = proceed(Coordinator(GroupPaths("ingest"), Algorithm.RESOURCE_BARRIER, "member-1", 2.0), 0.0)
    told = answered(asking, asking.serial, ANSWER, 0.0)

    assert asking == answered(asking, asking.serial - 1, ANSWER, 0.0)
    assert (3, None) == (told.epoch_seen, told.busy)
    assert told == answered(told, told.serial, ANSWER, 0.0)
