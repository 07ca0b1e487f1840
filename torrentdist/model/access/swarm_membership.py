"""What proves that a process is a member of the cluster's swarms: a certificate of the swarm CA.

Never: says who the member is, or which bundles it may have.
"""

from __future__ import annotations

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
