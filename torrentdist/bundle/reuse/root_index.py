"""Remembers which files the published bundles hold, by the roots of their content.

A root is the same for every piece length, so a file is found in any bundle and under any path.
Always: it takes 8 bytes of memory per file, and forgetting a bundle costs nothing.
Never: be trusted for content. Different roots may begin alike, and a file may have changed since.
"""

import threading
from array import array
from collections.abc import Iterable, Set

from torrentdist.model.ids import Digest

Hint = int
"""The beginning of a root."""
_BYTES = 8


def hint_of(root: bytes) -> Hint:
    return int.from_bytes(root[:_BYTES])


class RootIndex:
    """Several threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hints: dict[Digest, array[int]] = {}

    def digests(self) -> Set[Digest]:
        with self._lock:
            return set(self._hints)

    def add(self, digest: Digest, roots: Iterable[bytes]) -> None:
        """Adds a bundle's files. Empty files, which have no root, are left out."""
        hints = array("Q", [hint_of(root) for root in roots if root])
        with self._lock:
            self._hints[digest] = hints

    def drop(self, digest: Digest) -> None:
        with self._lock:
            self._hints.pop(digest, None)

    def alike(self, digests: Set[Digest]) -> set[Digest]:
        """Returns the other bundles that probably hold some of the same files."""
        with self._lock:
            hints = set[Hint]().union(*(self._hints[digest] for digest in digests if digest in self._hints))
        return set(self.find(hints)) - digests if hints else set()

    def find(self, wanted: Set[Hint]) -> dict[Digest, set[Hint]]:
        """Returns the bundles that probably hold some of these files, with the files that each
        holds."""
        with self._lock:
            known = list(self._hints.items())
        hints_of = frozenset(wanted).intersection  # copied once, not for each bundle
        return {digest: set(found) for digest, hints in known if (found := hints_of(hints))}
