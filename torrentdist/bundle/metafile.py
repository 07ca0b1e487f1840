"""The metafile: a BitTorrent v2 torrent whose info dict also covers our manifest, as a value.

Longer than most, since it is one format: each key is parsed and checked by one function.
Always: a Metafile exists only if every path, count, size, hash and symlink in it was checked, so
its users trust it.
Never: touch a disk, or raise anything but `invalid_metafile` for bytes from outside.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import msgspec

from torrentdist.bundle import bencode, merkle, safe_paths
from torrentdist.bundle.bencode import Value
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest

MANIFEST_SCHEMA = 1
DIRECTORY_NAME = "content"
"""The name of every torrent of a directory, so that the digest depends on the content alone."""
MIN_PIECE_LENGTH = 2 * merkle.BLOCK
"""Two blocks. With pieces of one block, libtorrent 2.1.1 (hash_picker::hashes_rejected) writes past
its memory when a peer sends a wrong byte of a file that fits into one piece. One damaged disk would
end every downloader."""
MAX_PIECE_LENGTH = 16 * 1024 * 1024
MAX_PIECES = 1 << 21
"""libtorrent's own default limit."""
MAX_METAFILE_BYTES = 64 * 1024 * 1024
_INFO_KEYS = frozenset({b"file tree", b"meta version", b"name", b"piece length", b"private", b"torrentdist"})
_MANIFEST_KEYS = frozenset({b"empty dirs", b"executable", b"schema", b"single file", b"symlinks"})
_V1_KEYS = frozenset({b"pieces", b"files", b"length"})


class FileEntry(msgspec.Struct, frozen=True):
    path: str
    size: int
    root: bytes
    """The Merkle root of its content; empty for an empty file."""
    executable: bool


class Symlink(msgspec.Struct, frozen=True):
    path: str
    target: str


class Metafile(msgspec.Struct, frozen=True, dict=True):
    digest: Digest
    name: str
    piece_length: int
    single_file: bool
    files: tuple[FileEntry, ...]
    """In the order of the file tree, which is the torrent's order."""
    symlinks: tuple[Symlink, ...]
    empty_dirs: tuple[str, ...]
    piece_layers: Mapping[bytes, bytes]
    raw: bytes

    @cached_property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @cached_property
    def num_pieces(self) -> int:
        return sum(_pieces(file.size, self.piece_length) for file in self.files)

    @cached_property
    def directories(self) -> tuple[str, ...]:
        """Every directory below the top, empty or not, each after its parent."""
        found = set(self.empty_dirs)
        found.update(file.path.rpartition("/")[0] for file in self.files)
        found.update(link.path.rpartition("/")[0] for link in self.symlinks)
        for path in list(found):
            while path := path.rpartition("/")[0]:
                if path in found:
                    break
                found.add(path)
        return tuple(sorted(found - {""}))

    @property
    def file_count(self) -> int:
        return len(self.files)


def metafile_of(raw: bytes, digest: str) -> Metafile:
    """Parses the metafile of `digest`; `corrupt` if it is damaged or belongs to other content."""
    try:
        meta = parse_metafile(raw)
    except TorrentdistError as exc:
        raise TorrentdistError("corrupt", path=f"the metafile of {digest}", detail=exc.message) from exc
    if meta.digest != digest:
        raise TorrentdistError("corrupt", path=f"the metafile of {digest}", detail=f"it belongs to {meta.digest}")
    return meta


def parse_metafile(raw: bytes) -> Metafile:
    """Parses a metafile and checks every claim in it; `invalid_metafile` says which is false."""
    if len(raw) > MAX_METAFILE_BYTES:
        raise _refused(f"it has {len(raw)} bytes, more than {MAX_METAFILE_BYTES}")
    try:
        top, encoded = bencode.decode_dict(raw)
    except bencode.BencodeError as exc:
        raise _refused(f"it is not canonical bencode: {exc}") from None
    info = _info(top)
    manifest = _manifest(info)
    piece_length = _piece_length(info)
    executable = _indexes(manifest.get(b"executable"))
    files = tuple(_files(_as_dict(info.get(b"file tree"), "the file tree"), executable))
    if not executable.issubset(range(len(files))):
        raise _refused("the manifest calls a file executable that is not there")
    metafile = Metafile(
        digest=Digest(hashlib.sha256(encoded[b"info"]).hexdigest()),
        name=_text(info.get(b"name"), "the name"),
        piece_length=piece_length,
        single_file=_as_flag(manifest.get(b"single file")),
        files=files,
        symlinks=tuple(_symlinks(manifest.get(b"symlinks"))),
        empty_dirs=tuple(_empty_dirs(manifest.get(b"empty dirs"))),
        piece_layers=_piece_layers(top, files, piece_length),
        raw=raw,
    )
    _check_whole(metafile)
    return metafile


def with_trackers(raw: bytes, urls: Sequence[str]) -> bytes:
    """Adds trackers for stock clients. The info dict, and so the digest, stays as it is."""
    try:
        _, encoded = bencode.decode_dict(raw)
    except bencode.BencodeError as exc:
        raise _refused(f"it is not canonical bencode: {exc}") from None
    encoded.pop(b"announce", None)
    encoded.pop(b"announce-list", None)
    if urls:
        encoded[b"announce"] = bencode.encode(urls[0].encode())
        encoded[b"announce-list"] = bencode.encode([[url.encode()] for url in urls])
    return bencode.encode_dict_of_encoded(encoded)


def _refused(detail: str) -> TorrentdistError:
    return TorrentdistError("invalid_metafile", detail=detail)


def _pieces(size: int, piece_length: int) -> int:
    return -(-size // piece_length)


def _shown(text: bytes) -> str:
    return repr(text[:200].decode("utf-8", "replace"))


def _as_dict(value: Value | None, what: str) -> dict[bytes, Value]:
    if not isinstance(value, dict):
        raise _refused(f"{what} is missing or no dictionary")
    return value


def _as_flag(value: Value | None) -> bool:
    if not isinstance(value, int) or value not in (0, 1):
        raise _refused("a flag of the manifest is neither 0 nor 1")
    return value == 1


def _text(value: Value | None, what: str) -> str:
    if not isinstance(value, bytes):
        raise _refused(f"{what} is missing or no string")
    if problem := safe_paths.name_problem(value):
        raise _refused(f"{what} {_shown(value)} cannot be used: {problem}")
    return value.decode()


def _info(top: dict[bytes, Value]) -> dict[bytes, Value]:
    info = _as_dict(top.get(b"info"), "the info dictionary")
    if _V1_KEYS & info.keys():
        raise _refused("it is a v1 or hybrid torrent, and only v2 alone is used")
    if info.get(b"meta version") != 2:
        raise _refused("its meta version is not 2")
    if b"torrentdist" not in info:
        raise _refused("it has no torrentdist manifest")
    if info.get(b"private") != 1:
        raise _refused("it is not marked private")
    if unknown := info.keys() - _INFO_KEYS:
        raise _refused(f"its info dictionary has the unknown key {_shown(min(unknown))}")
    return info


def _manifest(info: dict[bytes, Value]) -> dict[bytes, Value]:
    manifest = _as_dict(info.get(b"torrentdist"), "the manifest")
    if (schema := manifest.get(b"schema")) != MANIFEST_SCHEMA:
        shown = schema if isinstance(schema, int) else "no number"
        raise _refused(f"its manifest has schema {shown}, and this release reads {MANIFEST_SCHEMA}")
    if manifest.keys() != _MANIFEST_KEYS:
        raise _refused("its manifest has missing or unknown keys")
    return manifest


def _piece_length(info: dict[bytes, Value]) -> int:
    length = info.get(b"piece length")
    if not isinstance(length, int) or not MIN_PIECE_LENGTH <= length <= MAX_PIECE_LENGTH or length & (length - 1):
        raise _refused(f"its piece length is no power of two from {MIN_PIECE_LENGTH} to {MAX_PIECE_LENGTH}")
    return length


def _indexes(value: Value | None) -> set[int]:
    """Parses numbers of files, which must rise so that a set has one form only."""
    if not isinstance(value, list):
        raise _refused("the manifest's list of executable files is missing")
    last = -1
    result: set[int] = set()
    for item in value:
        if not isinstance(item, int) or item <= last:
            raise _refused("the manifest's list of executable files is not in order")
        last = item
        result.add(item)
    return result


def _files(tree: dict[bytes, Value], executable: set[int]) -> Iterator[FileEntry]:
    """Yields the files in the order of the tree. The decoder has bounded its depth."""
    total = 0
    for index, (path, leaf) in enumerate(_leaves(tree, b"")):
        total += len(path)
        if index >= safe_paths.MAX_ENTRIES or total > safe_paths.MAX_ALL_PATHS_BYTES:
            raise _refused(f"it has more than {safe_paths.MAX_ENTRIES} files, or too long paths in total")
        if problem := safe_paths.path_problem(path):
            raise _refused(f"the path {_shown(path)} cannot be used: {problem}")
        yield _file(path, leaf, index in executable)


def _leaves(tree: dict[bytes, Value], prefix: bytes) -> Iterator[tuple[bytes, dict[bytes, Value]]]:
    if not tree:
        raise _refused("the file tree has a directory without files")
    for name, value in tree.items():
        # Checked before names are joined: a name with '/' or a long chain must not become a path.
        if problem := safe_paths.name_problem(name):
            raise _refused(f"the name {_shown(name)} cannot be used: {problem}")
        path = prefix + name
        if len(path) > safe_paths.MAX_PATH_BYTES:
            raise _refused(f"the path {_shown(path)} is longer than {safe_paths.MAX_PATH_BYTES} bytes")
        node = _as_dict(value, "an entry of the file tree")
        if b"" not in node:
            yield from _leaves(node, path + b"/")
        elif len(node) > 1:
            raise _refused(f"{_shown(path)} is a file and a directory at once")
        else:
            yield path, _as_dict(node[b""], "a file of the file tree")


def _file(path: bytes, leaf: dict[bytes, Value], executable: bool) -> FileEntry:
    size = leaf.get(b"length")
    if not isinstance(size, int) or not 0 <= size <= MAX_PIECES * MAX_PIECE_LENGTH:
        raise _refused(f"the size of {_shown(path)} is missing or out of bounds")
    root = leaf.get(b"pieces root", b"")
    if not isinstance(root, bytes) or len(root) != (merkle.HASH if size else 0):
        raise _refused(f"the pieces root of {_shown(path)} does not fit its size")
    if len(leaf) != (2 if size else 1):
        raise _refused(f"{_shown(path)} has unknown attributes")
    return FileEntry(path.decode(), size, root, executable)


def _symlinks(value: Value | None) -> Iterator[Symlink]:
    for path, target in _as_dict(value, "the manifest's list of symlinks").items():
        if not isinstance(target, bytes):
            raise _refused(f"the symlink {_shown(path)} has no target")
        if problem := safe_paths.path_problem(path) or safe_paths.target_problem(target):
            raise _refused(f"the symlink {_shown(path)} cannot be used: {problem}")
        yield Symlink(path.decode(), target.decode())


def _empty_dirs(value: Value | None) -> Iterator[str]:
    if not isinstance(value, list):
        raise _refused("the manifest's list of empty directories is missing")
    last = b""
    for path in value:
        if not isinstance(path, bytes) or path <= last:
            raise _refused("the manifest's list of empty directories is not in order")
        last = path
        if problem := safe_paths.path_problem(path):
            raise _refused(f"the directory {_shown(path)} cannot be used: {problem}")
        yield path.decode()


def _piece_layers(top: dict[bytes, Value], files: Sequence[FileEntry], piece_length: int) -> dict[bytes, bytes]:
    """Parses the layers of the files that have more than one piece.

    Each must hash to its file's root, and there must be no others.
    """
    layers: dict[bytes, bytes] = {}
    given = _as_dict(top.get(b"piece layers"), "the piece layers")
    expected = {file.root: _pieces(file.size, piece_length) for file in files if file.size > piece_length}
    if given.keys() != expected.keys():
        raise _refused("its piece layers are not those of its files")
    for root, pieces in expected.items():
        layer = given[root]
        if not isinstance(layer, bytes) or len(layer) != pieces * merkle.HASH:
            raise _refused("a piece layer does not fit the size of its file")
        if merkle.root_of_layer(layer, piece_length) != root:
            raise _refused("a piece layer does not hash to the root of its file")
        layers[root] = layer
    return layers


def _check_whole(metafile: Metafile) -> None:
    """Checks what only the whole metafile shows."""
    if metafile.num_pieces > MAX_PIECES:
        raise _refused(f"it has more than {MAX_PIECES} pieces")
    if metafile.size == 0:
        raise _refused("it holds no bytes at all")
    if metafile.single_file:
        if [file.path for file in metafile.files] != [metafile.name] or metafile.symlinks or metafile.empty_dirs:
            raise _refused("it claims to be a single file and is not")
    elif metafile.name != DIRECTORY_NAME:
        raise _refused(f"it holds a directory and is not named {DIRECTORY_NAME!r}")
    roots: dict[bytes, int] = {}
    for file in metafile.files:
        if file.root and roots.setdefault(file.root, file.size) != file.size:
            raise _refused("two files of different sizes have one root")
    links = {link.path: link.target for link in metafile.symlinks}
    if problem := safe_paths.find_layout_problem((file.path for file in metafile.files), links, metafile.empty_dirs):
        raise _refused(problem)
    if fault := safe_paths.find_link_problem(links):
        raise _refused(f"the symlink {fault.path[:200]!r} to {fault.target[:200]!r} {fault.fault}")
