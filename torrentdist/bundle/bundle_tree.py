"""The directories of a bundle as its metafile describes them, to look up and to list.

Always: a lookup follows symlinks as the kernel does. A listing does not follow a symlink to a
directory, so that a walk through the bundle ends and meets each file once.
Pure: no I/O.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from enum import StrEnum

import msgspec

from torrentdist.bundle.metafile import FileEntry, Metafile

MOST_LINKS = 40
"""The number of symlinks that Linux follows in one lookup."""


class NodeKind(StrEnum):
    FILE = "file"
    DIRECTORY = "directory"
    LINK = "other"
    """A symlink to a directory, or to nothing. fsspec knows no better word."""


class TreeNode(msgspec.Struct, frozen=True):
    """A file, a directory or a symlink of a bundle."""

    path: str
    """The path as it was asked for; empty for the bundle itself."""
    kind: NodeKind
    file: FileEntry | None = None
    """The file, or the file that a symlink leads to."""
    target: str | None = None
    """The target of a symlink, as it was written."""


class BundleTree:
    """All paths of one bundle."""

    def __init__(self, meta: Metafile) -> None:
        self._files = {file.path: file for file in meta.files}
        self._links = {link.path: link.target for link in meta.symlinks}
        self._children: dict[str, list[str]] = defaultdict(list)
        self._children[""] = []
        for path in meta.directories:
            self._children[path] = []
        for path in sorted({*self._files, *self._links, *meta.directories}):
            self._children[path.rpartition("/")[0]].append(path.rpartition("/")[2])

    def find(self, path: str) -> TreeNode | None:
        """Returns what `path` names, with every symlink followed; None if there is nothing."""
        real = self._resolve(path)
        if real is None:
            return None
        target = self._links.get(path)
        if (file := self._files.get(real)) is not None:
            return TreeNode(path, NodeKind.FILE, file, target)
        return TreeNode(path, NodeKind.DIRECTORY, None, target) if real in self._children else None

    def list(self, path: str) -> list[TreeNode]:
        """Returns the entries of a directory, by name."""
        return [*self.entries(path)]

    def entries(self, path: str, first: str = "") -> Iterator[TreeNode]:
        """Yields the entries of a directory by name, from the name `first` on. Entries that are not
        taken cost nothing."""
        real = self._resolve(path)
        names = self._children.get(real, []) if real is not None else []
        for number in range(bisect_left(names, first), len(names)):
            name = names[number]
            yield self._entry(f"{path}/{name}".lstrip("/"), f"{real}/{name}".lstrip("/"))

    def _entry(self, path: str, own: str) -> TreeNode:
        """Returns an entry of a directory. `own` is its path without symlinks before its name."""
        target = self._links.get(own)
        found = self.find(own)
        if target is not None and (found is None or found.kind is NodeKind.DIRECTORY):
            return TreeNode(path, NodeKind.LINK, None, target)
        assert found is not None
        return TreeNode(path, found.kind, found.file, target)

    def _resolve(self, path: str) -> str | None:
        """Returns the path without symlinks; None if one of them leads to nothing."""
        ahead, links = path.split("/")[::-1], 0
        there: list[str] = []
        while ahead:
            name = ahead.pop()
            if name in ("", "."):
                continue
            if name == "..":
                if not there:
                    return None
                there.pop()
                continue
            there.append(name)
            here = "/".join(there)
            if (target := self._links.get(here)) is not None:
                links += 1
                if links > MOST_LINKS:
                    return None
                there.pop()
                ahead += target.split("/")[::-1]
            elif here not in self._files and here not in self._children:
                return None
        return "/".join(there)
