"""Which peer is in which swarm: the state of the directory, and the only code that changes it.

Always: an announce replaces everything that the peer said before. The records add the bundles that
a master holds, as long as it announces at all. The counters agree with the tables.
Pure: no I/O and no clock.
"""

from collections import deque
from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, TypeVar

import msgspec

from torrentdist.model.ids import Digest, PeerId
from torrentdist.model.wire.swarm_messages import HostCondition, PeerRole, SwarmAnnounce, SwarmEntry
from torrentdist.swarm.directory.directory_values import HostConditions
from torrentdist.swarm.directory.guest_counts import GuestCounts
from torrentdist.swarm.directory.peer_addresses import Hosts
from torrentdist.swarm.directory.roster import Peer
from torrentdist.swarm.directory.swarm import Swarm, plan_zone
from torrentdist.swarm.plan.zoned_crowds import NOWHERE

MAX_PROBLEM_LENGTH: Final = 300
MOST_USERS: Final = 20
MOST_MOVED: Final = 50_000
"""More changes between two looks make others look at all."""
T = TypeVar("T")


@dataclass
class Revisions:
    """Numbers by which others see whether they have to look again, and at what."""

    said: int = 0
    """Grows whenever a peer joins or leaves a swarm, or says something else of one or of its
    room."""
    states: int = 0
    """Grows whenever a peer joins or leaves a swarm, completes it, meets another problem, or has no
    room any more. It does not grow while peers get further."""
    _moved: deque[Digest | None] = field(default_factory=lambda: deque(maxlen=MOST_MOVED))
    """The swarm of each of the last changes of `states`; None: it was of no swarm."""

    def moved(self, digest: Digest | None) -> None:
        self.said += 1
        self.states += 1
        self._moved.append(digest)

    def since(self, states: int) -> set[Digest] | None:
        """Returns the swarms whose state changed since `states` was this; None: it was too long
        ago."""
        count = self.states - states
        if count > len(self._moved):
            return None
        recent = islice(reversed(self._moved), count)
        return {digest for digest in recent if digest is not None}


class Memberships:
    """All peers and all swarms. Read `peers`, `guests`, `swarms` and `hosts` freely, but change
    them only through the methods."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        """`networks`: those whose every address may connect."""
        self.peers: dict[PeerId, Peer] = {}
        self.guests = GuestCounts()
        self.swarms: dict[Digest, Swarm] = {}
        self.hosts = Hosts(networks)
        self.count = 0
        """Number of pairs of a peer and a swarm."""
        self.conditions = HostConditions()
        self.fetching = 0
        """Number of peers that lack something in a swarm that they named."""
        self.revisions = Revisions()
        self._holders: dict[Digest, frozenset[PeerId]] = {}
        self._recorded: dict[PeerId, set[Digest]] = {}

    def arrive(self, request: SwarmAnnounce, host: str, now: float, zone: str = NOWHERE, owner: str = "") -> Peer:
        """Applies a checked announce. Returns the peer. `owner`: as in `Peer`."""
        peer = self.peers.get(request.peer)
        if peer is not None and (peer.role, peer.zone, peer.owner) != (request.role, zone, owner):
            self.forget(peer.id)
            peer = None
        if peer is None:
            peer = Peer(request.peer, request.role, host, request.port, now, zone=zone, owner=owner)
            self.peers[peer.id] = peer
            self._come(peer)
            for digest in self.recorded(peer.id):
                self._fall_back(peer, digest)
        elif peer.host != host:
            self._go(peer)
            peer.host = host
            self._come(peer)
        peer.port, peer.tls_port, peer.heard_at = request.port, request.tls_port, now
        self._enter(peer, request.swarms)
        fetching = any(not peer.entries[digest].complete for digest in peer.named)
        self.fetching += fetching - peer.fetching
        peer.fetching = fetching
        self._now_is(peer.id, request.condition)
        return peer

    def forget(self, peer: PeerId) -> None:
        gone = self.peers.pop(peer, None)
        if gone is None:
            return
        for digest in list(gone.entries):
            self._leave(gone, digest)
        self.fetching -= gone.fetching
        self._now_is(peer, HostCondition())
        self._go(gone)

    def record(self, digest: Digest, holders: frozenset[PeerId]) -> None:
        """Sets the masters that hold a bundle according to the records. They need not announce it
        themselves."""
        before = self._holders.pop(digest, frozenset())
        if holders:
            self._holders[digest] = holders
        for id_ in before ^ holders:
            held = self._recorded.setdefault(id_, set())
            (held.add if id_ in holders else held.discard)(digest)
            peer = self.peers.get(id_)
            if peer is not None and digest not in peer.named:
                self._fall_back(peer, digest)

    def recorded(self, peer: PeerId) -> Set[Digest]:
        """Returns the bundles that a master holds according to the records."""
        return self._recorded.get(peer, frozenset())

    def _come(self, peer: Peer) -> None:
        self.hosts.add(peer.host)
        self.guests.came(peer)

    def _go(self, peer: Peer) -> None:
        self.hosts.drop(peer.host)
        self.guests.came(peer, -1)

    def _now_is(self, peer: PeerId, condition: HostCondition) -> None:
        known = self.conditions
        _put(known.free, peer, condition.free, -1)
        _put(known.fills_in, peer, condition.fills_in, 0.0)
        _put(known.certificate_ends_at, peer, condition.certificate_ends_at, 0.0)
        if _put(known.full, peer, condition.full[:MAX_PROBLEM_LENGTH], "") | _put(
            known.clocks, peer, condition.clock, 0.0
        ):
            self.revisions.moved(None)

    def _enter(self, peer: Peer, said: Iterable[SwarmEntry]) -> None:
        named: set[Digest] = set()
        for entry in said:
            if len(entry.problem) > MAX_PROBLEM_LENGTH:
                entry = msgspec.structs.replace(entry, problem=entry.problem[:MAX_PROBLEM_LENGTH])
            if entry.used_by:
                told = entry.used_by[:MOST_USERS] if peer.role is PeerRole.SUPERVISOR else ()
                users = [user[:MAX_PROBLEM_LENGTH] for user in told]
                entry = msgspec.structs.replace(entry, used_by=users)
            named.add(entry.digest)
            self._join(peer, entry)
        left, peer.named = peer.named - named, frozenset(named)
        for digest in left:
            self._fall_back(peer, digest)

    def _join(self, peer: Peer, entry: SwarmEntry) -> None:
        old = peer.entries.get(entry.digest)
        if old == entry:
            return
        if old is None or _shown(old) != _shown(entry):
            self.revisions.moved(entry.digest)
        else:
            self.revisions.said += 1
        peer.entries[entry.digest] = entry
        if old is None:
            self.count += 1
            self.guests.joined(peer)
        if old is None or old.complete is not entry.complete:
            self.swarms.setdefault(entry.digest, Swarm(entry.digest)).enter(peer, complete=entry.complete)
        elif entry.done > old.done:
            self.swarms[entry.digest].crowds.moved(plan_zone(peer), peer.heard_at)

    def _fall_back(self, peer: Peer, digest: Digest) -> None:
        """Applies the records to a swarm that the peer does not name."""
        if peer.role is PeerRole.MASTER and digest in self.recorded(peer.id):
            self._join(peer, SwarmEntry(digest=digest, complete=True))
        elif digest in peer.entries:
            self._leave(peer, digest)

    def _leave(self, peer: Peer, digest: Digest) -> None:
        del peer.entries[digest]
        self.count -= 1
        self.guests.joined(peer, -1)
        self.revisions.moved(digest)
        swarm = self.swarms[digest]
        swarm.leave(peer)
        if not len(swarm):
            del self.swarms[digest]


def _put(known: dict[PeerId, T], peer: PeerId, value: T, nothing: T) -> bool:
    """Notes what a peer says; `nothing` is not kept. Returns whether it said something else
    before."""
    before = known.pop(peer, nothing)
    if value != nothing:
        known[peer] = value
    return value != before


def _shown(entry: SwarmEntry) -> tuple[object, ...]:
    """Returns what a page shows of an entry besides how much has arrived."""
    return entry.complete, entry.problem, entry.used_by
