"""What all hosts are told of the bundles that were removed last.

Always: a mark tells nothing to those who do not know the bundle's id and its digest.
"""

import functools
import hashlib
from typing import Final

from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.records import Record

REMOVED_KEEPS_ID: Final = "that bundle was removed, and keeps its id"
"""The note of a `conflict` about an id whose bundle was removed."""


class RemovalsRecord(Record, frozen=True, kw_only=True):
    """/removals: the marks of the newest tombstones. A bundle that is uploaded again leaves the
    list."""

    marks: tuple[str, ...] = ()


@functools.lru_cache(maxsize=256)  # a leader names the same hundred after each removal
def removal_mark(bundle: BundleId, digest: Digest) -> str:
    return hashlib.sha256(f"removed {bundle} {digest}".encode()).hexdigest()[:32]
