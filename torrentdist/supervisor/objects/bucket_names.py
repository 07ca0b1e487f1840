"""Maps ids of bundles to names of buckets, and back.

S3 allows fewer characters in a bucket's name than an id may have, and some clients check names.
Always: two bundles have two names. An id that is a bucket's name keeps it, unless it begins like a
mapped one.
Pure: no I/O.

    etl-42          etl-42
    My_model-7.1    x--my-0model-17-21
"""

import re
from typing import Final

from torrentdist.model import ids
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId

PREFIX: Final = "x-"
LONGEST: Final = 63
_BUCKET: Final = re.compile(r"[a-z0-9](?:[a-z0-9]|-(?!\.)|\.(?![.-])){1,61}[a-z0-9]", re.ASCII)
_ADDRESS: Final = re.compile(r"\d+\.\d+\.\d+\.\d+", re.ASCII)
_CODES: Final = {"_": "0", "-": "1", ".": "2"}
_SPECIAL: Final = {code: text for text, code in _CODES.items()}


def bucket_of(bundle: BundleId) -> str:
    """Returns the bucket's name. An id whose name would be too long is its own name, which clients
    that check names refuse."""
    is_bucket = _BUCKET.fullmatch(bundle) is not None and _ADDRESS.fullmatch(bundle) is None
    if is_bucket and not bundle.startswith(PREFIX):
        return bundle
    mapped = PREFIX + re.sub("[^a-z0-9]", lambda found: f"-{_CODES.get(found[0], found[0].lower())}", bundle)
    return mapped if len(mapped) <= LONGEST else bundle


def bundle_of(bucket: str) -> BundleId:
    """Returns the bundle of a bucket, which may also be named by its id. Raises `invalid_id`."""
    if bucket.startswith(PREFIX):
        text = re.sub("-(.)", lambda found: _SPECIAL.get(found[1], found[1].upper()), bucket.removeprefix(PREFIX))
        try:
            bundle = ids.bundle_id(text)
        except TorrentdistError:
            return ids.bundle_id(bucket)
        if bucket_of(bundle) == bucket:
            return bundle
    return ids.bundle_id(bucket)
