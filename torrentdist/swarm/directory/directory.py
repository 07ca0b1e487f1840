"""Tells peers which others are in their swarms. Each master keeps this soft state, and the peers
refill it by themselves.

Always: a peer that is silent for two of its own intervals is no longer handed out. A peer is never
handed out to itself. A refused announce changes nothing.
Pure: no I/O and no clock. Seemingly random choices are functions of ids and time.
Longer than most files: announces and answers share one state.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from itertools import chain, islice
from types import MappingProxyType

import msgspec

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest, PeerId
from torrentdist.model.swarm_place import SwarmPlace
from torrentdist.model.wire.swarm_messages import (
    PeerAddress,
    PeerRole,
    SwarmAnnounce,
    SwarmAnswer,
    SwarmEntry,
    SwarmPeers,
)
from torrentdist.swarm.directory.admission import Admission, Limits
from torrentdist.swarm.directory.directory_values import (
    DirectoryStatistics,
    HeldBundles,
    Periods,
    SwarmCounts,
    SwarmFacts,
    SwarmMember,
    no_facts,
)
from torrentdist.swarm.directory.memberships import MAX_PROBLEM_LENGTH, Memberships
from torrentdist.swarm.directory.peer_addresses import address_of
from torrentdist.swarm.directory.roster import Draw, Peer
from torrentdist.swarm.plan.crowd import Crowd
from torrentdist.swarm.plan.zoned_crowds import NOWHERE

__all__ = ["MAX_PROBLEM_LENGTH", "Limits", "Periods", "SwarmDirectory", "SwarmFacts", "SwarmMember", "no_facts"]

SHUT_OUT_SECS = 300.0
"""How long peers are told of an address that was shut out. They keep what nobody names any more for
two minutes, and announce several times in this time."""
FULLY_ANSWERED = 256
"""Swarms of one announce that cost time, because the peer lacks something there, and of which the
answer tells its place and peers. A host fetches fewer bundles at a time, and names these first. Of
those that it has failed to fetch there may be thousands."""
SEEDER_SPREAD = 0.2
"""Idle seeders announce after 80 to 100 % of their interval, each at a fixed point of that
range."""


class SwarmDirectory:
    """The directory of one master. Call `expire` every second or so; handing out peers never waits
    for it."""

    def __init__(
        self,
        *,
        own_host: str = "",
        periods: Periods | None = None,
        limits: Limits | None = None,
        place_of: Callable[[PeerId], str] = lambda _: NOWHERE,
        networks: Iterable[str] = (),
    ) -> None:
        """`own_host` is the address at which others reach this host, for peers that connect over
        loopback. `networks`: those whose every address may connect."""
        self._periods = periods or Periods()
        self._place_of = place_of
        self._limits = limits or Limits()
        self._members = Memberships(networks)
        self.revisions = self._members.revisions
        self.conditions = self._members.conditions
        self._admission = Admission(self._members, self._limits, own_host=own_host, expire=self.expire)
        self._shut_out: dict[str, float] = {}
        """When each of these addresses was shut out, as this master saw it."""
        self._announces = 0
        self._refused = 0
        self._expired = 0

    # announces

    def announce(
        self,
        request: SwarmAnnounce,
        *,
        source_host: str,
        now: float,
        owner: str = "",
        facts: Callable[[Digest], SwarmFacts] = no_facts,
        masters: Sequence[str] = (),
        registered_hosts: Iterable[str] = (),
    ) -> SwarmAnswer:
        """Applies a peer's announce, and returns the peers that it may dial in its swarms."""
        host, interval = self.hear(request, source_host=source_host, now=now, owner=owner)
        swarms: dict[Digest, SwarmPeers] = {}
        costly = 0
        for entry in () if request.left else request.swarms:
            known = facts(entry.digest)
            said = _by_records(known)
            is_costly = not entry.complete or request.role is PeerRole.CLIENT
            costly += is_costly
            if is_costly and costly <= FULLY_ANSWERED:
                said = self._with_peers(said, entry, request, known, now)
                if not self._is_settled(entry, request, now):
                    interval = max(
                        self._periods.unsettled_secs, self._members.fetching / self._periods.fetching_per_sec
                    )
            swarms[entry.digest] = said
        for digest in request.stored if request.role is PeerRole.SUPERVISOR and not request.left else ():
            swarms.setdefault(digest, _by_records(facts(digest)))
        allowed = self._members.hosts.addresses(frozenset(registered_hosts), now, ranges=request.ranges)
        return SwarmAnswer(
            interval=interval,
            you=host,
            swarms=swarms,
            addresses=allowed.addresses,
            addresses_tag=allowed.tag,
            shut_out=[address for address, at in self._shut_out.items() if now - at <= SHUT_OUT_SECS],
            masters=list(masters),
        )

    def _with_peers(
        self, said: SwarmPeers, entry: SwarmEntry, request: SwarmAnnounce, known: SwarmFacts, now: float
    ) -> SwarmPeers:
        """Adds the peers that the sender may dial, and its place in the plan."""
        place = self.place(entry.digest, request.peer, known, now)
        peers = [] if known.removed else self._to_dial(entry, request.peer, request.role, now)
        return msgspec.structs.replace(said, peers=peers, place=place, flows=self._flows(entry, request.peer))

    def _is_settled(self, entry: SwarmEntry, request: SwarmAnnounce, now: float) -> bool:
        """Whether the sender's place in a swarm is unlikely to change, or it has none."""
        if entry.complete or request.role is PeerRole.STOCK:
            return True
        return self._crowd(entry.digest, request.peer).is_settled(request.peer, now)

    def hear(self, request: SwarmAnnounce, *, source_host: str, now: float, owner: str = "") -> tuple[str, float]:
        """Applies an announce. Returns the peer's host, and the seconds until its next announce."""
        try:
            self._admission.check_owner(request.peer, owner, now)
            host = self._admission.check(request, source_host, now, owner)
        except TorrentdistError:
            self._refused += 1
            raise
        self._announces += 1
        if request.left:
            self.forget(request.peer)
            return host, self._periods.seeding_secs
        peer = self._members.arrive(request, host, now, self._place_of(request.peer), owner)
        peer.period = self._period_of(peer)
        peer.alive_until = now + 2 * peer.period + self._periods.grace_secs
        return host, peer.period

    def forget(self, peer: PeerId) -> None:
        self._members.forget(peer)

    def record(self, digest: Digest, holders: frozenset[PeerId]) -> None:
        """Sets the masters that hold a bundle according to the records.

        They are in its swarm as long as they announce at all, and need not name it. If they do name
        it, their own statement takes precedence.
        """
        self._members.record(digest, holders)

    def recorded(self, peer: PeerId) -> Set[Digest]:
        """Returns the bundles that a master holds according to the records."""
        return self._members.recorded(peer)

    def expire(self, now: float) -> list[PeerId]:
        """Forgets the peers that have been silent for too long. Returns their ids."""
        gone = [peer.id for peer in self._members.peers.values() if peer.alive_until < now]
        for peer in gone:
            self.forget(peer)
        self._expired += len(gone)
        return gone

    # answers

    def handout(self, digest: Digest, asker: PeerId, *, now: float, wanted: int | None = None) -> list[PeerAddress]:
        """Returns the peers that an incomplete peer may dial: some holders among the masters, then
        complete and incomplete others.

        No address appears twice, and different askers get different peers.
        """
        swarm = self._members.swarms.get(digest)
        room = self._limits.handout if wanted is None else max(0, min(wanted, self._limits.handout))
        if swarm is None or not room:
            return []
        seed = self._seed(digest, asker, now)
        draw = Draw(self._members.peers.get(asker), now)
        masters = draw.addresses(swarm.masters[True].drawn(seed), complete=True)
        complete = draw.addresses(swarm.others[True].drawn(seed), complete=True)
        lacking = chain(swarm.masters[False].drawn(seed), swarm.others[False].drawn(seed))
        incomplete = draw.addresses(lacking, complete=False)
        chosen = list(islice(masters, max(1, room // 4)))
        chosen += islice(complete, (room - len(chosen) + 1) // 2)
        for rest in (incomplete, complete, masters):
            chosen += islice(rest, room - len(chosen))
        return chosen

    def lacking(self, digest: Digest, asker: PeerId, *, now: float, wanted: int | None = None) -> list[PeerAddress]:
        """Returns the incomplete peers, masters first, that a complete peer could dial in order to
        give them pieces."""
        swarm = self._members.swarms.get(digest)
        room = self._limits.handout if wanted is None else max(0, min(wanted, self._limits.handout))
        if swarm is None or not room:
            return []
        seed = self._seed(digest, asker, now)
        peers = chain(swarm.masters[False].drawn(seed), swarm.others[False].drawn(seed))
        return list(islice(Draw(self._members.peers.get(asker), now).addresses(peers, complete=False), room))

    def place(self, digest: Digest, asker: PeerId, facts: SwarmFacts, now: float) -> SwarmPlace | None:
        """Returns the asker's place in the conductor's plan. None if it lacks nothing, or there is
        no other receiver to share with."""
        swarm = self._members.swarms.get(digest)
        if swarm is None or not swarm.is_receiver(asker):
            return None
        swarm.crowds.expect(facts.expected, self._place_of, swarm.others[True].__contains__)
        swarm.is_limited = facts.limited
        crowd = self._crowd(digest, asker)
        crowd.judge(swarm.progress, now)
        place = crowd.place(asker)
        return SwarmPlace(number=place.number, receivers=place.receivers) if place else None

    def source(
        self, digest: Digest, flow: int, asker: PeerId, *, attempt: int, able: Callable[[PeerId], bool]
    ) -> PeerId | None:
        """Returns the host from which the asker fetches a flow across the border of its zone. None:
        there is none that is `able`, or nothing to fetch there."""
        swarm, peer = self._members.swarms.get(digest), self._members.peers.get(asker)
        if swarm is None or peer is None:
            return None
        return swarm.source(flow, peer, attempt, able)

    def addresses(self, registered_hosts: Iterable[str], now: float) -> list[str]:
        """Returns every address from which peers may connect, in ranges: those of all peers and of
        the registered hosts. Host names are left out."""
        return self._members.hosts.addresses(frozenset(registered_hosts), now, ranges=True).addresses

    def shut_out(self, addresses: frozenset[str], now: float) -> None:
        """Leaves these addresses out of the networks whose every address may connect, and tells
        peers for a while to forget them."""
        self._members.hosts.shut_out(addresses)
        known = filter(None, map(address_of, sorted(addresses)))
        self._shut_out = {address: self._shut_out.get(address, now) for address in known}

    def knows_address(self, address: str) -> bool:
        """Whether peers may connect from this address."""
        return self._members.hosts.knows(address)

    # views and metrics

    def counts(self, digest: Digest) -> SwarmCounts:
        swarm = self._members.swarms.get(digest)
        return SwarmCounts(*((0, 0) if swarm is None else (swarm.count(complete=True), swarm.count(complete=False))))

    def complete_on(self, digest: Digest, peers: Set[PeerId]) -> bool:
        """Whether all of these receivers have said that they have the whole bundle."""
        return not peers or (digest in (known := self._members.swarms) and known[digest].others[True].has_all(peers))

    def complete_bundles(self, peer: PeerId) -> HeldBundles | None:
        """Returns what a peer has, or None if the peer is unknown."""
        known = self._members.peers.get(peer)
        return None if known is None else HeldBundles.among(known.entries.values())

    def lists(self, peer: PeerId, digest: Digest) -> bool:
        """Whether this peer is in this swarm."""
        return self.entry(peer, digest) is not None

    def entry(self, peer: PeerId, digest: Digest) -> SwarmEntry | None:
        """Returns what a peer last said about a swarm; None: it is not in it."""
        known = self._members.peers.get(peer)
        return None if known is None else known.entries.get(digest)

    def members(self, digest: Digest) -> list[SwarmMember]:
        """Returns what every peer of a swarm last said about it, by peer id. Silent peers remain
        until the next `expire`."""
        swarm = self._members.swarms.get(digest)
        if swarm is None:
            return []
        rosters = (*swarm.masters.values(), *swarm.others.values())
        peers = sorted((peer for roster in rosters for peer in roster.drawn(0)), key=lambda peer: peer.id)
        return [SwarmMember(p.id, p.role, p.host, p.port, p.entries[digest], p.heard_at) for p in peers]

    def statistics(self) -> DirectoryStatistics:
        members, roles = self._members, Counter(peer.role for peer in self._members.peers.values())
        return DirectoryStatistics(
            peers=MappingProxyType({role: roles[role] for role in PeerRole}),
            fetching=members.fetching,
            swarms=len(members.swarms),
            memberships=members.count,
            hosts=len(members.hosts),
            announces=self._announces,
            refused=self._refused,
            expired=self._expired,
        )

    def _to_dial(self, entry: SwarmEntry, peer: PeerId, role: PeerRole, now: float) -> list[PeerAddress]:
        """Returns the peers to dial. A complete peer dials nobody, except that a client dials
        masters.

        An uploader stays only briefly, and other peers may be unable to dial it.
        """
        if not entry.complete:
            known, swarm = self._members.peers[peer], self._members.swarms[entry.digest]
            near = swarm.near(known, Draw(known, now), self._seed(entry.digest, peer, now), now)
            return self.handout(entry.digest, peer, now=now) if near is None else near
        if role is PeerRole.CLIENT:
            lacking = self.lacking(entry.digest, peer, now=now)
            return [address for address in lacking if address.role is PeerRole.MASTER]
        return []

    def _crowd(self, digest: Digest, peer: PeerId) -> Crowd:
        return self._members.swarms[digest].crowd_of(self._members.peers[peer])

    def _flows(self, entry: SwarmEntry, peer: PeerId) -> list[int]:
        return [] if entry.complete else self._members.swarms[entry.digest].flows(self._members.peers[peer])

    def _period_of(self, peer: Peer) -> float:
        """Returns the seconds until this peer's next announce."""
        if peer.role is PeerRole.STOCK:
            return self._periods.stock_secs
        if peer.fetching:
            return self._periods.fetching(self._members.fetching)
        share = int.from_bytes(hashlib.blake2b(peer.id.encode(), digest_size=4).digest()) / 2**32
        return self._periods.seeding_secs * (1 - SEEDER_SPREAD * share)

    def _seed(self, digest: Digest, asker: PeerId, now: float) -> int:
        turn = int(now // self._periods.rotate_secs)
        return int.from_bytes(hashlib.blake2b(f"{asker} {digest} {turn}".encode(), digest_size=8).digest())


def _by_records(known: SwarmFacts) -> SwarmPeers:
    return SwarmPeers(removed=known.removed, pinned=known.pinned, replicas=known.replicas, unknown=known.unknown)
