"""Tokens: their record in ZooKeeper, and what the API says about them and about the sender of a
request.

Always: a record holds a hash of the token's secret, never the secret.
"""

from enum import StrEnum

import msgspec

from torrentdist.model.ids import SupervisorId
from torrentdist.model.records import Record
from torrentdist.model.wire.view import View


class TokenState(StrEnum):
    USABLE = "usable"
    EXPIRED = "expired"
    REVOKED = "revoked"


class TokenBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """POST /v1/tokens: a new token. The client makes its secret and sends only the hash."""

    name: str
    role: str
    bundles: str = "*"
    reads: str = ""
    """A further pattern of bundles that its holder may read; empty: none."""
    ttl_secs: float | None = None
    """None: it never expires."""
    hash: str = ""
    """SHA-256 of the secret, in hex."""
    max_bytes: int = 0
    max_distributions: int = 0


class QuotaBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """PUT /v1/tokens/<name>/quota. None: as before. 0: no limit."""

    max_bytes: int | None = None
    max_distributions: int | None = None


class QuotaView(View, frozen=True, kw_only=True):
    """What the holder of a token may use, and uses."""

    name: str
    max_bytes: int
    """0: no limit."""
    bytes: int
    """Total size of the bundles that it uploaded and that are not removed."""
    max_distributions: int
    """0: no limit."""
    distributions: int
    """Number of its distributions that run now."""


class TokenView(View, frozen=True, kw_only=True):
    """One token, as anybody may see it."""

    name: str
    role: str
    bundles: str
    state: TokenState
    created_at: float
    created_by: str
    expires_at: float | None
    has_quota: bool = False
    """Whether its holder may use a limited part of the cluster."""
    reads: str | None = None
    """The patterns of the bundles that it may read, with a comma between two. None: everything,
    because it was made before patterns bound what is read."""


class NewTokenView(View, frozen=True, kw_only=True):
    """The answer of `token create`, which alone shows the token."""

    name: str
    role: str
    bundles: str
    expires_at: float | None
    token: str
    reads: str | None = None
    """None: everything, because its masters have an older release."""


class HostPassesView(View, frozen=True, kw_only=True):
    """Passes with which their holder may read at hosts, for a quarter of an hour."""

    hosts: dict[SupervisorId, str]
    """A pass for each registered supervisor."""


class WhoamiView(View, frozen=True, kw_only=True):
    """The sender of a request, as the master that answers knows it."""

    name: str
    role: str
    bundles: str
    expires_at: float | None
    how: str
    """The proof: `none`, `token`, `token-file`, `certificate`."""
    reads: str = "*"
    """What it may read: patterns of bundles, and for a job its bundles, with a comma between
    two."""


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
