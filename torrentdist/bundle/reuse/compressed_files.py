"""Finds content that no later version can share: compressed archives.

A compressor changes all bytes after the first difference, so two versions have nothing in common.
A .zip is no such archive, since it compresses each member by itself.
Never: read more than the first bytes of a file, or look into files that have another name.
"""

import os
import re
from pathlib import Path
from typing import Final

from torrentdist.bundle.metafile import FileEntry, Metafile

_MAGIC: Final = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"LZIP")
"""How files of gzip, bzip2, xz, zstd, lz4 and lzip begin."""
_ARCHIVE: Final = re.compile(r"\.(tar\.[a-z0-9]+|tgz|tbz2?|txz|tzst|cpio\.[a-z0-9]+)$", re.IGNORECASE)
_MOST_READ: Final = 1000


def compressed_archives(meta: Metafile, path: Path) -> list[str]:
    """Returns the paths of the compressed archives in the bundle at `path`, the largest first, and
    of a compressed file that makes up at least half of it. Blocks briefly."""
    by_size = sorted(meta.files, key=lambda file: -file.size)
    candidates = [file for file in by_size if 2 * file.size >= meta.size or _ARCHIVE.search(file.path)]
    return [file.path for file in candidates[:_MOST_READ] if _is_compressed(file, meta, path)]


def _is_compressed(file: FileEntry, meta: Metafile, path: Path) -> bool:
    try:
        fd = os.open(path if meta.single_file else path / file.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.pread(fd, 8, 0).startswith(_MAGIC)
        finally:
            os.close(fd)
    except OSError:
        return False
