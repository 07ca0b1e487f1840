"""The record of a token in ZooKeeper.

Always: it holds a hash of the token's secret, never the secret.
"""

from torrentdist.model.records import Record


class TokenRecord(Record, frozen=True, kw_only=True):
    """/tokens/<name>. All times are by ZooKeeper's clock."""

    name: str
    role: str
    bundles: str = "*"
    """The pattern of bundle ids that binds all that its holder does, unless it is an operator's."""
    reads: str | None = None
    """A further pattern of bundle ids that its holder may read; empty: none. None: the token was
    made before patterns bound what is read, and reads everything."""
    hash: str
    """SHA-256 of the secret, in hex."""
    created_at: float
    created_by: str = ""
    """The name of the sender who made it."""
    expires_at: float | None = None
    """None: never."""
    revoked_at: float | None = None
    """None: it was not revoked."""
    max_bytes: int = 0
    """Most bytes that the bundles of its holder may have together; 0: no limit."""
    max_distributions: int = 0
    """Most distributions of its holder that may run at once; 0: no limit."""

    def is_usable(self, now: float) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)
