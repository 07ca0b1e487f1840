"""What `bundle prune` answers, for a host and for the cluster.

These keys are promised in docs/protocol.md. A key may be added; none changes its meaning.
"""

from __future__ import annotations

from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.wire.view import View


class KeptView(View, frozen=True, kw_only=True):
    """A bundle that `bundle prune` leaves in a host's store."""

    digest: Digest
    ids: list[BundleId]
    reasons: list[str]
    """pinned, assigned, in_use, last_copy, copies_unknown, used_lately."""


class PruneView(View, frozen=True, kw_only=True):
    removed: list[Digest]
    freed_bytes: int
    kept: int
    stays: tuple[KeptView, ...] = ()
    """Why the others stay."""


class UnusedView(View, frozen=True, kw_only=True):
    """`bundle prune --cluster`: what was removed, or would be."""

    removed: list[BundleId]
    bytes: int
    kept: int
