"""Decides whether an announce is accepted, and under which address the peer is known.

Always: every id, number, address and count is checked before anything changes. A full directory
first forgets silent peers, for guests at most once a second. Guests have a part of its room, so
that hosts of the cluster find room however many guests come, and each sender has a part of that of
the guests.
Never: change the directory in any other way.
"""

from collections.abc import Callable
from ipaddress import ip_address
from typing import Final

import msgspec

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest, PeerId, peer_id
from torrentdist.model.ids import digest as checked_digest
from torrentdist.model.wire.swarm_messages import PeerRole, SwarmAnnounce, SwarmEntry
from torrentdist.swarm.directory.guest_counts import EVERYBODY, GUESTS, sender_of
from torrentdist.swarm.directory.memberships import Memberships
from torrentdist.swarm.directory.peer_addresses import address_of
from torrentdist.swarm.directory.roster import Peer

MAX_COUNT: Final = 1 << 60
"""More bytes than any bundle has. A larger number is a mistake or an attack."""
MAX_FREE: Final = 1 << 64
"""More bytes than any file system has free."""
GUESTS_PART: Final = 10
"""Guests together have a tenth of the peers and memberships, and each a tenth of a peer's
swarms."""
SENDER_PART: Final = 4
"""The guests of one sender, if nobody else has its name, have a quarter of the peers and
memberships of all guests."""
LEAST_PART: Final = 50
"""A part of the room is at least as large as this, or as half of the whole if that is less."""
HOST_PART: Final = 2
"""Guests at one address have half of its peers."""
GUESTS_EXPIRE_SECS: Final = 1.0
"""Time between two looks for silent peers because guests find no room."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The most data that hostile announces can make a master store."""

    swarms_per_peer: int = 10_000
    peers_per_swarm: int = 50_000
    peers_per_host: int = 5_000
    peers: int = 50_000
    memberships: int = 500_000
    handout: int = 50
    """Peers in one answer about one swarm."""


def limits_for(peers: int) -> Limits:
    """Returns the limits of a directory with room for so many peers."""
    return Limits(peers_per_swarm=peers, peers_per_host=max(1, peers // 10), peers=peers, memberships=10 * peers)


class _WantedRoom(msgspec.Struct, frozen=True):
    """The room that an announce needs."""

    known: Peer | None
    host: str
    joined: int
    """Number of swarms that the peer joins."""
    owner: str
    is_guest: bool

    @property
    def comes(self) -> bool:
        """Whether the peer is new at its address."""
        return self.known is None or self.known.host != self.host


class Admission:
    def __init__(
        self, members: Memberships, limits: Limits, *, own_host: str, expire: Callable[[float], object]
    ) -> None:
        """`own_host` is this host's address, for peers that connect over loopback. `expire` forgets
        silent peers."""
        self._members = members
        self._limits = limits
        self._own_host = own_host
        self._expire = expire
        self._expired_at = float("-inf")

    def check_owner(self, peer: PeerId, owner: str, now: float) -> None:
        """Raises `forbidden` if a peer that lives belongs to another sender."""
        known = self._members.peers.get(peer)
        if owner and known is not None and known.owner != owner and known.alive_until >= now:
            raise TorrentdistError("forbidden", detail=f"the peer {peer[:200]!r} belongs to another sender")

    def check(self, request: SwarmAnnounce, source_host: str, now: float, owner: str = "") -> str:
        """Returns the host under which the peer is known. Raises an error if the announce is not
        acceptable. `owner`: as in `Peer`."""
        peer_id(request.peer)
        host = self._host_of(request.host, source_host)
        if request.left:
            return host
        for port in (request.port, request.tls_port):
            if not 0 <= port <= 65535:
                raise TorrentdistError("invalid_request", detail=f"{port} is not a port number")
        limit = self._limits.swarms_per_peer // (GUESTS_PART if request.role in GUESTS else 1)
        if (most := max(len(request.swarms), len(request.stored))) > limit:
            detail = f"{most} swarms in one announce, more than {limit}"
            raise TorrentdistError("invalid_request", detail=detail)
        if not -1 <= request.free <= MAX_FREE:
            raise TorrentdistError("invalid_request", detail="an impossible number of free bytes")
        known = self._members.peers.get(request.peer)
        joined = 0
        named: set[Digest] = set()
        for entry in request.swarms:
            named.add(entry.digest)
            _check_numbers(entry)
            if known is None or entry.digest not in known.entries:
                checked_digest(entry.digest)
                self._check_swarm_room(entry.digest, request.role, now)
                joined += 1
        if len(named) != len(request.swarms):
            raise TorrentdistError("invalid_request", detail="a swarm is named twice in one announce")
        asked = _WantedRoom(known, host, joined, owner, request.role in GUESTS)
        if self._shortage(asked):
            self._make_room(request.role, now)
            if shortage := self._shortage(asked):
                raise TorrentdistError("not_ready", detail=f"its directory holds {shortage}, and has no room for more")
        return host

    def _host_of(self, said: str, source: str) -> str:
        """Returns the address at which others reach the peer. A loopback address is valid on one
        machine only."""
        hosts = [address_of(said), address_of(source), address_of(self._own_host)]
        if (said and not hosts[0]) or not (hosts[0] or hosts[1]):
            raise TorrentdistError("invalid_request", detail=f"{(said or source)[:100]!r} is not a host address")
        usable = [host for host in hosts if host]
        return next((host for host in usable if not ip_address(host).is_loopback), usable[0])

    def _make_room(self, role: PeerRole, now: float) -> None:
        """Forgets silent peers, which costs a look at all peers. For guests it does so rarely."""
        if role not in GUESTS or now - self._expired_at >= GUESTS_EXPIRE_SECS:
            self._expired_at = now
            self._expire(now)

    def _check_swarm_room(self, digest: Digest, role: PeerRole, now: float) -> None:
        limit, swarms = self._limits.peers_per_swarm, self._members.swarms
        if len(swarms.get(digest, ())) >= limit:
            self._make_room(role, now)
            if len(swarms.get(digest, ())) >= limit:
                raise TorrentdistError("not_ready", detail=f"a swarm has {limit} peers, and no room for more")

    def _shortage(self, asked: _WantedRoom) -> str:
        """Returns what takes the room that an announce needs; nothing if there is room."""
        members, limits, known, host = self._members, self._limits, asked.known, asked.host
        if members.count + asked.joined > limits.memberships:
            return f"{members.count} memberships of swarms"
        if known is None and len(members.peers) >= limits.peers:
            return f"{len(members.peers)} peers"
        if asked.comes and members.hosts.peers(host) >= limits.peers_per_host:
            return f"{members.hosts.peers(host)} peers of {host}"
        return self._guests_shortage(asked) if asked.is_guest and (asked.comes or asked.joined) else ""

    def _guests_shortage(self, asked: _WantedRoom) -> str:
        limits, guests, host = self._limits, self._members.guests, asked.host
        groups: list[tuple[str, str, tuple[int, ...]]] = [("clients", EVERYBODY, (GUESTS_PART,))]
        if sender := sender_of(asked.owner):
            groups.append((f"clients of {sender}", sender, (GUESTS_PART, SENDER_PART)))
        for whose, key, parts in groups:
            if asked.known is None and guests.peers[key] >= _part(limits.peers, *parts):
                return f"{guests.peers[key]} {whose}"
            if guests.memberships[key] + asked.joined > _part(limits.memberships, *parts):
                return f"{guests.memberships[key]} memberships of {whose}"
        is_full = asked.comes and guests.at[host] >= _part(limits.peers_per_host, HOST_PART)
        return f"{guests.at[host]} clients of {host}" if is_full else ""


def _part(room: int, *parts: int) -> int:
    """Returns how large this part of the room is, or a part of that part."""
    for part in parts:
        room = max(room // part, min(LEAST_PART, room // 2))
    return room


def _check_numbers(entry: SwarmEntry) -> None:
    told = (entry.done, entry.size, entry.rate, entry.own, entry.outside)
    arrived = (entry.from_peers, entry.from_masters, entry.from_plugin, entry.local)
    if not all(0 <= number <= MAX_COUNT for number in (*told, *arrived)):
        raise TorrentdistError("invalid_request", detail=f"impossible numbers about swarm {entry.digest[:64]}")
