"""Many changes of records go to ZooKeeper in batches that it accepts, however large the records."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from torrentdist.cluster.session.znode_operations import (
    BATCH_BYTES,
    MAX_REQUEST_BYTES,
    Op,
    Set,
    batches,
    check_size,
    request_size,
)

MOST = 100
SIZES = st.lists(st.sampled_from([0, 100, 3000, 90_000, BATCH_BYTES, MAX_REQUEST_BYTES - 1000]), max_size=150)


def writes(sizes: list[int]) -> list[Op]:
    return [Set(f"/assignments/host-{number}", bytes(size), 1) for number, size in enumerate(sizes)]


@given(SIZES)
def test_batches_hold_everything_once_and_each_can_be_sent(sizes: list[int]) -> None:
    """Where hosts keep many bundles, no distribution, removal or placement would succeed."""
    ops = writes(sizes)
    found = list(batches(ops, MOST))

    assert ops == [op for batch in found for op in batch]
    for batch in found:
        assert 1 <= len(batch) <= MOST
        assert len(batch) == 1 or request_size(batch) <= BATCH_BYTES
        check_size(batch)


def test_three_hundred_bundles_on_a_hundred_hosts_fit() -> None:
    """A change of a hundred such assignments would be too large for ever."""
    found = list(batches(writes([300 * 34] * 100), MOST))

    assert 2 < len(found) < 5
