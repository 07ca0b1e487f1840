"""Makes the answers about a repository for the hub's library: its files, their sizes and tags.

Always: a tag depends on a file's content alone, so that the library keeps equal files once. A
symlink to a file is shown as that file.
Never: do I/O, or show `.cache/huggingface`, in which the library itself keeps notes about a
directory.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from torrentdist.bundle.bundle_tree import BundleTree, NodeKind, TreeNode
from torrentdist.bundle.metafile import FileEntry

_NOTES: Final = ".cache/huggingface"


class HubFile(msgspec.Struct, frozen=True, rename="camel"):
    """A file in the answer about a repository."""

    rfilename: str
    size: int
    blob_id: str


class RepositoryView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A repository at one revision."""

    id: str
    model_id: str
    author: str | None
    sha: str
    """The commit, which the library asks for from then on."""
    siblings: list[HubFile]
    private: bool = False
    gated: bool = False
    disabled: bool = False
    downloads: int = 0
    likes: int = 0
    tags: list[str] = []


class HubEntry(msgspec.Struct, frozen=True):
    """A file or a directory of a repository."""

    type: str
    path: str
    oid: str
    size: int


class HubBranch(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    ref: str
    target_commit: str


class HubRefs(msgspec.Struct, frozen=True):
    """The revisions that this host knows of a repository."""

    branches: list[HubBranch]
    tags: list[HubBranch] = []
    converts: list[HubBranch] = []


def file_at(tree: BundleTree, path: str) -> FileEntry | None:
    """Returns the file of this path; None if the repository shows none there."""
    found = None if _is_hidden(path) else tree.find(path)
    return found.file if found is not None else None


def files(tree: BundleTree) -> list[HubFile]:
    """Returns all files of the repository."""
    return [
        HubFile(node.path, node.file.size, node.file.tag)
        for node in _below(tree, "", recursive=True)
        if node.file is not None
    ]


def entries(tree: BundleTree, path: str, *, recursive: bool, after: str = "") -> Iterator[HubEntry] | None:
    """Yields the entries of a directory, by name; None if there is no such directory.

    `after`: a path below the directory. Only entries behind it are yielded. Entries are made one by
    one, so those that the caller does not take cost nothing.
    """
    top = None if _is_hidden(path) else tree.find(path)
    if top is None or top.kind is not NodeKind.DIRECTORY:
        return None
    return map(_entry, _below(tree, path, recursive=recursive, after=after))


def _below(tree: BundleTree, path: str, *, recursive: bool, after: str = "") -> Iterator[TreeNode]:
    first, _, rest = after.partition("/")
    for node in tree.entries(path, first):
        if node.kind is NodeKind.LINK or _is_hidden(node.path):
            continue
        is_first = bool(first) and node.path.rpartition("/")[2] == first
        if not is_first:
            yield node
        if recursive and node.kind is NodeKind.DIRECTORY:
            yield from _below(tree, node.path, recursive=True, after=rest if is_first else "")


def _entry(node: TreeNode) -> HubEntry:
    if node.file is None:
        return HubEntry("directory", node.path, "v2-directory", 0)
    return HubEntry("file", node.path, node.file.tag, node.file.size)


def _is_hidden(path: str) -> bool:
    return path == _NOTES or path.startswith(f"{_NOTES}/")
