"""Makes the metafile of a directory or a single file.

Always: a metafile describes one state of the directory, or `changed_while_reading` is raised. Equal
content gives an equal digest, regardless of the directory's place and name.
Never: write, or follow symlinks below the top.
"""

import hashlib
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from torrentdist.bundle import bencode, hashing
from torrentdist.bundle.bencode import Value
from torrentdist.bundle.directory_scan import Scan, scan, shown
from torrentdist.bundle.files.durability import disk_failure
from torrentdist.bundle.files.mode_runs import encode_runs
from torrentdist.bundle.hashing import FileHash, FileToHash, Look, Progress
from torrentdist.bundle.metafile import (
    DIRECTORY_NAME,
    LOOSE,
    MANIFEST_SCHEMA,
    MAX_METAFILE_BYTES,
    MIN_PIECE_LENGTH,
    PACKED_SCHEMA,
    PACKS,
    FileEntry,
    Metafile,
    parse_metafile,
)
from torrentdist.bundle.packs.pack_files import hash_packs
from torrentdist.bundle.packs.pack_manifest import encode_packed
from torrentdist.bundle.packs.pack_plan import pack_counts, pack_order, small_limit
from torrentdist.bundle.reuse.chunker import RecipeMaker, can_cut
from torrentdist.bundle.reuse.recipe import encode_recipe
from torrentdist.model.errors import TorrentdistError

TARGET_PIECES = 2048
LARGEST_CHOSEN_PIECE = 4 * 1024 * 1024
_CLOCK_TICK_NS = 20_000_000
"""File times advance in steps of up to 10 ms. Two writes within one step look like one."""
_SETTLING_SCANS = 25
_LEAST_PER_FILE = 36
"""Bytes that a metafile has for a file with content, besides its name: a root and a size."""


def choose_piece_length(size: int) -> int:
    """Returns a piece length that gives about 2048 pieces, each between 32 KiB and 4 MiB.

    A piece can be passed on only when it is complete, so many pieces make a broadcast faster: for
    32 MiB, 32 KiB beats 64 KiB, and so on up to 1 MiB. But each piece costs planning, requests and
    have messages, so a large bundle needs larger pieces.
    """
    wanted = max(MIN_PIECE_LENGTH, size // TARGET_PIECES)
    return min(1 << (wanted - 1).bit_length(), LARGEST_CHOSEN_PIECE)


def make_metafile(
    path: Path, *, piece_length: int | None = None, progress: Progress | None = None, packed: bool = True
) -> Metafile:
    """Returns the metafile of `path`. Blocks until everything is read.

    `packed`: whether many small files may be packed, and modes told. Releases before 0.2 read
    neither.
    """
    return _make(path, piece_length, progress, None, packed)[0]


def make_metafile_and_recipe(
    path: Path, *, piece_length: int | None = None, progress: Progress | None = None, packed: bool = True
) -> tuple[Metafile, bytes | None]:
    """Returns the metafile of `path` and the recipe of its large files, from one reading. None:
    there are none, or the library that cuts them is not here."""
    return _make(path, piece_length, progress, RecipeMaker() if can_cut() else None, packed)


def metafile_of(found: Scan, hashes: Sequence[FileHash], piece_length: int) -> Metafile:
    """Returns the metafile of files that were hashed already."""
    raw = _encoded(found, hashes, piece_length, encode_runs((file.mode, file.executable) for file in found.files))
    _check_size(Path(os.fsdecode(found.top)), len(raw))
    return parse_metafile(raw)


def _make(
    path: Path, piece_length: int | None, progress: Progress | None, maker: RecipeMaker | None, packed: bool
) -> tuple[Metafile, bytes | None]:
    before = _settled(path)
    length = choose_piece_length(before.size) if piece_length is None else piece_length
    names = sum(len(file.path) - file.path.rfind(b"/") for file in before.files)
    _check_size(path, names + _LEAST_PER_FILE * sum(1 for file in before.files if file.size))
    hashes = _hash(before, length, progress, maker.look if maker else None)
    recipe = _recipe(maker, _files_to_hash(before), hashes) if maker else None
    limit = small_limit((file.size for file in before.files), length) if packed and not before.single_file else 0
    modes = encode_runs((file.mode, file.executable) for file in before.files) if packed else []
    raw = (
        _encoded_with_packs(before, hashes, length, limit, modes) if limit else _encoded(before, hashes, length, modes)
    )
    _check_size(path, len(raw))
    made = parse_metafile(raw)  # like a foreign one, so that every host accepts it
    _check_unchanged(path, before)
    return made, recipe


def _check_size(path: Path, size: int) -> None:
    if size > MAX_METAFILE_BYTES:
        detail = f"its metafile would have more than {MAX_METAFILE_BYTES >> 20} MiB: it has too many files"
        raise TorrentdistError("invalid_bundle", path=str(path), detail=detail)


def _files_to_hash(found: Scan) -> list[FileToHash]:
    return [FileToHash(found.place(file), file.size) for file in found.files]


def _recipe(maker: RecipeMaker, wanted: Sequence[FileToHash], hashes: Sequence[FileHash]) -> bytes | None:
    try:
        recipe = maker.recipe(list(zip(wanted, hashes, strict=True)))
    except OSError as exc:
        raise TorrentdistError("changed_while_reading", path=shown(wanted[0].path)) from exc
    return encode_recipe(recipe) if recipe.files else None


def _encoded(before: Scan, hashes: Sequence[FileHash], length: int, modes: Sequence[int]) -> bytes:
    name = before.files[0].path if before.single_file else DIRECTORY_NAME.encode()
    tree = _file_tree((file.path, file.size, found) for file, found in zip(before.files, hashes, strict=True))
    info = _info(tree, name, length) | {b"torrentdist": _manifest(before)}
    return _raw(info, hashes, _beside(modes))


def _encoded_with_packs(
    before: Scan, hashes: Sequence[FileHash], length: int, limit: int, modes: Sequence[int]
) -> bytes:
    """Reads the files up to `limit` once more, for the hashes of their packs."""
    found = list(zip(before.files, hashes, strict=True))
    loose = [(file, one) for file, one in found if file.size > limit]
    small = [(file, one) for file, one in found if file.size <= limit]
    small = [small[number] for number in pack_order([file.path for file, _ in small])]
    counts = pack_counts((file.size, one.root) for file, one in small)
    entries = [FileEntry(file.path.decode(), file.size, one.root, file.executable) for file, one in small]
    packs = list(hash_packs(Path(os.fsdecode(before.top)), entries, counts, length))
    manifest: dict[bytes, Value] = {
        b"empty dirs": list(before.empty_dirs),
        b"executable": [index for index, (file, _) in enumerate(loose) if file.executable],
        b"symlinks": dict(before.symlinks),
        **encode_packed(entries, counts),
    }
    beside = bencode.encode(manifest)
    tree = _file_tree(
        [
            *((LOOSE + file.path, file.size, one) for file, one in loose),
            *((PACKS + b"%05d" % number, size, one) for number, (size, one) in enumerate(packs)),
        ]
    )
    named: dict[bytes, Value] = {b"manifest": hashlib.sha256(beside).digest(), b"schema": PACKED_SCHEMA}
    info = _info(tree, DIRECTORY_NAME.encode(), length) | {b"torrentdist": named}
    found_hashes = [*(one for _, one in loose), *(one for _, one in packs)]
    return _raw(info, found_hashes, {b"manifest": manifest, **_beside(modes)})


def _beside(modes: Sequence[int]) -> dict[bytes, Value]:
    """Returns the modes as a part of the metafile that the digest does not cover."""
    return {b"modes": list(modes)} if modes else {}


def _info(tree: dict[bytes, Value], name: bytes, length: int) -> dict[bytes, Value]:
    return {
        b"file tree": tree,
        b"meta version": 2,
        b"name": name,
        b"piece length": length,
        b"private": 1,  # A stock client must not announce to the public DHT what it fetches from us.
    }


def _raw(info: dict[bytes, Value], hashes: Sequence[FileHash], beside: dict[bytes, Value]) -> bytes:
    layers: dict[bytes, Value] = {found.root: found.layer for found in hashes if found.layer}
    return bencode.encode({b"info": info, b"piece layers": layers, **beside})


def _settled(path: Path) -> Scan:
    """Scans at a time after which every change will be visible.

    A file that was just written may be written again without a change of its times, so this waits
    until no file is that recent.
    """
    for _ in range(_SETTLING_SCANS):
        found = scan(path)
        now = time.time_ns()
        young = [file for file in found.files if 0 <= now - file.ctime_ns < _CLOCK_TICK_NS]
        if not young:
            return found
        time.sleep(_CLOCK_TICK_NS / 1e9)
    raise TorrentdistError("changed_while_reading", path=shown(young[0].path))


def _hash(found: Scan, piece_length: int, progress: Progress | None, look: Look | None = None) -> list[FileHash]:
    wanted = _files_to_hash(found)
    hashes: list[FileHash] = []
    for file, outcome in zip(found.files, hashing.hash_files(wanted, piece_length, progress, look), strict=True):
        if isinstance(outcome, FileHash):
            hashes.append(outcome)
        elif isinstance(outcome, hashing.ReadFault | FileNotFoundError | NotADirectoryError):
            raise TorrentdistError("changed_while_reading", path=shown(file.path)) from outcome
        else:
            raise disk_failure(outcome, Path(shown(file.path)))
    return hashes


def _check_unchanged(path: Path, before: Scan) -> None:
    try:
        after = scan(path)
    except TorrentdistError as exc:
        raise TorrentdistError("changed_while_reading", path=str(path)) from exc
    if after != before:
        raise TorrentdistError("changed_while_reading", path=_first_difference(before, after) or str(path))


def _first_difference(before: Scan, after: Scan) -> str:
    changed = {file.path for file in set(before.files) ^ set(after.files)}
    changed |= {path for path, _ in set(before.symlinks) ^ set(after.symlinks)}
    changed |= set(before.empty_dirs) ^ set(after.empty_dirs)
    return shown(min(changed, default=b""))


def _file_tree(files: Iterable[tuple[bytes, int, FileHash]]) -> dict[bytes, Value]:
    tree: dict[bytes, Value] = {}
    for path, size, found in files:
        node = tree
        for name in path.split(b"/"):
            child = node.setdefault(name, {})
            assert isinstance(child, dict)
            node = child
        leaf: dict[bytes, Value] = {b"length": size}
        if size:
            leaf[b"pieces root"] = found.root
        node[b""] = leaf
    return tree


def _manifest(found: Scan) -> dict[bytes, Value]:
    return {
        b"empty dirs": list(found.empty_dirs),
        b"executable": [index for index, file in enumerate(found.files) if file.executable],
        b"schema": MANIFEST_SCHEMA,
        b"single file": int(found.single_file),
        b"symlinks": dict(found.symlinks),
    }
