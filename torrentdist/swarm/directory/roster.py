"""The peers of one swarm, and the choice of peers to hand to a peer that asks.

Always: joining, leaving and drawing a peer cost the same, however many peers there are. The order
of a draw depends only on its seed. A draw yields no address twice, never the asker's own, and no
peer that has been silent for too long.
Never: read a clock, or know more than one swarm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from itertools import islice
from math import gcd
from typing import Final

import msgspec

from torrentdist.model.ids import Digest, PeerId
from torrentdist.model.wire.swarm_messages import PeerAddress, PeerRole, SwarmEntry
from torrentdist.swarm.plan.conductor import Progress
from torrentdist.swarm.plan.crowd import Crowd

COMPLETE_NEIGHBOURS: Final = 8
"""Complete receivers named to one of many receivers."""
HOLDERS: Final = 8
"""Holders named to one of many receivers, if it needs any."""


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
    owner: str = ""
    """The sender that may speak for it. Empty: any host of the cluster."""
    fetching: bool = False
    entries: dict[Digest, SwarmEntry] = msgspec.field(default_factory=dict)
    named: frozenset[Digest] = frozenset()
    """Swarms that the peer named in its last announce. The records add more swarms of a master."""

    def address(self, *, complete: bool) -> PeerAddress:
        return PeerAddress(host=self.host, port=self.port, role=self.role, complete=complete, tls_port=self.tls_port)


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


class Swarm:
    """The peers of one digest, masters and others, complete and incomplete, and the plan for its
    receivers."""

    def __init__(self, digest: Digest) -> None:
        self.digest = digest
        self.masters = {True: Roster(), False: Roster()}
        """Keyed by whether they are complete."""
        self.others = {True: Roster(), False: Roster()}
        self.crowd = Crowd()

    def near(self, asker: Peer, draw: Draw, seed: int, now: float) -> list[PeerAddress] | None:
        """Returns the peers that one of many receivers may dial. None if there are few receivers,
        or the asker is not one.

        They are its neighbours, a few complete receivers, and holders if it needs them.
        """
        neighbours = self.crowd.neighbours(asker.id, self.others[False].__contains__, now)
        if neighbours is None or asker.id not in self.others[False]:
            return None
        there = (self.others[False].get(peer) for peer in neighbours)
        known = list(draw.addresses((peer for peer in there if peer is not None), complete=False))
        known += islice(draw.addresses(self.others[True].drawn(seed), complete=True), COMPLETE_NEIGHBOURS)
        if self.crowd.needs_holders(asker.id, _progress(asker.entries[self.digest]).done, now):
            known += islice(draw.addresses(self.masters[True].drawn(seed), complete=True), HOLDERS)
        return known

    def is_receiver(self, peer: PeerId) -> bool:
        """Whether the peer is here and incomplete."""
        return peer in self.others[False] or peer in self.masters[False]

    def progress(self) -> dict[PeerId, Progress]:
        """Returns the progress of all receivers. Masters are receivers during an upload."""
        receivers = (*self.masters[False].drawn(0), *self.others[False].drawn(0))
        said = ((peer.id, peer.entries[self.digest]) for peer in receivers)
        return {peer: _progress(entry) for peer, entry in said}

    def roster(self, role: PeerRole, *, complete: bool) -> Roster:
        return (self.masters if role is PeerRole.MASTER else self.others)[complete]

    def count(self, *, complete: bool) -> int:
        return len(self.masters[complete]) + len(self.others[complete])

    def __len__(self) -> int:
        return self.count(complete=True) + self.count(complete=False)


def _progress(entry: SwarmEntry) -> Progress:
    """Returns how much has been fetched. What a host had before says nothing about its pace."""
    local = min(entry.local, entry.done, entry.size)
    return Progress(entry.done - local, entry.size - local)


class Draw:
    """One selection of peers. It remembers what it has yielded, across the groups that it draws
    from."""

    def __init__(self, asker: Peer | None, now: float) -> None:
        self._now = now
        self._given = {(asker.host, asker.port)} if asker else set()

    def addresses(self, peers: Iterable[Peer], *, complete: bool) -> Iterator[PeerAddress]:
        for peer in peers:
            place = (peer.host, peer.port)
            if not peer.port or peer.alive_until < self._now or place in self._given:
                continue
            self._given.add(place)
            yield peer.address(complete=complete)
