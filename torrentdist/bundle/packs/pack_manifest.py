"""The manifest of a bundle with packs: a bencoded dictionary whose values are columns.

docs/formats/packs.md describes it for other programs. The info dictionary holds its hash, so the
digest covers it, and libtorrent never reads it.
Always: names, paths and numbers are checked before a file is returned. What is decoded has a bound.
Never: believe an order. Directories and names must be sorted, so that a set has one form.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from torrentdist.bundle import bencode, merkle, safe_paths
from torrentdist.bundle.bencode import Value
from torrentdist.bundle.file_tree import FileEntry, refused, shown

KEYS: Final = frozenset(
    {
        b"counts",
        b"directories",
        b"empty dirs",
        b"executable",
        b"names",
        b"packed executable",
        b"packs",
        b"roots",
        b"sizes",
        b"symlinks",
    }
)
COLUMNS: Final = (b"counts", b"directories", b"names", b"packed executable", b"packs", b"roots", b"sizes")
_LARGEST: Final = 16 * 1024 * 1024
"""In bytes. No packed file is larger, since none is larger than a piece."""


class PackedFiles(NamedTuple):
    """The files of all packs, in their order, and how many each pack holds."""

    files: tuple[FileEntry, ...]
    counts: tuple[int, ...]


def encode_packed(files: Sequence[FileEntry], counts: Sequence[int]) -> dict[bytes, Value]:
    """Returns the columns of these files, which are in pack order."""
    directories: list[str] = []
    in_each: list[int] = []
    for file in files:
        directory = file.path.rpartition("/")[0]
        if not directories or directory != directories[-1]:
            directories.append(directory)
            in_each.append(0)
        in_each[-1] += 1
    bits = bytearray(-(-len(files) // 8))
    for number, file in enumerate(files):
        bits[number // 8] |= file.executable << number % 8
    return {
        b"counts": numbers(in_each),
        b"directories": "\0".join(directories).encode(),
        b"names": "\0".join(file.path.rpartition("/")[2] for file in files).encode(),
        b"packed executable": bytes(bits),
        b"packs": numbers(counts),
        b"roots": b"".join(file.root for file in files),
        b"sizes": numbers([file.size for file in files]),
    }


def parse_packed(parts: dict[bytes, bytes]) -> PackedFiles:
    """Parses the columns. `parts`: the values of the manifest, still encoded."""
    columns = {key: _column(parts[key], key) for key in COLUMNS}
    sizes, counts = parse_numbers(columns[b"sizes"]), parse_numbers(columns[b"counts"])
    if not 0 < len(sizes) <= safe_paths.MAX_ENTRIES or max(sizes) > _LARGEST:
        raise refused(f"it packs no files, more than {safe_paths.MAX_ENTRIES}, or too large ones")
    if len(columns[b"packed executable"]) != -(-len(sizes) // 8):
        raise refused("the executable bits of its packed files do not fit their number")
    paths = _paths(columns, counts, len(sizes))
    roots = _roots(columns[b"roots"], sizes)
    bits = columns[b"packed executable"]
    files = tuple(
        FileEntry(path, size, root, bool(bits[number >> 3] >> (number & 7) & 1))
        for number, (path, size, root) in enumerate(zip(paths, sizes, roots, strict=True))
    )
    packs = tuple(parse_numbers(columns[b"packs"]))
    if not packs or min(packs) < 1 or sum(packs) != len(files):
        raise refused("its packs do not hold each packed file once")
    return PackedFiles(files, packs)


def _column(encoded: bytes, key: bytes) -> bytes:
    value = bencode.decode_single(encoded)
    if not isinstance(value, bytes):
        raise refused(f"the {key.decode()} of its packs are no string")
    return value


def numbers(values: Sequence[int]) -> bytes:
    """Returns a column of numbers."""
    encoded = array("I", values)
    if sys.byteorder != "little":
        encoded.byteswap()
    return encoded.tobytes()


def parse_numbers(column: bytes) -> array[int]:
    """Returns the numbers of a column."""
    if len(column) % 4:
        raise refused("a column of its packs does not hold whole numbers")
    values = array("I")
    values.frombytes(column)
    if sys.byteorder != "little":
        values.byteswap()
    return values


def _paths(columns: dict[bytes, bytes], counts: Sequence[int], total: int) -> list[str]:
    """Returns the path of each packed file, in order."""
    directories, names = columns[b"directories"], columns[b"names"]
    fits = directories.count(b"\0") + 1 == len(counts) and names.count(b"\0") + 1 == total == sum(counts)
    if not fits or min(counts) < 1:
        raise refused("its packed files do not fit their directories")
    _check_directories(directories.split(b"\0"))
    if problem := safe_paths.names_problem(names.split(b"\0")):
        raise refused(f"a name of its packed files cannot be used: {problem}")
    paths: list[str] = []
    every = names.decode().split("\0")
    path_bytes = 0
    for directory, (start, end) in zip(directories.decode().split("\0"), _spans(counts), strict=True):
        here = every[start:end]
        if any(first >= second for first, second in pairwise(map(str.encode, here))):
            raise refused(f"the packed files in {shown(directory.encode())} are not in order")
        prefix = f"{directory}/" if directory else ""
        longest = len(prefix.encode()) + max(len(name.encode()) for name in here)
        path_bytes += len(here) * len(prefix)
        if longest > safe_paths.MAX_PATH_BYTES or path_bytes > safe_paths.MAX_ALL_PATHS_BYTES:
            raise refused(f"the paths in {shown(directory.encode())} are too long")
        paths += [prefix + name for name in here]
    return paths


def _check_directories(directories: Sequence[bytes]) -> None:
    last: list[bytes] | None = None
    for path in directories:
        parts = path.split(b"/") if path else []
        if last is not None and parts <= last:
            raise refused("the directories of its packs are not in order")
        last = parts
        problem = safe_paths.path_problem(path) if path else None
        if problem or len(parts) >= safe_paths.MAX_DEPTH:
            raise refused(f"the directory {shown(path)} cannot be used: {problem or 'it lies too deep'}")


def _spans(counts: Sequence[int]) -> Iterator[tuple[int, int]]:
    return pairwise(accumulate(counts, initial=0))


def _roots(column: bytes, sizes: Sequence[int]) -> Iterator[bytes]:
    """Yields the root of each file; empty files have none."""
    if len(column) != merkle.HASH * sum(1 for size in sizes if size):
        raise refused("the roots of its packed files do not fit their number")
    start = 0
    for size in sizes:
        if size:
            yield column[start : start + merkle.HASH]
            start += merkle.HASH
        else:
            yield b""
