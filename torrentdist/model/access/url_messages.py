"""What the API says about URLs that carry a capability: the request, the answer, and what gateways
need to verify them.
"""

from typing import Final

import msgspec

from torrentdist.model.wire.view import View

URL_ROLE: Final = "url"
"""The role in the token record that each URL has. No token has it, so it opens nothing else."""
KEY_ROLE: Final = "url-key"
KEY_NAME: Final = "url-key"
"""The role and the name of the record that changes the key of URLs."""


class UrlBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """POST /v1/urls: a new capability."""

    bundles: str
    """An id of a bundle, or a pattern of ids."""
    path: str = ""
    """A file or a directory inside the bundle; empty: all of it."""
    ttl_secs: float


class UrlView(View, frozen=True, kw_only=True):
    """A capability that was made. `token revoke NAME` ends it."""

    name: str
    bundles: str
    path: str
    expires_at: float
    created_by: str
    capability: str = ""
    """What opens gateways. Empty: nothing was made, and in the records."""


class NewUrlView(View, frozen=True, kw_only=True):
    """The answer of `url`, which alone shows the URL."""

    name: str
    bundles: str
    path: str
    expires_at: float
    url: str


class UrlKeyView(View, frozen=True, kw_only=True):
    """Since when capabilities are signed with the key that counts now, by ZooKeeper's clock."""

    since: float


class UrlTrustView(View, frozen=True, kw_only=True):
    """GET /v1/urls/trust: what a gateway needs to verify capabilities by itself."""

    cluster: str
    key: str
    """The public key, as configurations name keys."""
    since: float
    """When this key replaced the one before; 0: it is the first."""
    now: float
    """ZooKeeper's time."""
    revoked: dict[str, float]
    """The names of capabilities that were revoked, each with the time at which it ends anyway."""
