"""Holds on a host's bundles: the request and the answers of /v1/host/holds at a supervisor.

docs/protocol.md promises these keys.

Always: a key may be added.
Never: change the meaning of a key.
"""

from typing import Annotated

import msgspec

from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.wire.view import View

Text = Annotated[str, msgspec.Meta(max_length=512)]
Path = Annotated[str, msgspec.Meta(max_length=4096)]


class HoldBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of PUT /v1/host/holds/<name>: what is mounted where, and for whom."""

    bundle: Text
    """Empty: the one under whose id this host knows the content."""
    digest: Text
    target: Path
    """The directory at which it is mounted."""
    path: Path = ""
    """The directory inside the bundle that is mounted; empty: all of it."""
    user: Text = ""
    """The name of its reader, for display, such as `team-a/etl-driver`."""


class HoldView(View, frozen=True, kw_only=True):
    """One hold: the answer of PUT, and an entry of GET /v1/host/holds."""

    name: str
    bundle: BundleId
    digest: Digest
    target: str
    path: str = ""
    user: str = ""
    taken_at: float
    """By this host's clock, in seconds since 1970."""
    content: str = ""
    """The published content; empty while it is damaged and being fetched again."""
    size: int = 0
    files: int = 0
    removed: bool = False
    """Whether the cluster has removed the bundle. This host keeps it until its last hold ends."""
