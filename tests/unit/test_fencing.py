"""The fencing numbers of workers."""

from __future__ import annotations

import pytest

from torrentdist.model.errors import TorrentdistError
from torrentdist.supervisor.worker.fencing_number import fencing_of

ZOOKEEPERS_EPOCH = 1 << 32


def test_they_grow_with_each_start() -> None:
    """If this fails, an outside system refuses the running worker, and obeys one that is gone."""
    starts = [
        fencing_of(3, 100, 101),
        fencing_of(3, 100, 5000),
        fencing_of(3, 100, ZOOKEEPERS_EPOCH + 7),  # ZooKeeper elected a leader meanwhile
        fencing_of(4, ZOOKEEPERS_EPOCH + 9, ZOOKEEPERS_EPOCH + 8),  # the epoch rose between the write and the look
        fencing_of(4, ZOOKEEPERS_EPOCH + 9, ZOOKEEPERS_EPOCH + 10),
        fencing_of(1004, 50, 60),  # restored into an ensemble that counts from the beginning
    ]

    assert sorted(set(starts)) == starts
    assert starts[-1] < 2**63


def test_an_epoch_that_cannot_be_counted_any_more_starts_nothing() -> None:
    """If this fails, numbers of one epoch run into those of the next."""
    with pytest.raises(TorrentdistError) as caught:
        fencing_of(1, 0, 1 << 44)

    assert "not_ready" == caught.value.code
