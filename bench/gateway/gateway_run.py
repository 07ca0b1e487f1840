"""Runs what is measured of the gateway's doors for images and objects, and prints the table.

`python -m bench.gateway.gateway_run --only pull,objects,scan,builds,fleet`. The last two need root,
for the lab; `--short` measures with less data and keeps nothing. Exits with 3 if a bar was missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.gateway import image_builds, image_fleet, image_pull, object_rate, parquet_scan
from bench.gateway.other_servers import lacking
from bench.lab import namespaces as labs
from bench.lab.namespaces import Lab
from bench.results import Row, conditions, read, renewed, table, write

MISSED = 3
IN_LAB = ("builds", "fleet")
MEASURES = ("pull", "objects", "scan", *IN_LAB)
NEEDS = {
    "pull": ["docker-registry", "skopeo"],
    "objects": ["nginx"],
    "builds": ["skopeo"],
    "fleet": ["docker-registry", "skopeo"],
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.gateway.gateway_run", description=__doc__)
    parser.add_argument("--only", default=",".join(MEASURES), help=f"some of {','.join(MEASURES)}")
    parser.add_argument("--short", action="store_true", help="less data; nothing is kept")
    parser.add_argument("--dir", type=Path, default=None, help="the disk to measure on")
    args = parser.parse_args()
    names = args.only.split(",")
    if unknown := [name for name in names if name not in MEASURES]:
        parser.error(f"no such measurement: {', '.join(unknown)}")
    if missing := lacking(sorted({program for name in names for program in NEEDS.get(name, [])})):
        parser.error(f"missing: {', '.join(missing)}; on Debian: apt-get install {' '.join(missing)}")
    if any(name in IN_LAB for name in names):
        labs.enter("bench.gateway.gateway_run", sys.argv[1:])
    circumstances = conditions("short" if args.short else "full")
    rows = [row for name in names for row in _measured(name, args.dir, short=args.short)]
    print(table(rows))
    if not args.short:
        _keep(rows, circumstances)
    return MISSED if any(row.met is False for row in rows) else 0


def _measured(name: str, disk: Path | None, *, short: bool) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="td-doors-", dir=disk) as text:
        directory = Path(text)
        here: dict[str, Callable[[], list[Row]]] = {
            "pull": lambda: image_pull.measure(directory, mib=64 if short else 256, pairs=3 if short else 5),
            "objects": lambda: object_rate.measure(directory, mib=256 if short else 1024, pairs=3 if short else 5),
            "scan": lambda: parquet_scan.measure(directory, mib=128 if short else 1024, pairs=3),
            "builds": lambda: image_builds.measure(_lab(), directory, mib=100 if short else 500),
            "fleet": lambda: image_fleet.measure(_lab(), directory, short=short),
        }
        rows = here[name]()
    print(table(rows), file=sys.stderr, flush=True)
    return rows


def _lab(made: list[Lab] = []) -> Lab:  # noqa: B006 - one lab for all, because a namespace has one bridge
    if not made:
        made.append(Lab())
    return made[0]


def _keep(rows: list[Row], circumstances: dict[str, str]) -> None:
    kept = Path(__file__).parent
    if (kept / "results.json").exists():
        before, circumstances_before = read(kept)
        rows, circumstances = renewed(before, rows, circumstances), circumstances_before
    write(rows, circumstances, kept)


if __name__ == "__main__":
    sys.exit(main())
