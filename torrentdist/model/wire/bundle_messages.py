"""Answers about bundles, and about uploads that send their bytes through the leader."""

from __future__ import annotations

import msgspec

from torrentdist.model.access.envelope import Envelope
from torrentdist.model.ids import BundleId, Digest, MasterId
from torrentdist.model.records import BundleState
from torrentdist.model.wire.view import View


class BundleView(View, frozen=True, kw_only=True):
    """The answer of `bundle show`, and an entry of `bundle ls`. Only lists set `age_secs`, and only
    a waiting uploader gets `lacking`."""

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
    stuck: dict[str, str] = {}
    """The hosts on which the bundle does not arrive, with the reason. Empty in lists."""
    signers: list[str] = []
    """The ids of the keys that have signed it, as the record says."""
    signatures: list[Envelope] = []
    """Their signatures. Empty in lists."""


class UploadOffset(msgspec.Struct, frozen=True):
    """How many bytes of an upload the leader has received."""

    offset: int
    """The number of bytes received. The next part starts here."""
