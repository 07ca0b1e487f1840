"""Finds the pieces of a bundle that contain only zeros, and stores them as holes in files.

Always: the metafile alone shows where the zeros are, since their hash is known. A file with holes
reads the same. On a file system without holes nothing happens.
Never: read a file.
"""

import ctypes
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from torrentdist.bundle import merkle
from torrentdist.bundle.metafile import Metafile, WireFile

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01
LEAST = 64 * 1024
"""In bytes. A shorter run of zeros is stored like other bytes."""


class ZeroRun(NamedTuple):
    """Adjacent pieces of one file that contain only zeros."""

    file: WireFile
    first: int
    """The number of the first piece within the file."""
    start: int
    end: int


def zero_runs(meta: Metafile) -> Iterator[ZeroRun]:
    """Yields the runs in the order of the files. A bundle without zeros costs one search."""
    whole = _zero_piece(meta.piece_length, meta.piece_length)
    for file in meta.wire_files:
        if file.size >= LEAST:
            yield from _runs_of(file, meta, whole)


def zero_pieces(meta: Metafile) -> list[bool]:
    """Returns for each piece of the torrent whether it contains only zeros. Empty if none does."""
    found = list(zero_runs(meta))
    if not found:
        return []
    starts, count = {}, 0
    for file in meta.wire_files:
        starts[file.place] = count
        count += -(-file.size // meta.piece_length)
    zeros = [False] * count
    for run in found:
        begin, pieces = starts[run.file.place] + run.first, -(-(run.end - run.start) // meta.piece_length)
        zeros[begin : begin + pieces] = [True] * pieces
    return zeros


def punch_holes(meta: Metafile, content: Path) -> set[str]:
    """Frees the disk blocks of zeros. Files that are missing or not writable stay as they are.
    Returns the paths of the files with zeros."""
    looked_at: set[str] = set()
    for file, runs in groupby(zero_runs(meta), key=lambda run: run.file):
        looked_at.add(file.path)
        stretches = [(run.start, run.end - run.start) for run in runs]
        with suppress(OSError):
            fd = os.open(content / file.path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                if _is_dense(os.fstat(fd), file, sum(length for _, length in stretches)):
                    for start, length in stretches:
                        _libc.fallocate(fd, _PUNCH_HOLE_KEEP_SIZE, start, length)
            finally:
                os.close(fd)
    return looked_at


def _is_dense(found: os.stat_result, file: WireFile, zeros: int) -> bool:
    regular = stat.S_ISREG(found.st_mode) and found.st_size == file.size
    return regular and found.st_nlink == 1 and found.st_blocks * 512 > file.size - zeros + LEAST


def make_sparse(meta: Metafile, content: Path) -> None:
    """Creates each file with zeros as one hole, so that only its other bytes have to arrive."""
    for file, _ in groupby(zero_runs(meta), key=lambda run: run.file):
        path = content.parent / file.place
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            os.ftruncate(fd, file.size)
        finally:
            os.close(fd)


def _runs_of(file: WireFile, meta: Metafile, whole: bytes) -> Iterator[ZeroRun]:
    length = meta.piece_length
    if file.size <= length:
        if file.root == _zero_root(file.size):
            yield ZeroRun(file, 0, 0, file.size)
        return
    layer, rest = meta.piece_layers[file.root], file.size % length
    last = _zero_piece(rest, length) if rest else whole
    pieces = len(layer) // merkle.HASH
    end = pieces - 1 if rest else pieces
    ends_in_zeros = bool(rest) and layer.endswith(last)
    if whole not in layer and not ends_in_zeros:
        return
    zeros = [n for n in range(end) if layer.startswith(whole, n * merkle.HASH)] + ([end] if ends_in_zeros else [])
    for _, group in groupby(enumerate(zeros), key=lambda item: item[1] - item[0]):
        numbers = [number for _, number in group]
        start, stop = numbers[0] * length, min(file.size, (numbers[-1] + 1) * length)
        if stop - start >= LEAST:
            yield ZeroRun(file, numbers[0], start, stop)


@lru_cache(maxsize=1024)
def _zero_leaf(size: int) -> bytes:
    return merkle.leaves(memoryview(bytes(size)))[0]


def _zero_leaves(size: int) -> list[bytes]:
    rest = size % merkle.BLOCK
    return [_zero_leaf(merkle.BLOCK)] * (size // merkle.BLOCK) + ([_zero_leaf(rest)] if rest else [])


@lru_cache(maxsize=1024)
def _zero_piece(size: int, piece_length: int) -> bytes:
    """Returns the hash of a piece of `size` zeros in a file with several pieces."""
    return merkle.piece_hash(_zero_leaves(size), piece_length)


@lru_cache(maxsize=1024)
def _zero_root(size: int) -> bytes:
    return merkle.root(_zero_leaves(size))


def data_ranges(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """Yields the start and end of every range of a file that is not a hole."""
    end = 0
    while end < size:
        try:
            start = os.lseek(fd, end, os.SEEK_DATA)
        except OSError as exc:
            if exc.errno == errno.ENXIO:  # The rest of the file is a hole.
                return
            if exc.errno != errno.EINVAL:
                raise
            yield end, size
            return
        end = min(size, os.lseek(fd, start, os.SEEK_HOLE))
        yield start, end
