"""Counts a directory's guests and their memberships: all of them, and those of each sender and
host.

Always: a count costs the same, however many guests there are. Who has no guests takes no room.
Pure: no I/O and no clock.
"""

from collections import Counter
from typing import Final

from torrentdist.model.wire.swarm_messages import PeerRole
from torrentdist.swarm.directory.roster import Peer

GUESTS: Final = frozenset({PeerRole.CLIENT, PeerRole.STOCK})
"""Roles of peers that are no hosts of the cluster."""
EVERYBODY: Final = ""
"""The key of what all senders have together."""


def sender_of(owner: str) -> str:
    """Returns the name in an `owner` of a peer. Empty: it has none, or shares it with others."""
    return owner.rpartition("@")[0]


class GuestCounts:
    """Each counter has no key whose value is 0. Peers that are no guests are not counted."""

    def __init__(self) -> None:
        self.peers: Counter[str] = Counter()
        """By sender."""
        self.memberships: Counter[str] = Counter()
        """By sender."""
        self.at: Counter[str] = Counter()
        """Peers by host."""

    def came(self, peer: Peer, by: int = 1) -> None:
        """Counts a guest. `by` is 1 when it comes, and -1 when it goes."""
        if peer.role in GUESTS:
            _add(self.at, peer.host, by)
            for sender in {EVERYBODY, sender_of(peer.owner)}:
                _add(self.peers, sender, by)

    def joined(self, peer: Peer, by: int = 1) -> None:
        """Counts a membership. `by` is 1 when the peer joins a swarm, and -1 when it leaves."""
        if peer.role in GUESTS:
            for sender in {EVERYBODY, sender_of(peer.owner)}:
                _add(self.memberships, sender, by)


def _add(counter: Counter[str], key: str, by: int) -> None:
    counter[key] += by
    if not counter[key]:
        del counter[key]
