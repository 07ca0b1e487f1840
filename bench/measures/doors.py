"""Measures two doors that people use all day: reading a published file through fsspec against plain
`open`, and the completion of a bundle's id in a shell.

Both sides of the reading are in the page cache, so that the disk does not hide the difference.

Run it alone with `python -m bench --only doors`.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import IO

import fsspec

from bench.measures.metafile import write_random
from bench.results import Row, paired
from bench.stage import cluster_of, run, torrentdist

READ_BAR = 1.11
"""At least 0.9 of the speed of `open`."""
COMPLETE_BAR = 0.3
BLOCK = 1024 * 1024


def measure(directory: Path, *, mib: int, pairs: int, completions: int) -> list[Row]:
    (directory / "source").mkdir()
    write_random(directory / "source" / "file.bin", mib)
    with cluster_of(directory / "cluster", masters=1, supervisors=1) as cluster:
        torrentdist(cluster, "upload", str(directory / "source"), "--id", "door", "--min-replicas", "1")
        torrentdist(cluster, "bundle", "distribute", "door")
        files = fsspec.filesystem("torrentdist", config_file=cluster.dir / "client.toml")
        reading = [_pair(files, directory / "source" / "file.bin") for _ in range(pairs + 1)][1:]
        completing = _complete(cluster.dir / "client.toml", directory / "shell", completions)
    what = f"reading {mib} MiB through fsspec from a published bundle"
    return [
        paired("fsspec-read", what, reading, against="open", bar=READ_BAR),
        Row(
            key="completion",
            what="completing a bundle's id in a shell",
            ours=statistics.median(completing),
            unit="s",
            bar=COMPLETE_BAR,
            note=f"{completions} times, {min(completing):.2f}-{max(completing):.2f} s",
        ),
    ]


def _pair(files: fsspec.AbstractFileSystem, source: Path) -> tuple[float, float]:
    began = time.perf_counter()
    with files.open("door/file.bin", "rb") as door:
        _read(door)
    between = time.perf_counter()
    with source.open("rb") as plain:
        _read(plain)
    return between - began, time.perf_counter() - between


def _read(file: IO[bytes]) -> None:
    while file.read(BLOCK):
        pass


def _complete(config: Path, directory: Path, times: int) -> list[float]:
    directory.mkdir()
    shutil.copy(config, directory / "torrentdist.toml")
    program = Path(sys.executable).with_name("torrentdist")
    line = ["_TORRENTDIST_COMPLETE=bash_complete", "COMP_WORDS=torrentdist download do", "COMP_CWORD=2"]
    asked = [run(["env", *line, os.fspath(program)], directory) for _ in range(times)]
    if any(b"door" not in one.stdout for one in asked):
        raise RuntimeError("the id is not completed")
    return [one.seconds for one in asked]
