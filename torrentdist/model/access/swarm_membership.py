"""What proves that a process is a member of the cluster's swarms: a certificate of the swarm CA.

Never: say who the member is, or which bundles it may have.
"""

import math
from typing import Final

import msgspec


class SwarmMembership(msgspec.Struct, frozen=True, kw_only=True):
    """One CA of the swarm, and a certificate of it with its key, all as PEM texts."""

    ca: str
    """Part of the hash under which peers of this CA exchange a bundle, so every byte counts."""
    certificate: str
    key: str
    begins_at: float
    expires_at: float

    def is_due(self, now: float) -> bool:
        """Whether half of the certificate's life is over."""
        return now >= (self.begins_at + self.expires_at) / 2


NO_TLS: Final = SwarmMembership(ca="", certificate="", key="", begins_at=0.0, expires_at=math.inf)
"""Stands for the swarm without TLS, beside memberships of those with it."""
