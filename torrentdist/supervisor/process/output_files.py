"""Reads a worker's output as one sequence of bytes, whichever files hold it.

Always: an offset refers to the same byte forever. Deleted bytes are skipped, never renumbered. All
functions block: call them in threads.
"""

from enum import StrEnum
from pathlib import Path

import msgspec

MOST_BYTES = 1024 * 1024
"""Most bytes in one answer."""


class Stream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


class Piece(msgspec.Struct, frozen=True):
    start: int
    data: bytes

    @property
    def end(self) -> int:
        return self.start + len(self.data)


class Span(msgspec.Struct, frozen=True):
    """The range of a stream that is kept, and when its last byte was written."""

    begin: int
    end: int
    at: float


def span_of(home: Path, stream: Stream) -> Span | None:
    """Returns the range of a stream that is kept, or None if nothing is kept."""
    files = _files(home, stream)
    if not files:
        return None
    last = max(files)
    try:
        return Span(min(files), last + files[last][1], files[last][0].stat().st_mtime)
    except FileNotFoundError:  # It was rotated away meanwhile.
        return None


def read_output(home: Path, stream: Stream, offset: int, limit: int = MOST_BYTES) -> Piece:
    """Reads from `offset`, or from the first kept byte after it. A negative offset counts from the
    end."""
    files = _files(home, stream)
    end = max((start + size for start, (_, size) in files.items()), default=0)
    at = max(0, end + offset) if offset < 0 else offset
    for start, (path, size) in sorted(files.items()):
        if at < start + size:
            begin = max(at, start)
            try:
                with path.open("rb") as file:
                    file.seek(begin - start)
                    return Piece(begin, file.read(limit))
            except FileNotFoundError:  # It was rotated away meanwhile.
                continue
    return Piece(min(at, end), b"")


def _files(home: Path, stream: Stream) -> dict[int, tuple[Path, int]]:
    found = {}
    for path in home.glob(f"{stream}.*"):
        offset = path.name.partition(".")[2]
        if offset.isascii() and offset.isdigit():
            try:
                found[int(offset)] = path, path.stat().st_size
            except FileNotFoundError:
                continue
    return found
