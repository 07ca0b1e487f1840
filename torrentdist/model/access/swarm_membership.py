"""What proves that a process is a member of the cluster's swarms: a certificate of the swarm CA.

It says which bundles its holder may exchange: all, or those whose names on the wire it lists.
Never: say who the member is.
"""

import hashlib
import math
from collections.abc import Iterable
from typing import Final

import msgspec

from torrentdist.model.ids import Digest

ANY_BUNDLE: Final = "*"
NO_BUNDLE: Final = "none"
"""Stands in a certificate for no bundle at all. No name on the wire is like it."""


def name_on_wire(digest: str) -> str:
    """Returns the name of a bundle's torrent where the swarm has TLS. It tells the digest to nobody
    who does not know it: peers see the names in each other's certificates."""
    return hashlib.sha256(b"torrentdist swarm " + digest.encode()).hexdigest()[:32]


def names_on_wire(digests: Iterable[Digest]) -> tuple[str, ...]:
    return tuple(map(name_on_wire, digests)) or (NO_BUNDLE,)


class SwarmMembership(msgspec.Struct, frozen=True, kw_only=True):
    """One CA of the swarm, and a certificate of it with its key, all as PEM texts."""

    ca: str
    """Part of the hash under which peers of this CA exchange a bundle, so every byte counts."""
    certificate: str
    key: str
    names: frozenset[str] = frozenset({ANY_BUNDLE})
    begins_at: float
    expires_at: float

    def covers(self, digest: Digest) -> bool:
        """Whether peers accept it in the swarm of this bundle."""
        return ANY_BUNDLE in self.names or name_on_wire(digest) in self.names

    def is_valid(self, now: float) -> bool:
        return self.begins_at <= now < self.expires_at

    def is_due(self, now: float) -> bool:
        """Whether half of the certificate's life is over, or its life has not begun."""
        return now < self.begins_at or now >= (self.begins_at + self.expires_at) / 2


NO_TLS: Final = SwarmMembership(ca="", certificate="", key="", begins_at=0.0, expires_at=math.inf)
"""Stands for the swarm without TLS, beside memberships of those with it."""
