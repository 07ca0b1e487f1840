"""Computes the fencing number of a worker's start.
Pure: no I/O and no clock.

Always: a later start of a worker has a greater number, on any host, even after a restore. Within
one epoch the number grows with ZooKeeper's zxid. A restored tree, whose ensemble starts its zxids
anew, has a greater epoch than any tree before it.
"""

from torrentdist.model.errors import TorrentdistError

WITHIN_EPOCH_BITS = 44
"""Bits for the zxid within an epoch: room for 4096 elections of ZooKeeper's own leader per epoch,
and for 500,000 epochs."""


def fencing_of(epoch: int, raised_at: int, zxid: int) -> int:
    """Returns the fencing number of a start.

    `raised_at` is the zxid of the transaction that raised the epoch, and `zxid` that of a
    transaction of this start. Read the epoch after the latter, through the same session.
    """
    within = max(0, zxid - raised_at)
    if within >> WITHIN_EPOCH_BITS:
        raise TorrentdistError(
            "not_ready", detail="this epoch has lasted too long: end it with `torrentdist ha transfer`"
        )
    return (epoch << WITHIN_EPOCH_BITS) + within
