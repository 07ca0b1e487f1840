"""Lists of peers, and the choice of peers to hand to a peer that asks.

Always: joining, leaving and drawing a peer cost the same, however many peers there are. The order
of a draw depends only on its seed. A draw yields no address twice, never the asker's own, and no
peer that has been silent for too long.
Never: read a clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from math import gcd

import msgspec

from torrentdist.model.ids import Digest, PeerId
from torrentdist.model.wire.swarm_messages import PeerAddress, PeerRole, SwarmEntry
from torrentdist.swarm.plan import border
from torrentdist.swarm.plan.zoned_crowds import NOWHERE


class Peer(msgspec.Struct, eq=False):
    """A peer as the directory knows it."""

    id: PeerId
    role: PeerRole
    host: str
    port: int
    heard_at: float
    tls_port: int = 0
    period: float = 0.0
    """Seconds until its next announce is due."""
    alive_until: float = 0.0
    zone: str = NOWHERE
    """Where its host is: a zone, or a rack of one, as in border.py. Clients are nowhere."""
    owner: str = ""
    """The sender that may speak for it. Empty: any host of the cluster."""
    fetching: bool = False
    entries: dict[Digest, SwarmEntry] = msgspec.field(default_factory=dict)
    named: frozenset[Digest] = frozenset()
    """Swarms that the peer named in its last announce. The records add more swarms of a master."""

    def address(self, *, complete: bool, outside: bool = False) -> PeerAddress:
        return PeerAddress(
            host=self.host, port=self.port, role=self.role, complete=complete, outside=outside, tls_port=self.tls_port
        )


class Roster:
    """Peers in no particular order, each at most once."""

    def __init__(self) -> None:
        self._order: list[Peer] = []
        self._place: dict[PeerId, int] = {}

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, peer: PeerId) -> bool:
        return peer in self._place

    def has_all(self, peers: Set[PeerId]) -> bool:
        return peers <= self._place.keys()

    def add(self, peer: Peer) -> None:
        if peer.id not in self._place:
            self._place[peer.id] = len(self._order)
            self._order.append(peer)

    def get(self, peer: PeerId) -> Peer | None:
        place = self._place.get(peer)
        return None if place is None else self._order[place]

    def discard(self, peer: Peer) -> None:
        place = self._place.pop(peer.id, None)
        if place is None:
            return
        last = self._order.pop()
        if last is not peer:
            self._order[place] = last
            self._place[last.id] = place

    def drawn(self, seed: int) -> Iterator[Peer]:
        """Yields all peers once, in an order that depends on the seed.

        It strides around a circle, so that nothing has to be sorted.
        """
        size = len(self._order)
        if not size:
            return
        start, step = seed % size, 1 + (seed >> 32) % size
        while gcd(step, size) != 1:
            step += 1
        for turn in range(size):
            yield self._order[(start + turn * step) % size]


class Draw:
    """One selection of peers. It remembers what it has yielded, across the groups that it draws
    from."""

    def __init__(self, asker: Peer | None, now: float) -> None:
        self._now = now
        self._zone = border.zone_of(asker.zone) if asker else NOWHERE
        self._given = {(asker.host, asker.port)} if asker else set()

    def addresses(self, peers: Iterable[Peer], *, complete: bool) -> Iterator[PeerAddress]:
        for peer in peers:
            place = (peer.host, peer.port)
            if not peer.port or peer.alive_until < self._now or place in self._given:
                continue
            self._given.add(place)
            zone = border.zone_of(peer.zone)
            outside = NOWHERE not in (self._zone, zone) and zone != self._zone
            yield peer.address(complete=complete, outside=outside)
