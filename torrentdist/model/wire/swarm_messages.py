"""What peers and masters tell each other about swarms: POST /v1/swarm and its answer.

One announce carries all swarms of a peer. A tag lets both sides leave out what the other one knows
already.
"""

from __future__ import annotations

from enum import StrEnum

from torrentdist.model.ids import Digest, PeerId
from torrentdist.model.swarm_place import SwarmPlace
from torrentdist.model.wire.view import View


class PeerRole(StrEnum):
    MASTER = "master"
    SUPERVISOR = "supervisor"
    CLIENT = "client"
    STOCK = "stock"
    """A BitTorrent client that is not ours. It came by the tracker URL."""


class PeerAddress(View, frozen=True, kw_only=True):
    """A member of a swarm as the directory hands it out."""

    host: str
    port: int
    role: PeerRole
    complete: bool = False


class SwarmEntry(View, frozen=True, kw_only=True):
    """A peer's report about one of its swarms."""

    digest: Digest
    complete: bool
    done: int = 0
    size: int = 0
    rate: float = 0.0
    """Bytes per second that arrive."""
    from_peers: int = 0
    from_masters: int = 0
    from_plugin: int = 0
    problem: str = ""
    """The reason why the transfer makes no progress, for people, such as `disk full`. Empty: all is
    well."""


class SwarmAnnounce(View, frozen=True, kw_only=True):
    """A peer's report about all of its swarms. The peer leaves every swarm that it does not name
    any more."""

    peer: PeerId
    role: PeerRole
    port: int
    host: str = ""
    """The address at which others reach the peer. Empty: the address that the request comes from.
    """
    swarms: list[SwarmEntry] = []
    left: bool = False
    """True in the last request of a peer that goes away."""
    addresses: str = ""
    """The `addresses_tag` of this master's last answer."""
    known: str = ""
    """The `tag` of this master's last answer."""


class SwarmPeers(View, frozen=True, kw_only=True):
    """The directory's answer about one swarm."""

    peers: list[PeerAddress] = []
    removed: bool = False
    """The bundle of this digest has a tombstone: the peer drops its content."""
    pinned: bool = False
    replicas: int = 0
    """The number of live masters that hold the bundle. 0: the peer's copy may be the last one."""
    place: SwarmPlace | None = None


class SwarmAnswer(View, frozen=True, kw_only=True):
    """A master's answer to an announce."""

    interval: float
    """Seconds until the next announce is expected."""
    you: str
    """The host under which the directory knows the peer."""
    swarms: dict[Digest, SwarmPeers] = {}
    addresses: list[str] = []
    """Every address from which connections may be accepted. Empty: the list that the announce's tag
    stands for."""
    addresses_tag: str = ""
    masters: list[str] = []
    """The URLs of all live masters."""
    wanted: list[Digest] = []
    """The peer's swarms whose metafile no master has. PUT /v1/metafiles/<digest> brings it back."""
    tag: str = ""
    """Stands for everything here but the interval. If the announce named it as `known`, the rest is
    unchanged and left out."""
