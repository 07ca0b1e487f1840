"""What lies where a transfer is going to write: nothing, or a part of the bundle from before.

Always holds: what is there is only made writable and cut to its size, so that libtorrent can keep every good byte.
Must not do: follow a symlink, or change anything that the metafile does not name.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from torrentdist.bundle.files.holes import make_sparse
from torrentdist.bundle.metafile import Metafile


def is_empty(content: Path) -> bool:
    try:
        with os.scandir(content) as entries:
            return next(entries, None) is None
    except FileNotFoundError:
        return True


def prepare(meta: Metafile, content: Path) -> None:
    """Where nothing is yet, the files with zeros appear as holes, which need not be fetched. Else: make_writable."""
    if is_empty(content):
        make_sparse(meta, content)
    else:
        make_writable(meta, content)


def make_writable(meta: Metafile, content: Path) -> None:
    """Blocks for a time that grows with the number of files."""
    known: set[Path] = set()
    for file in meta.files:
        path = content / file.path
        _open_directories(content, path.parent, known)
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(found.st_mode):
            path.unlink()
            continue
        if found.st_mode & 0o600 != 0o600:
            path.chmod(stat.S_IMODE(found.st_mode) | 0o600)
        if found.st_size > file.size:
            os.truncate(path, file.size)


def _open_directories(content: Path, directory: Path, known: set[Path]) -> None:
    """Make `directory` and those above it, up to `content`, writable if they are there."""
    if directory in known:
        return
    known.add(directory)
    if directory != content:
        _open_directories(content, directory.parent, known)
    try:
        found = os.lstat(directory)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode):
        directory.unlink()
    elif found.st_mode & 0o700 != 0o700:
        directory.chmod(stat.S_IMODE(found.st_mode) | 0o700)
