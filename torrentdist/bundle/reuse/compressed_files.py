"""Finds content that no later version can share: one compressed file that makes up a bundle.

A compressor changes all bytes after the first difference, so two versions have nothing in common.
Never: read more than the first bytes of one file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from torrentdist.bundle.metafile import Metafile

_MAGIC: Final = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"LZIP")
"""How files of gzip, bzip2, xz, zstd, lz4 and lzip begin."""
_LEAST_BYTES: Final = 1024 * 1024
"""A smaller bundle is soon moved, whatever is in it."""


def compressed_file(meta: Metafile, path: Path) -> str:
    """Returns the path of the compressed file that holds at least half of the bundle at `path`;
    empty if there is none. Blocks briefly."""
    largest = max(meta.files, key=lambda file: file.size)
    if largest.size < _LEAST_BYTES or 2 * largest.size < meta.size:
        return ""
    place = path if meta.single_file else path / largest.path
    try:
        fd = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return largest.path if os.pread(fd, 8, 0).startswith(_MAGIC) else ""
        finally:
            os.close(fd)
    except OSError:
        return ""
