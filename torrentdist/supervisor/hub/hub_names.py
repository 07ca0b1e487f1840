"""Finds the bundle that stands for a repository at a revision.

`org/name` at `main` is the bundle `org--name`, at any other revision `org--name--REVISION`. Data
sets and Spaces have `datasets--` and `spaces--` before that. A commit is the beginning of the
bundle's digest, since a digest is the only version of a bundle there is.
Pure: no I/O.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from torrentdist.model import ids
from torrentdist.model.ids import BundleId, Digest

MAIN: Final = "main"
_COMMIT = re.compile(r"[0-9a-f]{40}", re.ASCII)
_COMMIT_DIGITS: Final = 40


class RepositoryKind(StrEnum):
    """The kinds of repositories, as they are called in the library's URLs."""

    MODEL = "models"
    DATASET = "datasets"
    SPACE = "spaces"
    KERNEL = "kernels"


class Repository(msgspec.Struct, frozen=True):
    kind: RepositoryKind
    name: str
    """`org/name`, or a name alone."""

    @property
    def _prefix(self) -> str:
        of_kind = "" if self.kind is RepositoryKind.MODEL else f"{self.kind}--"
        return of_kind + self.name.replace("/", "--")

    def bundle(self, revision: str) -> BundleId:
        """Returns the id of the bundle, or raises `invalid_id` if no bundle can have it."""
        return ids.bundle_id(self._prefix if revision == MAIN else f"{self._prefix}--{revision}")

    def bundles_at(self, commit: str, bindings: Mapping[BundleId, Digest]) -> list[BundleId]:
        """Returns the bundles of this repository whose content is this commit.

        `bindings`: the names that this host knows, with their digests.
        """
        main = self.bundle(MAIN)
        if commit_of(bindings.get(main, Digest(""))) == commit:
            return [main]
        own = f"{self._prefix}--"
        return sorted(name for name, digest in bindings.items() if name.startswith(own) and commit_of(digest) == commit)


def is_commit(revision: str) -> bool:
    return _COMMIT.fullmatch(revision) is not None


def commit_of(digest: Digest) -> str:
    """Returns the commit that stands for this content."""
    return digest[:_COMMIT_DIGITS]
