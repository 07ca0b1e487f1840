"""Who is in which swarm: the soft state that every master keeps in memory and that the peers refill by themselves.

Always holds: what a peer said last replaces all that it said before, and of a master the records add what it holds; a
peer that was silent for two of its own periods is handed out no more; nobody is handed out to itself; a refused
announce changes nothing; every count is bounded.
Must not do: read a clock or do I/O. Time is a parameter, and what looks random is a function of ids and time.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from ipaddress import ip_address
from itertools import chain, islice
from types import MappingProxyType

import msgspec

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest, PeerId, peer_id
from torrentdist.model.ids import digest as checked_digest
from torrentdist.model.swarm_place import SwarmPlace
from torrentdist.model.wire.swarm_messages import (
    PeerAddress,
    PeerRole,
    SwarmAnnounce,
    SwarmAnswer,
    SwarmEntry,
    SwarmPeers,
)
from torrentdist.swarm.directory.directory_values import (
    DirectoryStatistics,
    SwarmCounts,
    SwarmFacts,
    SwarmMember,
    no_facts,
)
from torrentdist.swarm.directory.limits import Limits, Periods
from torrentdist.swarm.directory.peer_addresses import Hosts
from torrentdist.swarm.directory.roster import Draw, Peer, Swarm, address_of

__all__ = ["MAX_PROBLEM_LENGTH", "Limits", "Periods", "SwarmDirectory", "SwarmFacts", "SwarmMember", "no_facts"]

MAX_PROBLEM_LENGTH = 300
MAX_COUNT = 1 << 60
"""More bytes than any bundle has: a number above it is a mistake or an attack."""
SEEDER_SPREAD = 0.2
"""Idle seeders come back after 80 to 100 % of their period, each at its own share of it."""


class SwarmDirectory:
    """Every master has one. `expire` is to be called every second or so; handing out never waits for it."""

    def __init__(self, *, own_host: str = "", periods: Periods | None = None, limits: Limits | None = None) -> None:
        """`own_host`: where others reach this host, for peers that came here over loopback."""
        self._own_host = own_host
        self._periods = periods or Periods()
        self._limits = limits or Limits()
        self._peers: dict[PeerId, Peer] = {}
        self._swarms: dict[Digest, Swarm] = {}
        self._hosts = Hosts()
        self._holders: dict[Digest, frozenset[PeerId]] = {}
        self._recorded: dict[PeerId, set[Digest]] = {}
        self._fetching = 0
        self._memberships = 0
        self._announces = 0
        self._refused = 0
        self._expired = 0

    # what peers say

    def announce(
        self,
        request: SwarmAnnounce,
        *,
        source_host: str,
        now: float,
        facts: Callable[[Digest], SwarmFacts] = no_facts,
        masters: Sequence[str] = (),
        registered_hosts: Iterable[str] = (),
    ) -> SwarmAnswer:
        """Take in all that a peer says about itself, and answer whom it may dial in each of its swarms."""
        host, interval = self.hear(request, source_host=source_host, now=now)
        swarms: dict[Digest, SwarmPeers] = {}
        if not request.left:
            for entry in request.swarms:
                known = facts(entry.digest)
                place = self.place(entry.digest, request.peer, now=now, expected=known.expected)
                if not (
                    entry.complete
                    or request.role is PeerRole.STOCK
                    or self._is_settled(entry.digest, request.peer, now)
                ):
                    interval = max(self._periods.unsettled_secs, self._fetching / self._periods.fetching_per_sec)
                peers = [] if known.removed else self._to_dial(entry, request.peer, request.role, now)
                swarms[entry.digest] = SwarmPeers(
                    peers=peers,
                    removed=known.removed,
                    pinned=known.pinned,
                    replicas=known.replicas,
                    place=place,
                )
        return SwarmAnswer(
            interval=interval,
            you=host,
            swarms=swarms,
            addresses=self.addresses(registered_hosts),
            addresses_tag=self._hosts.tag,
            masters=list(masters),
        )

    def hear(self, request: SwarmAnnounce, *, source_host: str, now: float) -> tuple[str, float]:
        """Take in what a peer says: gives the host under which it is known, and in how many seconds to come again."""
        try:
            host = self._checked(request, source_host, now)
        except TorrentdistError:
            self._refused += 1
            raise
        self._announces += 1
        if request.left:
            self.forget(request.peer)
            return host, self._periods.seeding_secs
        peer = self._arrive(request, host, now)
        self._enter(peer, request.swarms)
        self._set_period(peer, now)
        return host, peer.period

    def forget(self, peer: PeerId) -> None:
        gone = self._peers.pop(peer, None)
        if gone is None:
            return
        for digest in list(gone.entries):
            self._leave(gone, digest)
        self._fetching -= gone.fetching
        self._hosts.drop(gone.host)

    def record(self, digest: Digest, holders: frozenset[PeerId]) -> None:
        """The masters that hold it by their records. They are in its swarm for as long as they come at all, and needn't
        name it: what they name themselves counts more."""
        before = self._holders.pop(digest, frozenset())
        if holders:
            self._holders[digest] = holders
        for id_ in before ^ holders:
            held = self._recorded.setdefault(id_, set())
            (held.add if id_ in holders else held.discard)(digest)
            peer = self._peers.get(id_)
            if peer is not None and digest not in peer.named:
                self._fall_back(peer, digest)

    def recorded(self, peer: PeerId) -> Set[Digest]:
        """What a master holds by its records."""
        return self._recorded.get(peer, frozenset())

    def expire(self, now: float) -> list[PeerId]:
        """Forget the peers that were silent for too long, and say whom."""
        gone = [peer.id for peer in self._peers.values() if peer.alive_until < now]
        for peer in gone:
            self.forget(peer)
        self._expired += len(gone)
        return gone

    # what they are told

    def handout(self, digest: Digest, asker: PeerId, *, now: float, wanted: int | None = None) -> list[PeerAddress]:
        """Whom a peer that lacks pieces may dial: some master holders, then both complete and incomplete others.

        Never the asker, nobody twice under one address, nobody who is silent. Different askers get different ones."""
        swarm = self._swarms.get(digest)
        room = self._limits.handout if wanted is None else max(0, min(wanted, self._limits.handout))
        if swarm is None or not room:
            return []
        seed = self._seed(digest, asker, now)
        draw = Draw(self._peers.get(asker), now)
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
        """Whom a complete peer could dial to give: the incomplete ones, masters first."""
        swarm = self._swarms.get(digest)
        room = self._limits.handout if wanted is None else max(0, min(wanted, self._limits.handout))
        if swarm is None or not room:
            return []
        seed = self._seed(digest, asker, now)
        peers = chain(swarm.masters[False].drawn(seed), swarm.others[False].drawn(seed))
        return list(islice(Draw(self._peers.get(asker), now).addresses(peers, complete=False), room))

    def addresses(self, registered_hosts: Iterable[str] = ()) -> list[str]:
        """Every address that a connection may come from: all peers and the hosts given. A name is no address."""
        return self._hosts.addresses(frozenset(registered_hosts))

    def counts(self, digest: Digest) -> SwarmCounts:
        swarm = self._swarms.get(digest)
        if swarm is None:
            return SwarmCounts(0, 0)
        return SwarmCounts(swarm.count(complete=True), swarm.count(complete=False))

    def complete_bundles(self, peer: PeerId) -> int | None:
        known = self._peers.get(peer)
        return None if known is None else sum(entry.complete for entry in known.entries.values())

    def lists(self, peer: PeerId, digest: Digest) -> bool:
        known = self._peers.get(peer)
        return known is not None and digest in known.entries

    def members(self, digest: Digest) -> list[SwarmMember]:
        """What every peer of a swarm last said about it, by peer id; the silent are in it until the next `expire`."""
        swarm = self._swarms.get(digest)
        if swarm is None:
            return []
        rosters = (*swarm.masters.values(), *swarm.others.values())
        peers = (peer for roster in rosters for peer in roster.drawn(0))
        members = (
            SwarmMember(peer.id, peer.role, peer.host, peer.port, peer.entries[digest], peer.heard_at) for peer in peers
        )
        return sorted(members, key=lambda member: member.peer)

    def statistics(self) -> DirectoryStatistics:
        roles = Counter(peer.role for peer in self._peers.values())
        return DirectoryStatistics(
            peers=MappingProxyType({role: roles[role] for role in PeerRole}),
            fetching=self._fetching,
            swarms=len(self._swarms),
            memberships=self._memberships,
            hosts=len(self._hosts),
            announces=self._announces,
            refused=self._refused,
            expired=self._expired,
        )

    # inside

    def place(self, digest: Digest, asker: PeerId, *, now: float, expected: Iterable[PeerId] = ()) -> SwarmPlace | None:
        """The asker's place in the conductor's plan; None if it lacks nothing, or has nobody to share with."""
        swarm = self._swarms.get(digest)
        if swarm is None or asker not in swarm.others[False]:
            return None
        to_come = (peer for peer in expected if peer not in swarm.others[True])
        swarm.crowd.look(asker, swarm.progress, to_come, now)
        place = swarm.crowd.place(asker)
        return SwarmPlace(number=place.number, receivers=place.receivers) if place else None

    def _is_settled(self, digest: Digest, peer: PeerId, now: float) -> bool:
        return self._swarms[digest].crowd.is_settled(peer, now)

    def _to_dial(self, entry: SwarmEntry, peer: PeerId, role: PeerRole, now: float) -> list[PeerAddress]:
        """Who lacks something dials. Of those that have it all, only a client does, and masters only: an uploader is
        there for a moment, and may be where nobody can dial it."""
        if not entry.complete:
            known = self._peers[peer]
            near = self._swarms[entry.digest].near(known, Draw(known, now), self._seed(entry.digest, peer, now), now)
            return self.handout(entry.digest, peer, now=now) if near is None else near
        if role is PeerRole.CLIENT:
            lacking = self.lacking(entry.digest, peer, now=now)
            return [address for address in lacking if address.role is PeerRole.MASTER]
        return []

    def _checked(self, request: SwarmAnnounce, source_host: str, now: float) -> str:
        """The host of a request that may be taken in as it is."""
        peer_id(request.peer)
        host = self._host_of(request.host, source_host)
        if request.left:
            return host
        if not 0 <= request.port <= 65535:
            raise TorrentdistError("invalid_request", detail=f"{request.port} is no port")
        if len(request.swarms) > self._limits.swarms_per_peer:
            detail = f"{len(request.swarms)} swarms in one announce, more than {self._limits.swarms_per_peer}"
            raise TorrentdistError("invalid_request", detail=detail)
        known = self._peers.get(request.peer)
        joined = 0
        named: set[Digest] = set()
        for entry in request.swarms:
            named.add(entry.digest)
            _check_numbers(entry)
            if known is None or entry.digest not in known.entries:
                checked_digest(entry.digest)
                self._check_swarm_room(entry.digest, now)
                joined += 1
        if len(named) != len(request.swarms):
            raise TorrentdistError("invalid_request", detail="a swarm is named twice in one announce")
        self._check_room(known, host, joined, now)
        return host

    def _host_of(self, said: str, source: str) -> str:
        """Where others reach the peer. A loopback address is of use only where everything is on one machine."""
        hosts = [address_of(said), address_of(source), address_of(self._own_host)]
        if (said and not hosts[0]) or not (hosts[0] or hosts[1]):
            raise TorrentdistError("invalid_request", detail=f"{(said or source)[:100]!r} is no address of a host")
        usable = [host for host in hosts if host]
        return next((host for host in usable if not ip_address(host).is_loopback), usable[0])

    def _check_swarm_room(self, digest: Digest, now: float) -> None:
        limit = self._limits.peers_per_swarm
        if len(self._swarms.get(digest, ())) >= limit:
            self.expire(now)
            if len(self._swarms.get(digest, ())) >= limit:
                raise TorrentdistError("not_ready", detail=f"a swarm has {limit} peers, and no room for more")

    def _check_room(self, known: Peer | None, host: str, joined: int, now: float) -> None:
        def full() -> str:
            if self._memberships + joined > self._limits.memberships:
                return f"its directory holds {self._memberships} memberships of swarms"
            if known is None and len(self._peers) >= self._limits.peers:
                return f"its directory holds {len(self._peers)} peers"
            if (known is None or known.host != host) and self._hosts.peers(host) >= self._limits.peers_per_host:
                return f"its directory holds {self._hosts.peers(host)} peers of {host}"
            return ""

        if full():
            self.expire(now)
            if problem := full():
                raise TorrentdistError("not_ready", detail=f"{problem}, and has no room for more")

    def _arrive(self, request: SwarmAnnounce, host: str, now: float) -> Peer:
        peer = self._peers.get(request.peer)
        if peer is not None and peer.role is not request.role:
            self.forget(peer.id)
            peer = None
        if peer is None:
            peer = Peer(request.peer, request.role, host, request.port, now)
            self._peers[peer.id] = peer
            self._hosts.add(host)
            for digest in self.recorded(peer.id):
                self._fall_back(peer, digest)
        elif peer.host != host:
            self._hosts.drop(peer.host)
            self._hosts.add(host)
        peer.host, peer.port, peer.heard_at = host, request.port, now
        return peer

    def _enter(self, peer: Peer, said: Iterable[SwarmEntry]) -> None:
        named: set[Digest] = set()
        for entry in said:
            if len(entry.problem) > MAX_PROBLEM_LENGTH:
                entry = msgspec.structs.replace(entry, problem=entry.problem[:MAX_PROBLEM_LENGTH])
            named.add(entry.digest)
            self._join(peer, entry)
        left, peer.named = peer.named - named, frozenset(named)
        for digest in left:
            self._fall_back(peer, digest)

    def _join(self, peer: Peer, entry: SwarmEntry) -> None:
        old = peer.entries.get(entry.digest)
        peer.entries[entry.digest] = entry
        self._memberships += old is None
        if old is None or old.complete is not entry.complete:
            swarm = self._swarms.setdefault(entry.digest, Swarm(entry.digest))
            swarm.roster(peer.role, complete=not entry.complete).discard(peer)
            swarm.roster(peer.role, complete=entry.complete).add(peer)

    def _fall_back(self, peer: Peer, digest: Digest) -> None:
        """To what the records say of a swarm that the peer doesn't name."""
        if peer.role is PeerRole.MASTER and digest in self.recorded(peer.id):
            self._join(peer, SwarmEntry(digest=digest, complete=True))
        elif digest in peer.entries:
            self._leave(peer, digest)

    def _leave(self, peer: Peer, digest: Digest) -> None:
        del peer.entries[digest]
        self._memberships -= 1
        swarm = self._swarms[digest]
        for complete in (True, False):
            swarm.roster(peer.role, complete=complete).discard(peer)
        if not len(swarm):
            del self._swarms[digest]

    def _set_period(self, peer: Peer, now: float) -> None:
        fetching = any(not peer.entries[digest].complete for digest in peer.named)
        self._fetching += fetching - peer.fetching
        peer.fetching = fetching
        periods = self._periods
        if peer.role is PeerRole.STOCK:
            peer.period = periods.stock_secs
        elif fetching:
            peer.period = periods.fetching(self._fetching)
        else:
            share = int.from_bytes(hashlib.blake2b(peer.id.encode(), digest_size=4).digest()) / 2**32
            peer.period = periods.seeding_secs * (1 - SEEDER_SPREAD * share)
        peer.alive_until = now + 2 * peer.period + periods.grace_secs

    def _seed(self, digest: Digest, asker: PeerId, now: float) -> int:
        turn = int(now // self._periods.rotate_secs)
        return int.from_bytes(hashlib.blake2b(f"{asker} {digest} {turn}".encode(), digest_size=8).digest())


def _check_numbers(entry: SwarmEntry) -> None:
    numbers = (entry.done, entry.size, entry.rate, entry.from_peers, entry.from_masters)
    if not all(0 <= number <= MAX_COUNT for number in numbers):
        raise TorrentdistError("invalid_request", detail=f"impossible numbers about swarm {entry.digest[:64]}")
