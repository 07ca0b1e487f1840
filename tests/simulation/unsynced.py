"""What a disk has lost after a loss of power: bytes and names that were not synced.

Always: bytes that were synced stay. Of those that were written after them, all, some or none are
there; the others are missing or zeros. lost_names.py says which names are lost.
"""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Iterator
from pathlib import Path

from simulation.host_process import HERE

SECTOR = 512
_synced: dict[tuple[int, int], tuple[int, int]] = {}
"""The size and checksum of each file's bytes when they were last synced, by device and inode."""


class SyncedFileSystems:
    """Stands for the C library of durability.py. It cannot exchange two names."""

    @staticmethod
    def syncfs(fd: int) -> int:
        """Notes all files of the host."""
        here = HERE.get()
        place = Path(os.readlink(f"/proc/self/fd/{fd}"))
        for path in _files(next((top for top in place.parents if top.name == here.name), place)):
            _note(path)
        if here.names is not None:
            here.names.all_synced()
        return 0


def note_sync(fd: int) -> None:
    path = Path(os.readlink(f"/proc/self/fd/{fd}"))
    if path.is_file():
        _note(path)
    elif (names := HERE.get().names) is not None:
        names.synced(str(path))


def lose_unsynced(data_dir: Path, rng: random.Random) -> None:
    """Does what a loss of power does to the bytes of a host's files."""
    for path in _files(data_dir):
        found, data = path.stat(), path.read_bytes()
        size, crc = _synced.get(_key(path), (0, 0))
        if (size, crc) != (len(data), zlib.crc32(data)):
            durable = size if zlib.crc32(data[:size]) == crc else 0
            left = _left(data, durable, rng)
            path.chmod(0o600)
            path.write_bytes(left)
            os.utime(path, (found.st_atime, found.st_mtime))
            path.chmod(found.st_mode & 0o7777)
        _note(path)


def _left(data: bytes, durable: int, rng: random.Random) -> bytes:
    """Returns what is left of a file whose first bytes were synced."""
    tail = data[durable:]
    match rng.choice(["all", "none", "zeros", "shorter", "torn"]):
        case "all":
            return data
        case "none":
            return data[:durable]
        case "zeros":
            return data[:durable] + bytes(len(tail))
        case "shorter":
            return data[: durable + rng.randint(0, len(tail))]
    sectors = [slice(at, at + SECTOR) for at in range(durable // SECTOR * SECTOR, len(data), SECTOR)]
    torn = bytearray(data)
    for sector in sectors:
        if rng.random() < 0.5:
            torn[sector] = bytes(len(torn[sector]))
    return data[:durable] + bytes(torn[durable:])


def flip_bit(top: Path, rng: random.Random) -> Path | None:
    """Turns one bit of one of the files below `top`."""
    full = [path for path in _files(top) if path.stat().st_size]
    if not full:
        return None
    path = rng.choice(full)
    found, data = path.stat(), bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.chmod(0o600)
    with path.open("r+b") as stream:
        stream.write(data)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    path.chmod(found.st_mode & 0o7777)
    _note(path)
    return path


def _note(path: Path) -> None:
    data = path.read_bytes()
    _synced[_key(path)] = len(data), zlib.crc32(data)


def _key(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _files(top: Path) -> Iterator[Path]:
    yield from (path for path in sorted(top.rglob("*")) if path.is_file() and not path.is_symlink())
