"""What a disk has lost after a loss of power: the bytes of files that were not synced.

Always: a file whose bytes were synced keeps them. Others keep them, are empty, or end in zeros.
Never: lose a name. A rename that no sync of its directory followed stays.
"""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Iterator
from pathlib import Path

from simulation.host_process import HERE

_synced: dict[tuple[int, int], int] = {}
"""The checksum of each file's bytes when they were last synced, by device and inode."""


class SyncedFileSystems:
    """Stands for the C library of durability.py."""

    @staticmethod
    def syncfs(fd: int) -> int:
        """Notes all files of the host."""
        place = Path(os.readlink(f"/proc/self/fd/{fd}"))
        for path in _files(next((top for top in place.parents if top.name == HERE.get().name), place)):
            _note(path)
        return 0


def note_sync(fd: int) -> None:
    path = Path(os.readlink(f"/proc/self/fd/{fd}"))
    if path.is_file():
        _note(path)


def lose_unsynced(data_dir: Path, rng: random.Random) -> None:
    """Does what a loss of power does to the files of a host."""
    for path in _files(data_dir):
        size, kept = path.stat().st_size, rng.choice(["all", "none", "half"])
        if _synced.get(_key(path)) != zlib.crc32(path.read_bytes()) and kept != "all":
            path.chmod(0o644)
            with path.open("r+b") as stream:
                stream.truncate(0 if kept == "none" else size // 2)
                stream.truncate(0 if kept == "none" else size)


def _note(path: Path) -> None:
    _synced[_key(path)] = zlib.crc32(path.read_bytes())


def _key(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _files(top: Path) -> Iterator[Path]:
    yield from (path for path in sorted(top.rglob("*")) if path.is_file() and not path.is_symlink())
