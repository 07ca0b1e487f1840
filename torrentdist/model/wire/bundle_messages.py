"""Answers about bundles, about uploads that send their bytes through the leader, and of `bundle
prune`, for one host and for the cluster.

docs/protocol.md promises these keys.

Always: a key may be added.
Never: change the meaning of a key.
"""

from typing import Self

import msgspec

from torrentdist.model.access.envelope import Envelope
from torrentdist.model.ids import BundleId, Digest, MasterId
from torrentdist.model.records import BundleState
from torrentdist.model.wire.view import View


class BundleView(View, frozen=True, kw_only=True):
    """The answer of `bundle show`, and an entry of `bundle ls`. Only lists set `age_secs`, and only
    a waiting uploader gets `lacking` and `arrived`."""

    id: BundleId
    digest: Digest
    size: int
    files: int
    replicas: int
    min_replicas: int
    holders: list[MasterId]
    created_at: float
    """When the record was created, on ZooKeeper's clock, in seconds since 1970."""
    state: BundleState
    pinned: bool
    age_secs: float | None = None
    """Seconds since `created_at` by ZooKeeper's clock; null if this master does not know that clock
    yet."""
    lacking: dict[MasterId, str] = {}
    """The live masters without a copy, and why each does not have it yet."""
    arrived: int = 0
    """The most bytes that any of these masters has."""
    stuck: dict[str, str] = {}
    """The hosts on which the bundle does not arrive, with the reason. Empty in lists."""
    used_by: dict[str, list[str]] = {}
    """The hosts on which it is mounted, each with who reads it there, such as pods. Empty in
    lists."""
    own_bytes: int | None = None
    """In lists: bytes on the answering master's disk in blocks that no other bundle shares. Null if
    that master does not hold the bundle."""
    signers: list[str] = []
    """The ids of the keys that have signed it, as the record says."""
    signatures: list[Envelope] = []
    """Their signatures. Empty in lists."""


class ReuseView(View, frozen=True, kw_only=True):
    """What a master has already of a bundle: the answer of POST /v1/reuse."""

    size: int
    new_bytes: int
    """Bytes of the files that no bundle of this master holds."""
    reused_bytes: int
    reused_from: list[BundleId]
    """The bundles that hold the rest, the one with the most bytes first."""


class EarlierView(ReuseView, frozen=True, kw_only=True):
    """What earlier bundles of the cluster have of one. `new_bytes` are in none of them."""

    not_compared: int
    """The number of earlier bundles that the master that answers does not hold. Some of the new
    bytes may be in these."""


class BundleDiffView(View, frozen=True, kw_only=True):
    """The result of `bundle diff A B`: how B differs from A."""

    a: BundleId
    b: BundleId
    added: list[str]
    removed: list[str]
    changed: list[str]
    """Paths with other content, another mode or another target in B."""
    size: int
    """Bytes of B."""
    new_bytes: int
    """Bytes that a host with A receives in order to get B."""


class UploadOffset(msgspec.Struct, frozen=True):
    """Where an upload continues. The leader has all bytes before `offset`."""

    offset: int
    """The next part starts here."""
    until: int | None = None
    """The leader also has the bytes from this position on. If it equals `offset`, the leader does
    not know yet what has to be sent. Null: everything has to be sent."""


class KeptView(View, frozen=True, kw_only=True):
    """A bundle that `bundle prune` leaves in a host's store."""

    digest: Digest
    ids: list[BundleId]
    reasons: list[str]
    """pinned, assigned, assignment_unknown, in_use, mounted, last_copy, copies_unknown,
    used_lately."""


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


LISTED_AGAIN = 100
"""Removed bundles that a shortened answer names."""


class UnusedView(View, frozen=True, kw_only=True):
    """The answer of `bundle prune --cluster`: the bundles that were removed, or would be."""

    removed: list[BundleId]
    bytes: int
    kept: int
    stays: tuple[UnprunedView, ...] = ()
    """The bundles that stay, and why."""
    goes: tuple[UnusedBundle, ...] = ()
    """The bundles that go, and for how long nobody has changed them."""
    more: int = 0
    """Removed bundles that are not named. The answer was too large to be kept for a retry."""

    def shortened(self) -> Self:
        more = self.more + max(0, len(self.removed) - LISTED_AGAIN)
        return msgspec.structs.replace(self, removed=self.removed[:LISTED_AGAIN], stays=(), goes=(), more=more)
