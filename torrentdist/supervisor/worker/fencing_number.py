"""The fencing number that a worker starts with. Pure: no I/O and no clock.

Always: a later start of a worker has a greater number, on any host, also after a restore. Within an
epoch the number grows with ZooKeeper's transactions. A restored tree, whose ensemble counts them
from the beginning, has a greater epoch than any tree before it.
"""

from __future__ import annotations

from torrentdist.model.errors import TorrentdistError

WITHIN_EPOCH_BITS = 44
"""Bits for transactions: room for 4096 elections of ZooKeeper's servers in one epoch, and for
500,000 epochs."""


def fencing_of(epoch: int, raised_at: int, zxid: int) -> int:
    """Returns the fencing number of a start.

    `raised_at` is the transaction that raised the epoch, and `zxid` one that belongs to the start.
    The epoch has to be read after the latter, through the same session.
    """
    within = max(0, zxid - raised_at)
    if within >> WITHIN_EPOCH_BITS:
        raise TorrentdistError("not_ready", detail="this epoch lasts too long: `torrentdist ha transfer` ends it")
    return (epoch << WITHIN_EPOCH_BITS) + within
