"""Runs every measurement and prints the table. `--short` measures the same bars with less data, for
CI.

results.json and results.md keep the last full results; `--only` renews some of their rows. Exits
with 3 if a bar was missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.measures import (
    doors,
    download,
    environment,
    failover,
    groups,
    jobs,
    metafile,
    mutual,
    package_index,
    seeding,
    small_files,
    upload,
)
from bench.results import Row, conditions, read, renewed, table, write

MISSED = 3


@dataclass(frozen=True)
class Form:
    """The amount of data that each measurement uses."""

    name: str
    metafile_mib: int
    metafile_pairs: int
    download_mib: int
    download_pairs: int
    tls_pairs: int
    files: int
    file_pairs: int
    uploads: int
    bundles: int
    seeding_secs: float
    failovers: int
    catch_up_bundles: int
    jobs: int
    group: tuple[int, int]
    """Numbers of members and resources."""
    wheels: int
    door_mib: int
    small_files: tuple[int, ...]
    """Numbers of small files in a bundle."""
    tree_rounds: int
    requests: tuple[int, int]
    """Numbers of pairs, and of requests on each side of a pair."""


FULL = Form(
    name="full",
    metafile_mib=1024,
    metafile_pairs=9,
    download_mib=4096,
    download_pairs=5,
    tls_pairs=2,
    files=10_000,
    file_pairs=5,
    uploads=7,
    bundles=500,
    seeding_secs=60.0,
    failovers=20,
    catch_up_bundles=200,
    jobs=10,
    group=(50, 1000),
    wheels=100,
    door_mib=1024,
    small_files=(1_000, 10_000, 50_000, 200_000),
    tree_rounds=3,
    requests=(61, 50),
)
SHORT = Form(
    name="short",
    metafile_mib=256,
    metafile_pairs=5,
    download_mib=128,
    download_pairs=3,
    tls_pairs=1,
    files=1_500,
    file_pairs=1,
    uploads=3,
    bundles=100,
    seeding_secs=5.0,
    failovers=3,
    catch_up_bundles=20,
    jobs=2,
    group=(10, 100),
    wheels=20,
    door_mib=256,
    small_files=(1_000, 10_000),
    tree_rounds=1,
    requests=(15, 30),
)


def measurements(form: Form, directory: Path) -> dict[str, Callable[[], list[Row]]]:
    return {
        "metafile": lambda: metafile.measure(directory, mib=form.metafile_mib, pairs=form.metafile_pairs),
        "download": lambda: download.measure(
            directory,
            mib=form.download_mib,
            pairs=form.download_pairs,
            files=form.files,
            file_pairs=form.file_pairs,
        ),
        "swarm-tls": lambda: download.measure_tls(directory, mib=form.download_mib, pairs=form.tls_pairs),
        "upload": lambda: upload.measure(directory, uploads=form.uploads),
        "small-files": lambda: small_files.measure(directory, counts=form.small_files, rounds=form.tree_rounds),
        "environment": lambda: environment.measure(directory) if form is FULL else [],
        "small-memory": lambda: environment.measure_memory(directory, files=10_000 if form is FULL else 1_000),
        "seeding": lambda: seeding.measure(directory, bundles=form.bundles, seconds=form.seeding_secs),
        "failover": lambda: failover.measure_killed(directory, runs=form.failovers),
        "handover": lambda: failover.measure_handed_over(directory, runs=form.failovers),
        "catch-up": lambda: failover.measure_catch_up(directory, bundles=form.catch_up_bundles),
        "jobs": lambda: jobs.measure(directory, runs=form.jobs),
        "groups": lambda: groups.measure(members=form.group[0], resources=form.group[1]),
        "package-index": lambda: package_index.measure(directory, wheels=form.wheels, rounds=3),
        "doors": lambda: doors.measure(directory, mib=form.door_mib, pairs=9, completions=9),
        "mutual": lambda: mutual.measure(directory, pairs=form.requests[0], requests=form.requests[1], helps=9),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--short", action="store_const", const=SHORT, default=FULL, dest="form", help="for CI")
    parser.add_argument("--only", help=f"some of {','.join(measurements(FULL, Path()))}")
    parser.add_argument("--results", type=Path, default=None, help="where the results are kept")
    parser.add_argument("--dir", type=Path, default=None, help="the disk to measure on: 30 GB in the full form")
    args = parser.parse_args()
    circumstances = conditions(args.form.name)
    rows: list[Row] = []
    for name in args.only.split(",") if args.only else measurements(args.form, Path()):
        began = time.monotonic()
        if args.dir is not None:
            args.dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="torrentdist-bench-", dir=args.dir) as directory:
            measured = measurements(args.form, Path(directory))[name]()
            rows += measured
            print(f"measured {name} in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
            print(table(measured), file=sys.stderr, flush=True)  # Deleting it all may take long.
    print(table(rows))
    taken = rows
    kept = args.results or (Path(__file__).parent if args.form is FULL else None)
    if kept is not None:
        if args.only and (kept / "results.json").exists():
            before, circumstances_before = read(kept)
            rows, circumstances = renewed(before, rows, circumstances), circumstances_before
        write(rows, circumstances, kept)
    return MISSED if any(row.met is False for row in taken) else 0


if __name__ == "__main__":
    sys.exit(main())
