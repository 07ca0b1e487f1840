"""The answers of `bundle prune`, for one host and for the cluster.

docs/protocol.md promises these keys.
Always: a key may be added.
Never: change the meaning of a key.
"""

from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.wire.view import View


class KeptView(View, frozen=True, kw_only=True):
    """A bundle that `bundle prune` leaves in a host's store."""

    digest: Digest
    ids: list[BundleId]
    reasons: list[str]
    """pinned, assigned, assignment_unknown, in_use, last_copy, copies_unknown, used_lately."""


class GoingView(View, frozen=True, kw_only=True):
    """A bundle that `bundle prune` removes from a host's store: nobody here has a claim on it."""

    digest: Digest
    ids: list[BundleId]
    size: int
    unused_secs: float
    """Since it was last used on this host."""
    copies_elsewhere: int
    """Live masters that hold it."""


class PruneView(View, frozen=True, kw_only=True):
    removed: list[Digest]
    freed_bytes: int
    kept: int
    stays: tuple[KeptView, ...] = ()
    """The bundles that stay, and why."""
    goes: tuple[GoingView, ...] = ()
    """The bundles that go, and why they may."""


class UnprunedView(View, frozen=True, kw_only=True):
    """A bundle that `bundle prune --cluster` keeps."""

    id: BundleId
    reasons: list[str]
    """pinned, uploading, needed (by a live job), assigned (to a host), distributed, standing (an
    order), promised (to hosts for a time), written_lately."""


class UnusedBundle(View, frozen=True, kw_only=True):
    """A bundle that no job needs, that no host is told to keep, and that is not pinned."""

    id: BundleId
    size: int
    unchanged_secs: float
    """Since its record was last written."""


class UnusedView(View, frozen=True, kw_only=True):
    """The answer of `bundle prune --cluster`: the bundles that were removed, or would be."""

    removed: list[BundleId]
    bytes: int
    kept: int
    stays: tuple[UnprunedView, ...] = ()
    """The bundles that stay, and why."""
    goes: tuple[UnusedBundle, ...] = ()
    """The bundles that go, and for how long nobody has changed them."""
