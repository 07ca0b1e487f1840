"""Reads the file tree of a metafile from its bytes, one file at a time.

A tree of nested dictionaries would take thirty times the memory of its bytes, so none is made.
Always: names, paths and their number are checked before a file is returned. Never: recurse.
"""

from collections.abc import Iterator

import msgspec

from torrentdist.bundle import bencode, merkle, safe_paths
from torrentdist.bundle.bencode import BencodeError
from torrentdist.model.errors import TorrentdistError

MAX_PIECES = 1 << 21
"""libtorrent's own default limit."""
MAX_PIECE_LENGTH = 16 * 1024 * 1024
_MOST_SHOWN = 200
"""Most bytes of a string that a message shows."""
_LEAF_VALUES = 20
"""Most values that are decoded to tell what is wrong with an entry. No file has as many."""


class TreeFile(msgspec.Struct, frozen=True, gc=False):
    """A file with the values that the tree holds about it."""

    path: bytes
    size: int
    root: bytes
    """The Merkle root of its content; empty for an empty file."""


class FileEntry(msgspec.Struct, frozen=True, gc=False):
    """A file of a bundle."""

    path: str
    size: int
    root: bytes
    """The Merkle root of its content; empty for an empty file."""
    executable: bool

    @property
    def tag(self) -> str:
        """Returns a tag of its content for HTTP. It does not look like a hash that other programs
        know, such as an MD5: they would compare it with what they have on disk."""
        return f"v2-{self.root.hex() or 'empty'}"


class _Directory:
    """A directory that is being read. `prefix`: its path with a slash; empty for the top."""

    __slots__ = ("last", "prefix")

    def __init__(self, prefix: bytes) -> None:
        self.prefix = prefix
        self.last = b""
        """The last name that was read in it. Empty: there was none."""


def refused(detail: str) -> TorrentdistError:
    """Returns the error for a metafile with this fault."""
    return TorrentdistError("invalid_metafile", detail=detail)


def shown(text: bytes) -> str:
    """Returns the beginning of a string for a message."""
    return repr(text[:_MOST_SHOWN].decode("utf-8", "replace"))


def read_tree(data: bytes, depth: int = safe_paths.MAX_DEPTH) -> Iterator[TreeFile]:
    """Yields the files of a tree in its order. `data` is the tree's dictionary, encoded. `depth`
    limits its levels."""
    if data[:1] != b"d":
        raise refused("the file tree is missing or no dictionary")
    open_ones = [_Directory(b"")]
    pos, entries, path_bytes = 1, 0, 0
    while open_ones:
        here = open_ones[-1]
        if data[pos : pos + 1] == b"e":
            if not here.last:
                raise refused("the file tree has a directory without files")
            open_ones.pop()
            pos += 1
            continue
        name, pos = bencode.read_string(data, pos)
        path = _path(here, name, pos)
        leaf = bencode.LEAF.match(data, pos)
        path_bytes += len(path) if leaf else 0
        entries += 1
        if entries > 2 * safe_paths.MAX_ENTRIES or path_bytes > safe_paths.MAX_ALL_PATHS_BYTES:
            raise refused(f"it has more than {safe_paths.MAX_ENTRIES} files, or too long paths in total")
        if leaf:
            pos = leaf.end()
            yield _file(path, int(leaf[1]), leaf[2] or b"")
        elif data[pos : pos + 3] == b"d0:":
            raise refused(_fault(path, data, pos))
        elif data[pos : pos + 1] == b"d":
            if len(open_ones) >= depth:
                raise refused(f"the file tree is deeper than {depth} levels")
            open_ones.append(_Directory(path + b"/"))
            pos += 1
        else:
            raise refused("an entry of the file tree is missing or no dictionary")


def _path(here: _Directory, name: bytes, pos: int) -> bytes:
    """Returns the path of a name; checked before it is joined, so that it cannot become another."""
    if problem := safe_paths.name_problem(name):
        raise refused(f"the name {shown(name)} cannot be used: {problem}")
    if name <= here.last:
        raise BencodeError(f"the keys of a dictionary are not sorted and unique at byte {pos}")
    here.last = name
    path = here.prefix + name
    if len(path) > safe_paths.MAX_PATH_BYTES:
        raise refused(f"the path {shown(path)} is longer than {safe_paths.MAX_PATH_BYTES} bytes")
    return path


def _file(path: bytes, size: int, root: bytes) -> TreeFile:
    if size > MAX_PIECES * MAX_PIECE_LENGTH:
        raise refused(f"the size of {shown(path)} is missing or out of bounds")
    if len(root) != (merkle.HASH if size else 0):
        raise refused(f"the pieces root of {shown(path)} does not fit its size")
    return TreeFile(path, size, root)


def _fault(path: bytes, data: bytes, pos: int) -> str:
    """Says why what stands at `pos` is no file."""
    try:
        node, _ = bencode.decode_at(data, pos, most=_LEAF_VALUES)
    except BencodeError as exc:
        return f"{shown(path)} is no file: {exc}"
    assert isinstance(node, dict)  # it begins like one
    leaf = node[b""]
    if len(node) > 1:
        return f"{shown(path)} is a file and a directory at once"
    if not isinstance(leaf, dict):
        return "a file of the file tree is missing or no dictionary"
    if not isinstance(size := leaf.get(b"length"), int) or not 0 <= size <= MAX_PIECES * MAX_PIECE_LENGTH:
        return f"the size of {shown(path)} is missing or out of bounds"
    root = leaf.get(b"pieces root", b"")
    if not isinstance(root, bytes) or len(root) != (merkle.HASH if size else 0):
        return f"the pieces root of {shown(path)} does not fit its size"
    return f"{shown(path)} has unknown attributes"
