"""The peers of one digest, the plan for its receivers, and which peers each of them may dial.

Always: joining and leaving cost the same, however many peers there are. Where hosts are in several
zones, a receiver is told only of peers in its own zone and rack, and of holders if its place
fetches from them; unless its place is open.
Never: read a clock, or know another swarm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from torrentdist.model.ids import Digest, PeerId
from torrentdist.model.wire.swarm_messages import PeerAddress, PeerRole, SwarmEntry
from torrentdist.swarm.directory.roster import Draw, Peer, Roster
from torrentdist.swarm.plan import border
from torrentdist.swarm.plan.conductor import Progress
from torrentdist.swarm.plan.crowd import Crowd
from torrentdist.swarm.plan.neighbours import FULL_MESH, LIMITED_MESH
from torrentdist.swarm.plan.zoned_crowds import NOWHERE, ZonedCrowds

COMPLETE_NEIGHBOURS: Final = 8
"""Complete receivers named to one of many receivers."""
HOLDERS: Final = 8
"""Holders named to one of many receivers, if it needs any."""
MOST_SOURCES: Final = 64
"""Hosts of a zone that are considered as sources of other zones."""


class Swarm:
    """The peers of one digest, masters and others, complete and incomplete, and the plan for its
    receivers."""

    def __init__(self, digest: Digest) -> None:
        self.digest = digest
        self.masters = {True: Roster(), False: Roster()}
        """Keyed by whether they are complete."""
        self.others = {True: Roster(), False: Roster()}
        self.crowds = ZonedCrowds()
        self.is_limited = False
        """Whether its receivers keep below a rate."""
        self._complete: Counter[str] = Counter()
        """Number of complete supervisors by zone."""
        self._holders: Counter[str] = Counter()
        """Number of complete masters by zone."""

    def crowd_of(self, peer: Peer) -> Crowd:
        return self.crowds.of(plan_zone(peer))

    def feeders(self, asker: Peer) -> frozenset[str] | None:
        """Returns the places from which the asker's place fetches; none: it fetches from holders.
        None if borders do not matter to the asker: it is alone in its zone, or all hosts of the
        swarm are in one place."""
        receivers, complete = self.crowds.receivers(), +self._complete
        places = {*receivers, *complete}
        if not plan_zone(asker) or len(places) < 2:
            return None
        near = [place for place in places if border.zone_of(place) == border.zone_of(asker.zone)]
        if sum(receivers.get(place, 0) + complete[place] for place in near) < 2:
            return None
        return border.feeders(asker.zone, receivers, complete, self._holders)

    def near(self, asker: Peer, draw: Draw, seed: int, now: float) -> list[PeerAddress] | None:
        """Returns the peers that one of many receivers, or one in a zone, may dial. None if there
        are few receivers, or the asker is not one.

        They are its neighbours, a few complete receivers, and holders if it needs them.
        """
        if asker.id not in self.others[False]:
            return None
        feeders = self.feeders(asker)
        if feeders is not None and self.crowds.is_open(asker.zone, now):
            return None
        crowd = self.crowd_of(asker)
        mesh = LIMITED_MESH if self.is_limited else FULL_MESH
        neighbours = crowd.neighbours(asker.id, self.others[False].__contains__, now, mesh=mesh)
        if neighbours is None and feeders is None:
            return None
        there = map(self.others[False].get, crowd.members() if neighbours is None else neighbours)
        known = list(draw.addresses((peer for peer in there if peer is not None), complete=False))
        known += islice(
            draw.addresses(self._seeders(asker, seed, near=feeders is not None), complete=True), COMPLETE_NEIGHBOURS
        )
        if not feeders and crowd.needs_holders(asker.id, _progress(asker.entries[self.digest]).done, now):
            known += islice(draw.addresses(self._holders_for(asker, seed, feeders), complete=True), HOLDERS)
        return known

    def _holders_for(self, asker: Peer, seed: int, feeders: frozenset[str] | None) -> Iterable[Peer]:
        """Returns the holders that the asker may dial: the nearest ones if borders matter."""
        holders = list(self.masters[True].drawn(seed))
        if feeders is None:
            return holders
        rack = [peer for peer in holders if peer.zone == asker.zone]
        zone = [peer for peer in holders if border.zone_of(peer.zone) == border.zone_of(asker.zone)]
        return rack or zone or holders

    def _seeders(self, asker: Peer, seed: int, *, near: bool) -> Iterator[Peer]:
        """Yields the complete receivers that the asker may dial. `near`: those of its place."""
        if not near:
            yield from self.others[True].drawn(seed)
        elif self._complete[asker.zone]:
            yield from (peer for peer in self.others[True].drawn(seed) if plan_zone(peer) == asker.zone)

    def flows(self, asker: Peer) -> list[int]:
        """Returns the flows that the asker fetches across the border of its zone."""
        if not self.feeders(asker) or asker.id not in self.others[False]:
            return []
        crowd = self.crowd_of(asker)
        place = crowd.place(asker.id)
        return border.flows_of(place.number, place.receivers) if place else border.flows_of(0, 1)

    def source(self, flow: int, asker: Peer, attempt: int, able: Callable[[PeerId], bool]) -> PeerId | None:
        """Returns the host from which the asker fetches a flow; None: there is none that is
        `able`."""
        places = self.feeders(asker) or frozenset()
        complete = (peer.id for peer in self.others[True].drawn(0) if plan_zone(peer) in places)
        some = {*islice(filter(able, complete), MOST_SOURCES)}
        for place in places:
            there = filter(self.others[False].__contains__, self.crowds.of(place).members())
            some |= {*islice(filter(able, there), MOST_SOURCES)}
        return border.source_of(flow, asker.zone, sorted(some), attempt)

    def is_receiver(self, peer: PeerId) -> bool:
        """Whether the peer is here and incomplete."""
        return peer in self.others[False] or peer in self.masters[False]

    def progress(self, receiver: PeerId) -> Progress | None:
        """Returns the progress of a receiver, None for others. Masters are receivers during an
        upload."""
        peer = self.others[False].get(receiver) or self.masters[False].get(receiver)
        return None if peer is None else _progress(peer.entries[self.digest])

    def enter(self, peer: Peer, *, complete: bool) -> None:
        """Lists a peer as complete or as incomplete, and gives receivers a place in the plan."""
        self.leave(peer)
        self._roster(peer.role, complete=complete).add(peer)
        if complete:
            self._count(peer, 1)
            self.crowds.go(peer.id, complete=True)
        else:
            self.crowds.come(peer.id, plan_zone(peer), peer.heard_at)

    def leave(self, peer: Peer) -> None:
        complete = self._roster(peer.role, complete=True)
        if peer.id in complete:
            self._count(peer, -1)
            complete.discard(peer)
        self._roster(peer.role, complete=False).discard(peer)
        self.crowds.go(peer.id)

    def _count(self, peer: Peer, by: int) -> None:
        """Counts a complete host in its zone, or no longer. Clients do not count: no zone can fetch
        from them across its border."""
        if peer.role is PeerRole.MASTER:
            self._holders[peer.zone] += by
        elif peer.role is PeerRole.SUPERVISOR:
            self._complete[peer.zone] += by

    def _roster(self, role: PeerRole, *, complete: bool) -> Roster:
        return (self.masters if role is PeerRole.MASTER else self.others)[complete]

    def count(self, *, complete: bool) -> int:
        return len(self.masters[complete]) + len(self.others[complete])

    def __len__(self) -> int:
        return self.count(complete=True) + self.count(complete=False)


def plan_zone(peer: Peer) -> str:
    """Returns the zone in whose plan a peer is. Masters and clients are in no zone's."""
    return peer.zone if peer.role is PeerRole.SUPERVISOR else NOWHERE


def _progress(entry: SwarmEntry) -> Progress:
    """Returns how much has been fetched. What a host had before says nothing about its pace."""
    local = min(entry.local, entry.done, entry.size)
    return Progress(entry.done - local, entry.size - local)
