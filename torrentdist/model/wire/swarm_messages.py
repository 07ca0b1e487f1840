"""The messages between peers and masters about swarms: POST /v1/swarm and its answer.

One announce covers all swarms of a peer. Tags let each side omit what the other already knows.
"""

from enum import StrEnum
from typing import Any

from torrentdist.model.ids import Digest, PeerId
from torrentdist.model.swarm_place import SwarmPlace
from torrentdist.model.wire.transfer_messages import ArrivalView, TransferView
from torrentdist.model.wire.view import View, view_of


class PeerRole(StrEnum):
    MASTER = "master"
    SUPERVISOR = "supervisor"
    CLIENT = "client"
    STOCK = "stock"
    """A BitTorrent client that is not ours. It uses the tracker URL."""


class PeerAddress(View, frozen=True, kw_only=True):
    """A member of a swarm, as the directory hands it out."""

    host: str
    port: int
    role: PeerRole
    complete: bool = False
    outside: bool = False
    """Whether it is known to be in another zone than the peer that is told of it."""
    tls_port: int = 0
    """The port for peers with TLS. 0: the peer tells none, so it has no TLS, or is of an older
    release. Equal to `port`: it has no other."""

    @property
    def has_tls(self) -> bool:
        return self.tls_port > 0

    @property
    def has_plain(self) -> bool:
        """Whether the peer may serve peers without TLS."""
        return self.port != self.tls_port

    def port_for(self, *, tls: bool) -> int:
        """Returns the port to dial; 0 if there is none for this kind of peer."""
        if tls:
            return self.tls_port or self.port
        return self.port if self.has_plain else 0


class SwarmEntry(ArrivalView, frozen=True, kw_only=True):
    """A peer's report about one of its swarms."""

    digest: Digest
    complete: bool
    own: int = 0
    """Bytes on the peer's disk that it would free without the bundle; 0 until it has the bundle."""
    problem: str = ""
    """Why the transfer makes no progress, for display, such as `disk full`; empty if it does."""
    used_by: list[str] = []
    """The pods that have it mounted on the peer's host, for display; only the first of many."""


def swarm_entry(view: TransferView, **more: Any) -> SwarmEntry:
    """Returns the report about a swarm that this process takes part in."""
    own = view.sources
    arrived = {"from_peers": own.peers, "from_masters": own.masters, "from_plugin": own.plugin, "local": own.local}
    return view_of(SwarmEntry, view, **arrived, outside=own.outside, **more)


class HostCondition(View, frozen=True, kw_only=True):
    """What a peer says of its host."""

    full: str = ""
    """Why its store has no room for more bundles, for display; empty: it has, or the peer is of an
    older release."""
    free: int = -1
    """Bytes of bundles for which its store has room; -1: it does not say."""
    fills_in: float = 0.0
    """Seconds until that room is used up at the pace of the last week; 0: it does not get less, or
    nobody can tell yet."""
    clock: float = 0.0
    """Seconds by which its clock is ahead of ZooKeeper's; 0: it is right, or unknown."""
    certificate_ends_at: float = 0.0
    """When its certificate ends; 0: it has none."""


class SwarmAnnounce(View, frozen=True, kw_only=True):
    """A peer's report about all of its swarms. The peer leaves every swarm that it no longer
    names."""

    peer: PeerId
    role: PeerRole
    port: int
    tls_port: int = 0
    """The port for peers with TLS: `port` itself, or a second one while a cluster goes over to TLS.
    0: there is none."""
    host: str = ""
    """The address at which others reach the peer. If empty, the source address of the request
    counts."""
    swarms: list[SwarmEntry] = []
    stored: list[Digest] = []
    """What else a supervisor has, whole or in part, without being in its swarm. The answer says
    what the records say of it."""
    left: bool = False
    """True in the last request of a peer that leaves."""
    addresses: str = ""
    """The `addresses_tag` of this master's last answer."""
    ranges: bool = False
    """Whether the peer understands ranges of addresses. False: it is of an older release."""
    known: str = ""
    """The `tag` of this master's last answer."""
    full: str = ""
    free: int = -1
    fills_in: float = 0.0
    clock: float = 0.0
    certificate_ends_at: float = 0.0
    # Each of these is a field of its own, because earlier releases tell `full` so.

    @property
    def condition(self) -> HostCondition:
        return view_of(HostCondition, self)


class SwarmPeers(View, frozen=True, kw_only=True):
    """The directory's answer about one swarm."""

    peers: list[PeerAddress] = []
    removed: bool = False
    """The bundle of this digest has a tombstone, so the peer deletes its content."""
    unknown: bool = False
    """No record has this digest. The peer asks what its ids stand for now."""
    pinned: bool = False
    replicas: int = 0
    """The number of live masters that hold the bundle. If it is 0, the peer may have the last
    copy."""
    place: SwarmPlace | None = None
    flows: list[int] = []
    """The flows of pieces that the peer fetches from hosts outside its zone, and gives to the
    others in it. GET /v1/flows/<digest>/<flow> leads to such a host."""


class SwarmAnswer(View, frozen=True, kw_only=True):
    """A master's answer to an announce."""

    interval: float
    """Seconds until the next announce is due."""
    you: str
    """The host under which the directory knows the peer."""
    swarms: dict[Digest, SwarmPeers] = {}
    addresses: list[str] = []
    """Every address from which peers may connect, or ranges of them, such as
    `10.0.0.1-10.0.0.9`. If empty, the list that the announce's tag stands for is still valid."""
    addresses_tag: str = ""
    shut_out: list[str] = []
    """Addresses of hosts that were shut out a moment ago. A peer that was told of them before
    forgets them at once."""
    masters: list[str] = []
    """The URLs of all live masters."""
    wanted: list[Digest] = []
    """The peer's swarms whose metafile no master has. PUT /v1/metafiles/<digest> restores it."""
    tag: str = ""
    """Stands for the whole answer except the interval. If the announce named it as `known`, nothing
    else has changed and the rest is omitted."""
