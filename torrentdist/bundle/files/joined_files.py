"""Writes into the files of a bundle as if they were one file, in the order of the metafile.

Always: only files that the metafile names are written, and no symlink is followed. A file that has
another name in the store is copied first. All bytes are written, or an error is raised.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from torrentdist.bundle.files.durability import disk_failures
from torrentdist.bundle.metafile import Metafile


def write_at(meta: Metafile, content: Path, offset: int, data: bytes) -> None:
    """Writes these bytes of the bundle into its files below `content`, and into its packs."""
    view = memoryview(data)
    with disk_failures(content, needed=len(data)):
        for place, at, begin, length in _spans(meta, offset, len(data)):
            target = content.parent / place
            target.parent.mkdir(parents=True, exist_ok=True)
            _own(target)
            fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            try:
                _write_all(fd, view[begin : begin + length], at)
            finally:
                os.close(fd)


def _write_all(fd: int, view: memoryview, at: int) -> None:
    """Writes all of these bytes. The system writes as many as a disk has room for, and tells of a
    full disk at the next write only."""
    while view:
        count = os.pwrite(fd, view, at)
        view, at = view[count:], at + count


def _own(target: Path) -> None:
    """Makes a file that other bundles share a file of its own."""
    with suppress(FileNotFoundError):
        if os.lstat(target).st_nlink > 1:
            copy = target.with_name(f".{target.name[:100]}.own")
            shutil.copyfile(target, copy, follow_symlinks=False)
            os.rename(copy, target)


def _spans(meta: Metafile, offset: int, length: int) -> Iterator[tuple[str, int, int, int]]:
    """Yields the parts of files that `length` bytes at `offset` fall into.

    A part is (place, offset in the file, start in the data, length).
    """
    start = 0
    for entry in meta.wire_files:
        end = start + entry.size
        low, high = max(start, offset), min(end, offset + length)
        if low < high:
            yield entry.place, low - start, low - offset, high - low
        start = end
