"""Reads files and hashes them, with one thread per processor.

Always: a thread holds one read buffer of at most 16 MiB, whatever the size of a file. A file that
is not as expected, or that changes while it is read, gives a ReadFault and never a hash.
Never: open a symlink, or wait for a fifo.
"""

import hashlib
import os
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import msgspec

from torrentdist.bundle import merkle

Progress = Callable[[int, int], None]
"""Called with the number of bytes done, and the total."""

Look = Callable[[int, int, memoryview], None]
"""Called by a thread with the number of a file, an offset, and the bytes there."""

LOOK_FROM = 4 * 1024 * 1024
"""In bytes. Only the bytes of larger files are shown to a `Look`."""
LOOK_RANGE = 16 * 1024 * 1024
"""Bytes that a `Look` is shown at a time."""
_READ = 1024 * 1024
_UNIT = 4 * 1024 * 1024
_UNIT_FILES = 64
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_local = threading.local()


class HashingStopped(Exception):
    """Nobody wants the hashes any more."""


class ReadFault(Exception):
    """The file is not a regular file of the expected size, or it changed meanwhile."""


class FileToHash(NamedTuple):
    path: bytes
    size: int


class FileHash(msgspec.Struct, frozen=True):
    root: bytes
    layer: bytes
    """The hashes of its pieces, joined; empty for a file of a single piece."""


class _Range(NamedTuple):
    file: int
    path: bytes
    size: int
    offset: int
    length: int
    look: Look | None


Outcome = FileHash | ReadFault | OSError


def hash_files(
    files: Sequence[FileToHash], piece_length: int, progress: Progress | None = None, look: Look | None = None
) -> Iterator[Outcome]:
    """Yields the hash of every file, in order, or the error for that file.

    Empty files have empty hashes. `look` is shown the bytes of large files, in ranges of
    LOOK_RANGE, before a file's hash is yielded.
    """
    threads = len(os.sched_getaffinity(0))
    total = sum(file.size for file in files)
    done = 0
    results = _run(_units(files, piece_length, look), piece_length, threads)
    pending: list[bytes] = []
    failed: Exception | None = None
    for part, result in results:
        if isinstance(result, Exception):
            failed = failed or result
        else:
            pending.extend(result)
        done += part.length
        if progress and part.length:
            progress(done, total)
        if part.offset + part.length == part.size:
            yield failed if isinstance(failed, (ReadFault, OSError)) else _combine(pending, part.size, piece_length)
            pending, failed = [], None


def hash_stream(parts: Iterable[bytes], size: int, piece_length: int) -> FileHash:
    """Returns the hash of a file whose bytes come in parts. Each but the last is whole blocks."""
    blocks: list[bytes] = []
    pieces: list[bytes] = []
    per_piece = piece_length // merkle.BLOCK
    for part in parts:
        blocks += merkle.leaves(memoryview(part))
        if size > piece_length:
            whole = len(blocks) // per_piece * per_piece
            pieces += [merkle.piece_hash(blocks[i : i + per_piece], piece_length) for i in range(0, whole, per_piece)]
            del blocks[:whole]
    if size <= piece_length:
        return _combine([merkle.root(blocks)] if blocks else [], size, piece_length)
    return _combine(pieces + ([merkle.piece_hash(blocks, piece_length)] if blocks else []), size, piece_length)


def stopped_unless(go_on: Callable[[], bool]) -> Progress:
    """Returns a `progress` that ends the hashing with HashingStopped once `go_on` says no."""

    def check(done: int, total: int) -> None:
        if not go_on():
            raise HashingStopped

    return check


def _combine(pieces: Sequence[bytes], size: int, piece_length: int) -> FileHash:
    if size <= piece_length:
        return FileHash(root=pieces[0] if pieces else b"", layer=b"")
    return FileHash(root=merkle.root(pieces, merkle.empty_piece(piece_length)), layer=b"".join(pieces))


def _units(files: Sequence[FileToHash], piece_length: int, look: Look | None) -> Iterator[list[_Range]]:
    """Splits the work into portions: a range of a large file, or some small files."""
    unit: list[_Range] = []
    weight = 0
    for index, (path, size) in enumerate(files):
        shown = look if size > LOOK_FROM else None
        stretch = LOOK_RANGE if shown else max(piece_length, _UNIT)
        for offset in range(0, max(size, 1), stretch):
            part = _Range(index, path, size, offset, min(stretch, size - offset), shown)
            unit.append(part)
            weight += part.length
            if weight >= _UNIT or len(unit) >= _UNIT_FILES:
                yield unit
                unit, weight = [], 0
    if unit:
        yield unit


_Answers = list[tuple[_Range, list[bytes] | ReadFault | OSError]]


def _run(
    units: Iterable[list[_Range]], piece_length: int, threads: int
) -> Iterator[tuple[_Range, list[bytes] | ReadFault | OSError]]:
    """Yields the results in order. Only a few portions are in progress at a time."""
    window: deque[Future[_Answers]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="hash") as pool:
        try:
            for unit in units:
                window.append(pool.submit(_hash_unit, unit, piece_length))
                if len(window) > 4 * threads:
                    yield from window.popleft().result()
            while window:
                yield from window.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _hash_unit(unit: list[_Range], piece_length: int) -> _Answers:
    answers: _Answers = []
    for part in unit:
        try:
            answers.append((part, _hash_range(part, piece_length)))
        except (ReadFault, OSError) as exc:
            answers.append((part, exc))
    return answers


def _hash_range(part: _Range, piece_length: int) -> list[bytes]:
    """Returns the hashes of the pieces in one range, or the root of a file that has a single
    piece."""
    fd = os.open(part.path, _OPEN)
    try:
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode):
            raise ReadFault("it is no regular file")
        if before.st_size != part.size:
            raise ReadFault(f"it has {before.st_size} bytes instead of {part.size}")
        blocks = _blocks_of(fd, part)
        after = os.fstat(fd)
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise ReadFault("it changed while it was being read")
    finally:
        os.close(fd)
    if part.size <= piece_length:
        return [merkle.root(blocks)] if blocks else []
    per_piece = piece_length // merkle.BLOCK
    return [merkle.piece_hash(blocks[i : i + per_piece], piece_length) for i in range(0, len(blocks), per_piece)]


def _blocks_of(fd: int, part: _Range) -> list[bytes]:
    if part.look:
        return _look_at_blocks(fd, part, part.look)
    if part.size > merkle.BLOCK:
        return _read_blocks(fd, part.offset, part.length)
    data = os.read(fd, part.size)
    if len(data) < part.size:
        raise ReadFault("it became shorter while it was being read")
    return [hashlib.sha256(data).digest()] if data else []


def _read_blocks(fd: int, offset: int, length: int) -> list[bytes]:
    buffer = _buffer(_READ)
    blocks: list[bytes] = []
    for start in range(0, length, _READ):
        part = buffer[: min(_READ, length - start)]
        _read_into(fd, part, offset + start)
        blocks += merkle.leaves(part)
    return blocks


def _look_at_blocks(fd: int, part: _Range, look: Look) -> list[bytes]:
    buffer = _buffer(LOOK_RANGE)[: part.length]
    blocks: list[bytes] = []
    for start in range(0, part.length, _READ):  # so that what is hashed is still in the cache
        some = buffer[start : start + _READ]
        _read_into(fd, some, part.offset + start)
        blocks += merkle.leaves(some)
    look(part.file, part.offset, buffer)
    return blocks


def _read_into(fd: int, part: memoryview, offset: int) -> None:
    filled = 0
    while filled < len(part):
        count = os.preadv(fd, [part[filled:]], offset + filled)
        if count == 0:
            raise ReadFault("it became shorter while it was being read")
        filled += count


def _buffer(size: int) -> memoryview:
    buffer: memoryview | None = getattr(_local, "buffer", None)
    if buffer is None or len(buffer) < size:
        buffer = _local.buffer = memoryview(bytearray(size))
    return buffer
