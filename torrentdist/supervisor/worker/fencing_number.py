"""The number that a worker is started with: greater with each start of it anywhere, also after a restore. Pure.

Always holds: a later start has a greater number. Within an epoch ZooKeeper's transactions are counted; a restored tree,
whose ensemble counts from the beginning, has a greater epoch than any before it.
"""

from __future__ import annotations

from torrentdist.model.errors import TorrentdistError

WITHIN_EPOCH_BITS = 44
"""4096 elections of ZooKeeper's servers within one epoch; what is left of 63 bits is enough for 500,000 epochs."""


def fencing_of(epoch: int, raised_at: int, zxid: int) -> int:
    """`raised_at`: the transaction that raised the epoch; `zxid`: one of the start itself. The epoch has to be read
    after that one, through the same session."""
    within = max(0, zxid - raised_at)
    if within >> WITHIN_EPOCH_BITS:
        raise TorrentdistError("not_ready", detail="this epoch lasts too long: `torrentdist ha transfer` ends it")
    return (epoch << WITHIN_EPOCH_BITS) + within
