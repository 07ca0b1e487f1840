"""Binds an announce to its sender: what it says about itself counts only as far as the sender has
proven it.

Always: an address is the one that the request came from, or the one under which a host is
registered, if its certificate names it. Only hosts speak for masters and supervisors, and only a
master speaks for a master.
Pure: no I/O and no clock.
"""

from typing import Final

import msgspec
from msgspec.structs import replace

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.swarm_messages import PeerRole, SwarmAnnounce
from torrentdist.swarm.directory.peer_addresses import address_of

STOCK_PREFIX: Final = "stock-"
"""Prefix of the ids of stock BitTorrent clients. Only the tracker gives such ids."""


class AnnounceSender(msgspec.Struct, frozen=True):
    """What a master knows about the sender of an announce without believing the announce."""

    address: str
    """The address that the request came from."""
    name: str = ""
    """The name that the sender has proven."""
    has_shared_name: bool = False
    """Whether others have this name too."""
    is_host: bool = True
    """Whether the sender has proven that it is one of the cluster's hosts."""
    certificate: tuple[str, str] | None = None
    """Role and id of the certificate that proved it. None: the proof was no certificate."""
    addresses: frozenset[str] = frozenset()
    """The addresses that this certificate names."""

    @property
    def owner(self) -> str:
        """The owner of the sender's peers. No other sender may announce for them. It has no name if
        the sender shares its own."""
        return "" if self.is_host else f"{'' if self.has_shared_name else self.name}@{self.address}"


class RegisteredHost(msgspec.Struct, frozen=True):
    """A master or supervisor, as the records say."""

    role: PeerRole
    host: str


def bound(announce: SwarmAnnounce, sender: AnnounceSender, known: RegisteredHost | None) -> SwarmAnnounce:
    """Returns the announce with no more than its sender has proven.

    `known` is the host that is registered under the peer's id. Raises `forbidden` for a role or an
    id that belongs to somebody else.
    """
    if announce.role is PeerRole.STOCK or announce.peer.startswith(STOCK_PREFIX):
        raise _refused(announce, "stock clients announce to the tracker")
    if announce.role is PeerRole.CLIENT:
        if known is not None:
            raise _refused(announce, f"it is the id of a {known.role.value}")
    elif not sender.is_host:
        raise _refused(announce, f"{sender.name or 'its sender'} is no host of the cluster")
    elif known is not None and known.role is not announce.role:
        raise _refused(announce, f"it is the id of a {known.role.value}")
    elif sender.certificate is not None and sender.certificate != (announce.role.value, announce.peer):
        raise _refused(announce, f"its certificate is for {' '.join(sender.certificate)}")
    is_proven = sender.certificate is None or address_of(announce.host) in map(address_of, sender.addresses)
    return replace(announce, host=announce.host if is_proven and _is_place_of(known, announce.host) else "")


def _is_place_of(known: RegisteredHost | None, said: str) -> bool:
    """Whether a host is registered under this address. A host that is registered by name knows
    best which address the name has.
    """
    if known is None or not address_of(said):
        return False
    return address_of(known.host) in ("", address_of(said))


def _refused(announce: SwarmAnnounce, why: str) -> TorrentdistError:
    return TorrentdistError("forbidden", detail=f"{announce.peer!r} may not announce as {announce.role.value}: {why}")
