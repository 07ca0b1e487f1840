"""The objects of one bundle in the order of S3, and its pages.

Always: keys are in the order of their bytes, and a page begins where the one before it ended. A
symlink to a file is an object with that file's content. A directory is none.
Pure: no I/O.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import msgspec

from torrentdist.bundle.bundle_tree import BundleTree
from torrentdist.bundle.metafile import Metafile


class ObjectIndex:
    """All objects of one bundle."""

    def __init__(self, meta: Metafile, tree: BundleTree) -> None:
        found = {file.path: file for file in meta.files}
        for link in meta.symlinks:
            node = tree.find(link.path)
            if node is not None and node.file is not None:
                found[link.path] = node.file
        pairs = sorted((path.encode(), file) for path, file in found.items())
        self.keys = [key for key, _ in pairs]
        self.files = [file for _, file in pairs]


class PageRequest(msgspec.Struct, frozen=True):
    prefix: bytes = b""
    delimiter: bytes = b""
    """Keys that go on beyond it are shown once, as their common prefix."""
    after: bytes = b""
    """The page begins after this key or common prefix."""
    most: int = 1000


class ObjectPage(msgspec.Struct, frozen=True):
    objects: list[int] = msgspec.field(default_factory=list)
    """Places of the page's objects in the index."""
    prefixes: list[bytes] = msgspec.field(default_factory=list)
    last: bytes = b""
    """The key or the common prefix at which the page ends."""
    is_cut: bool = False
    """Whether there is more after it."""


def list_page(keys: Sequence[bytes], wanted: PageRequest) -> ObjectPage:
    """Returns one page of the keys, which are sorted. It takes as long as the page has entries, and
    not as the bundle has objects."""
    prefix, delimiter, after = wanted.prefix, wanted.delimiter, wanted.after
    objects: list[int] = []
    prefixes: list[bytes] = []
    last = b""
    place = max(bisect_left(keys, prefix), bisect_right(keys, after))
    while place < len(keys) and keys[place].startswith(prefix):
        shared = _common_prefix(keys[place], prefix, delimiter)
        if shared is not None and shared <= after:
            place = _behind(keys, shared, place)
            continue
        if len(objects) + len(prefixes) == wanted.most:
            return ObjectPage(objects, prefixes, last, is_cut=wanted.most > 0)
        if shared is None:
            objects.append(place)
            last, place = keys[place], place + 1
        else:
            prefixes.append(shared)
            last, place = shared, _behind(keys, shared, place)
    return ObjectPage(objects, prefixes, last)


def _common_prefix(key: bytes, prefix: bytes, delimiter: bytes) -> bytes | None:
    if not delimiter:
        return None
    at = key.find(delimiter, len(prefix))
    return None if at < 0 else key[: at + len(delimiter)]


def _behind(keys: Sequence[bytes], shared: bytes, low: int) -> int:
    """Returns the place of the first key from `low` on that does not begin with `shared`."""
    stem = shared.rstrip(b"\xff")
    if not stem:
        return len(keys)
    return bisect_left(keys, stem[:-1] + bytes([stem[-1] + 1]), low)
