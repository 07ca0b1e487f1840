"""Measures making a metafile against libtorrent's own hashing of the same file, in one run.

Both read a file that is in the page cache. The order alternates.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import libtorrent as lt

from bench.results import Row, paired
from torrentdist.bundle.metafile_maker import choose_piece_length, make_metafile

MIB = 1024 * 1024


def write_random(path: Path, mib: int) -> None:
    with path.open("wb") as out:
        for _ in range(mib):
            out.write(os.urandom(MIB))


def reference(path: Path) -> None:
    create = lt.create_torrent(
        lt.list_files(str(path)), choose_piece_length(path.stat().st_size), lt.create_torrent.v2_only
    )
    lt.set_piece_hashes(create, str(path.parent))
    create.generate()


def ours(path: Path) -> None:
    make_metafile(path)


def seconds(function: Callable[[Path], None], path: Path) -> float:
    start = time.perf_counter()
    function(path)
    return time.perf_counter() - start


def measure(directory: Path, *, mib: int, pairs: int) -> list[Row]:
    path = directory / "data.bin"
    write_random(path, mib)
    taken = []
    for turn in range(pairs):
        if turn % 2:
            hashed, made = seconds(reference, path), seconds(ours, path)
        else:
            made, hashed = seconds(ours, path), seconds(reference, path)
        taken.append((made, hashed))
    return [paired("metafile", f"metafile of {mib} MiB", taken, against="libtorrent's own hashing", bar=1.3)]
