"""The metafile as a value: a BitTorrent v2 torrent whose info dict also covers our manifest.

Always: the permitted content of a key limits how much of it is decoded. An unknown key is refused:
a web seed, a tracker or a node would make hosts connect to strangers. A Metafile exists only if
every path, count, size, hash and symlink in it was checked, so that its users can trust it.
Never: touch a disk, or raise anything but `invalid_metafile` for bytes from outside.
Longer than most files: it is one format, and one function parses and checks each key.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Final, NamedTuple, Self

import msgspec

from torrentdist.bundle import bencode, merkle, safe_paths
from torrentdist.bundle.bencode import Value
from torrentdist.bundle.file_tree import (
    MAX_PIECE_LENGTH,
    MAX_PIECES,
    FileEntry,
    TreeFile,
    read_tree,
    refused,
    shown,
)
from torrentdist.bundle.files.mode_runs import checked_runs
from torrentdist.bundle.packs import pack_manifest
from torrentdist.bundle.packs.pack_manifest import PackedFiles
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest

__all__ = [
    "FileEntry",
    "Metafile",
    "Symlink",
    "WireFile",
    "metafile_of",
    "parse_metafile",
    "read_files",
    "with_trackers",
]

MANIFEST_SCHEMA = 1
PACKED_SCHEMA = 2
"""The schema of a bundle with packs, whose manifest stands beside the info dictionary."""
LOOSE, PACKS = b"files/", b"packs/"
"""The two directories of a torrent with packs."""
CONTENT: Final = "content"
"""The directory with the files of a bundle, in the directory of the bundle."""
DIRECTORY_NAME = "content"
"""The name of every torrent of a directory, so that the digest depends only on the content."""
MIN_PIECE_LENGTH = 2 * merkle.BLOCK
"""Two blocks. With pieces of one block, libtorrent 2.1.1 (hash_picker::hashes_rejected) writes past
its memory when a peer sends a wrong byte of a file that fits into one piece. One damaged disk would
then crash every downloader."""
MAX_METAFILE_BYTES = 64 * 1024 * 1024
MAX_PACK_BYTES: Final = 16 * 1024 * 1024
"""A pack is read at once. Without a bound, one of zeros, which costs its sender nothing, would take
all memory of every host."""
_TOP_KEYS = frozenset({b"info", b"manifest", b"modes", b"piece layers"})
_TRACKER_KEYS: Final = (b"announce", b"announce-list")
"""Keys that `with_trackers` adds for stock clients. An incoming metafile may not contain them."""
_INFO_KEYS = frozenset({b"file tree", b"meta version", b"name", b"piece length", b"private", b"torrentdist"})
_MANIFEST_KEYS = frozenset({b"empty dirs", b"executable", b"schema", b"single file", b"symlinks"})
_V1_KEYS = frozenset({b"pieces", b"files", b"length"})


class Symlink(msgspec.Struct, frozen=True):
    path: str
    target: str


class WireFile(msgspec.Struct, frozen=True, gc=False):
    """A file as the swarm moves it: a file of the bundle, or a pack of small ones."""

    path: str
    """Where it lies, seen from the directory with the files of its bundle."""
    place: str
    """Where it lies in the directory of its bundle."""
    size: int
    root: bytes

    @property
    def is_pack(self) -> bool:
        return self.path.startswith("../")


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
    wire_files: tuple[WireFile, ...]
    """In the order of the torrent. Their bytes are those of `files`, each once."""
    packed: PackedFiles
    """The small files, as they follow each other in the packs."""
    modes: tuple[int, ...] = ()
    """The modes of `files` for copies, as runs. No digest covers them."""

    @cached_property
    def size(self) -> int:
        return sum(file.size for file in self.wire_files)

    @cached_property
    def num_pieces(self) -> int:
        return sum(_pieces(file.size, self.piece_length) for file in self.wire_files)

    @property
    def packs(self) -> list[tuple[WireFile, tuple[FileEntry, ...]]]:
        """Each pack, with the files in it."""
        packs = [file for file in self.wire_files if file.is_pack]
        spans = pairwise(accumulate(self.packed.counts, initial=0))
        return [(pack, self.packed.files[start:end]) for pack, (start, end) in zip(packs, spans, strict=True)]

    @cached_property
    def whereabouts(self) -> dict[str, tuple[WireFile, int]]:
        """Where each file lies in the torrent, by its path: in which of its files, and from which
        byte on. Empty files lie nowhere."""
        found = {file.path: (file, 0) for file in self.wire_files if not file.is_pack}
        for pack, files in self.packs:
            starts = accumulate((file.size for file in files), initial=0)
            found |= {file.path: (pack, start) for file, start in zip(files, starts, strict=False) if file.size}
        return found

    @cached_property
    def packed_size(self) -> int:
        """Bytes of all packs."""
        return sum(file.size for file in self.wire_files if file.is_pack)

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
    def for_swarm(self) -> Self:
        """Returns what a swarm needs of it: of each small file, nothing but its part of `raw`."""
        nothing = PackedFiles((), ())
        return msgspec.structs.replace(self, files=(), packed=nothing, symlinks=(), empty_dirs=())

    @property
    def file_count(self) -> int:
        return len(self.files)


def metafile_of(raw: bytes, digest: str) -> Metafile:
    """Parses the metafile of `digest`. Raises `corrupt` if it is damaged or belongs to other
    content."""
    try:
        meta = parse_metafile(raw)
    except TorrentdistError as exc:
        raise TorrentdistError("corrupt", path=f"the metafile of {digest}", detail=exc.message) from exc
    if meta.digest != digest:
        raise TorrentdistError("corrupt", path=f"the metafile of {digest}", detail=f"it belongs to {meta.digest}")
    return meta


def parse_metafile(raw: bytes) -> Metafile:
    """Parses a metafile and checks every claim in it. Raises `invalid_metafile` with the claim that
    is false."""
    if len(raw) > MAX_METAFILE_BYTES:
        raise refused(f"it has {len(raw)} bytes, more than {MAX_METAFILE_BYTES}")
    try:
        return _parsed(raw)
    except bencode.BencodeError as exc:
        raise refused(f"it is not canonical bencode: {exc}") from None


def _parsed(raw: bytes) -> Metafile:
    top = _top(raw)
    encoded = top.get(b"info", b"")
    info = _info(encoded)
    piece_length = _piece_length(info.get(b"piece length"))
    manifest, tree = _content(top, info)
    if any(file.size > piece_length for file in tree.packed.files):
        raise refused("a packed file is larger than a piece")
    metafile = Metafile(
        digest=Digest(hashlib.sha256(encoded).hexdigest()),
        name=_text(info.get(b"name"), "the name"),
        piece_length=piece_length,
        single_file=b"single file" in manifest and _as_flag(manifest[b"single file"]),
        files=tree.files,
        symlinks=tuple(_symlinks(manifest[b"symlinks"])),
        empty_dirs=tuple(_empty_dirs(manifest[b"empty dirs"])),
        piece_layers=_piece_layers(top.get(b"piece layers"), tree.wire_files, piece_length),
        raw=raw,
        wire_files=tree.wire_files,
        packed=tree.packed,
        modes=_modes(top.get(b"modes"), len(tree.files)),
    )
    _check_whole(metafile)
    return metafile


def _modes(data: bytes | None, files: int) -> tuple[int, ...]:
    if data is None:
        return ()
    value = _flat(data)
    runs = checked_runs(value, files) if isinstance(value, list) else None
    if runs is None:
        raise refused("its modes are not those of its files")
    return runs


class _Tree(NamedTuple):
    files: tuple[FileEntry, ...]
    wire_files: tuple[WireFile, ...]
    packed: PackedFiles


def _content(top: dict[bytes, bytes], info: dict[bytes, bytes]) -> tuple[dict[bytes, bytes], _Tree]:
    """Returns the values of the manifest, still encoded, and the files."""
    manifest, is_packed = _manifest(top, info)
    executable = _indexes(manifest[b"executable"])
    held = list(_held(info.get(b"file tree", b""), is_packed))
    loose = [file for file in held if not file.path.startswith(PACKS)] if is_packed else held
    cut = len(LOOSE) if is_packed else 0
    files = tuple(
        FileEntry(file.path[cut:].decode(), file.size, file.root, number in executable)
        for number, file in enumerate(loose)
    )
    if not executable.issubset(range(len(files))):
        raise refused("the manifest calls a file executable that is not there")
    wire = [WireFile(file.path, f"{CONTENT}/{file.path}", file.size, file.root) for file in files]
    if not is_packed:
        return manifest, _Tree(files, tuple(wire), PackedFiles((), ()))
    packed = pack_manifest.parse_packed(manifest)
    packs = [
        WireFile(f"../{file.path.decode()}", file.path.decode(), file.size, file.root) for file in held[len(loose) :]
    ]
    _check_packs(packs, packed)
    merged = sorted((*files, *packed.files), key=lambda file: file.path.split("/"))
    return manifest, _Tree(tuple(merged), (*wire, *packs), packed)


def _check_packs(packs: Sequence[WireFile], packed: PackedFiles) -> None:
    if [pack.place for pack in packs] != [f"packs/{number:05}" for number in range(len(packed.counts))]:
        raise refused("its packs are not those of its manifest")
    ends = [0, *accumulate(file.size for file in packed.files)]
    for pack, (start, end) in zip(packs, pairwise(accumulate(packed.counts, initial=0)), strict=True):
        if not 0 < pack.size <= MAX_PACK_BYTES:
            raise refused(f"a pack is empty, or has more than {MAX_PACK_BYTES} bytes")
        if pack.size != ends[end] - ends[start]:
            raise refused("a pack is not as long as its files")


def read_files(raw: bytes) -> Iterator[TreeFile]:
    """Yields the files of a metafile that was parsed before, and its packs, without checking
    anything else of it."""
    try:
        top = _top(raw)
        info = _info(top.get(b"info", b""))
        manifest, is_packed = _manifest(top, info)
        if not is_packed:
            yield from read_tree(info.get(b"file tree", b""))
            return
        for file in _held(info.get(b"file tree", b""), is_packed):
            inside = file.path.startswith(LOOSE)
            path = file.path.removeprefix(LOOSE) if inside else b"../" + file.path
            yield TreeFile(path, file.size, file.root)
        for packed in pack_manifest.parse_packed(manifest).files:
            yield TreeFile(packed.path.encode(), packed.size, packed.root)
    except bencode.BencodeError as exc:
        raise refused(f"it is not canonical bencode: {exc}") from None


def with_trackers(raw: bytes, urls: Sequence[str]) -> bytes:
    """Adds trackers for stock clients. The info dict, and so the digest, stays unchanged."""
    try:
        encoded = {key: part for key, part in bencode.parts(raw).items() if key not in _TRACKER_KEYS}
    except bencode.BencodeError as exc:
        raise refused(f"it is not canonical bencode: {exc}") from None
    if urls:
        encoded[b"announce"] = bencode.encode(urls[0].encode())
        encoded[b"announce-list"] = bencode.encode([[url.encode()] for url in urls])
    return bencode.encode_dict_of_encoded(encoded)


def _pieces(size: int, piece_length: int) -> int:
    return -(-size // piece_length)


def _dict_parts(data: bytes, what: str) -> dict[bytes, bytes]:
    if data[:1] != b"d":
        raise refused(f"{what} is missing or no dictionary")
    return bencode.parts(data)


def _flat(data: bytes) -> Value:
    """Decodes a list or a dictionary whose values contain no others."""
    return bencode.decode(data, most=2 * safe_paths.MAX_ENTRIES, depth=2)


def _as_flag(data: bytes) -> bool:
    value = bencode.decode_single(data)
    if not isinstance(value, int) or value not in (0, 1):
        raise refused("a flag of the manifest is neither 0 nor 1")
    return value == 1


def _text(data: bytes | None, what: str) -> str:
    value = bencode.decode_single(data)
    if not isinstance(value, bytes):
        raise refused(f"{what} is missing or no string")
    if problem := safe_paths.name_problem(value):
        raise refused(f"{what} {shown(value)} cannot be used: {problem}")
    return value.decode()


def _top(raw: bytes) -> dict[bytes, bytes]:
    top = bencode.parts(raw)
    if unknown := top.keys() - _TOP_KEYS:
        raise refused(f"it has the key {shown(min(unknown))}, and only an info dictionary and piece layers are read")
    return top


def _info(encoded: bytes) -> dict[bytes, bytes]:
    info = _dict_parts(encoded, "the info dictionary")
    if _V1_KEYS & info.keys():
        raise refused("it is a v1 or hybrid torrent, and only v2 alone is used")
    if bencode.decode_single(info.get(b"meta version")) != 2:
        raise refused("its meta version is not 2")
    if b"torrentdist" not in info:
        raise refused("it has no torrentdist manifest")
    if bencode.decode_single(info.get(b"private")) != 1:
        raise refused("it is not marked private")
    if unknown := info.keys() - _INFO_KEYS:
        raise refused(f"its info dictionary has the unknown key {shown(min(unknown))}")
    return info


def _manifest(top: dict[bytes, bytes], info: dict[bytes, bytes]) -> tuple[dict[bytes, bytes], bool]:
    """Returns the values of the manifest, still encoded, and whether the bundle has packs."""
    manifest = _dict_parts(info[b"torrentdist"], "the manifest")
    schema = bencode.decode_single(manifest.get(b"schema"))
    if schema == PACKED_SCHEMA:
        beside = top.get(b"manifest", b"")
        if manifest.keys() != {b"manifest", b"schema"} or hashlib.sha256(beside).digest() != bencode.decode_single(
            manifest[b"manifest"]
        ):
            raise refused("its manifest is not the one that its info dictionary names")
        manifest = _dict_parts(beside, "the manifest")
    elif b"manifest" in top:
        raise refused("it has a manifest beside its info dictionary, and names none")
    if schema not in (MANIFEST_SCHEMA, PACKED_SCHEMA):
        told = schema if isinstance(schema, int) else "no number"
        raise refused(f"its manifest has schema {told}, and this release reads up to {PACKED_SCHEMA}")
    if manifest.keys() != (pack_manifest.KEYS if schema == PACKED_SCHEMA else _MANIFEST_KEYS):
        raise refused("its manifest has missing or unknown keys")
    return manifest, schema == PACKED_SCHEMA


def _piece_length(encoded: bytes | None) -> int:
    length = bencode.decode_single(encoded)
    if not isinstance(length, int) or not MIN_PIECE_LENGTH <= length <= MAX_PIECE_LENGTH or length & (length - 1):
        raise refused(f"its piece length is no power of two from {MIN_PIECE_LENGTH} to {MAX_PIECE_LENGTH}")
    return length


def _indexes(encoded: bytes) -> set[int]:
    """Parses file numbers, which must increase so that a set has only one form."""
    value = _flat(encoded)
    if not isinstance(value, list):
        raise refused("the manifest's list of executable files is missing")
    last = -1
    result: set[int] = set()
    for item in value:
        if not isinstance(item, int) or item <= last:
            raise refused("the manifest's list of executable files is not in order")
        last = item
        result.add(item)
    return result


def _held(encoded: bytes, is_packed: bool) -> Iterator[TreeFile]:
    """Yields the files of the torrent in the order of its tree. With packs, each is in one of two
    directories."""
    depth = safe_paths.MAX_DEPTH + is_packed
    for index, file in enumerate(read_tree(encoded, depth)):
        if index >= safe_paths.MAX_ENTRIES:
            raise refused(f"it has more than {safe_paths.MAX_ENTRIES} files")
        if is_packed and not file.path.startswith((LOOSE, PACKS)):
            raise refused(f"{shown(file.path)} lies beside its packs")
        yield file


def _symlinks(encoded: bytes) -> Iterator[Symlink]:
    links = _flat(encoded)
    if not isinstance(links, dict):
        raise refused("the manifest's list of symlinks is missing or no dictionary")
    for path, target in links.items():
        if not isinstance(target, bytes):
            raise refused(f"the symlink {shown(path)} has no target")
        if problem := safe_paths.path_problem(path) or safe_paths.target_problem(target):
            raise refused(f"the symlink {shown(path)} cannot be used: {problem}")
        yield Symlink(path.decode(), target.decode())


def _empty_dirs(encoded: bytes) -> Iterator[str]:
    value = _flat(encoded)
    if not isinstance(value, list):
        raise refused("the manifest's list of empty directories is missing")
    last = b""
    for path in value:
        if not isinstance(path, bytes) or path <= last:
            raise refused("the manifest's list of empty directories is not in order")
        last = path
        if problem := safe_paths.path_problem(path):
            raise refused(f"the directory {shown(path)} cannot be used: {problem}")
        yield path.decode()


def _piece_layers(encoded: bytes | None, files: Sequence[WireFile], piece_length: int) -> dict[bytes, bytes]:
    """Parses the layers of the files with more than one piece.

    Each must hash to its file's root, and there must be no others.
    """
    if encoded is None or encoded[:1] != b"d":
        raise refused("the piece layers are missing or no dictionary")
    layers: dict[bytes, bytes] = {}
    expected = {file.root: _pieces(file.size, piece_length) for file in files if file.size > piece_length}
    given = bencode.decode(encoded, most=2 * len(expected) + 3, depth=2)
    if not isinstance(given, dict) or given.keys() != expected.keys():
        raise refused("its piece layers are not those of its files")
    for root, pieces in expected.items():
        layer = given[root]
        if not isinstance(layer, bytes) or len(layer) != pieces * merkle.HASH:
            raise refused("a piece layer does not fit the size of its file")
        if merkle.root_of_layer(layer, piece_length) != root:
            raise refused("a piece layer does not hash to the root of its file")
        layers[root] = layer
    return layers


def _check_whole(metafile: Metafile) -> None:
    """Checks what only the whole metafile shows."""
    if metafile.num_pieces > MAX_PIECES:
        raise refused(f"it has more than {MAX_PIECES} pieces")
    if metafile.size == 0:
        raise refused("it holds no bytes at all")
    if metafile.single_file:
        if [file.path for file in metafile.files] != [metafile.name] or metafile.symlinks or metafile.empty_dirs:
            raise refused("it claims to be a single file and is not")
    elif metafile.name != DIRECTORY_NAME:
        raise refused(f"it holds a directory and is not named {DIRECTORY_NAME!r}")
    roots: dict[bytes, int] = {}
    sizes = [(file.root, file.size) for file in metafile.files]
    for root, size in (*sizes, *((file.root, file.size) for file in metafile.wire_files)):
        if roots.setdefault(root, size) != size:
            raise refused("two files of different sizes have one root")
    links = {link.path: link.target for link in metafile.symlinks}
    if problem := safe_paths.find_layout_problem((file.path for file in metafile.files), links, metafile.empty_dirs):
        raise refused(problem)
    if fault := safe_paths.find_link_problem(links):
        raise refused(f"the symlink {fault.path[:200]!r} to {fault.target[:200]!r} {fault.fault}")
