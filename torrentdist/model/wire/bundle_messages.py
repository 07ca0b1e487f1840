"""Answers about bundles, and about uploads that send their bytes through the leader."""

from __future__ import annotations

import msgspec

from torrentdist.model.ids import BundleId, Digest, MasterId
from torrentdist.model.records import BundleState
from torrentdist.model.wire.view import View


class BundleView(View, frozen=True, kw_only=True):
    """`bundle ls`, `bundle show`. Lists alone set `age_secs`; only a waiting uploader gets
    `lacking`."""

    id: BundleId
    digest: Digest
    size: int
    files: int
    replicas: int
    min_replicas: int
    holders: list[MasterId]
    created_at: float
    """ZooKeeper's time when the record was made, in seconds since 1970."""
    state: BundleState
    pinned: bool
    age_secs: float | None = None
    """Seconds since `created_at` by ZooKeeper's clock. null: this master does not know that clock
    yet."""
    lacking: dict[MasterId, str] = {}
    """The live masters without a copy, and what each of them waits for."""
    stuck: dict[str, str] = {}
    """The hosts on which the bundle does not arrive, with the reason. Empty in lists."""


class UploadOffset(msgspec.Struct, frozen=True):
    """How far the leader has received the bytes of an upload."""

    offset: int
    """The number of bytes that it has; the next part starts here."""
