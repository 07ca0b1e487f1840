"""Makes the whole table, unattended: `python -m bench.swarm.lab_run --table DIR [--runs N] [--only
A,B] [--through CMD]`.

Every run of a row is a process of less than five minutes that leaves DIR/CASE-N.json. Existing
files are not made again, so the same command continues where it stopped. It exits with 0 when all
exist. CMD (a lock, nice, sudo) is put in front of every run.

Always: the table and the pictures are renewed after each run. The first runs of all rows come
before the second runs. Rows without limits come last, because they leave an empty page cache, which
delays sixteen commands by half a second. Never: throw away a run that missed its bar.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import msgspec

from bench.lab.namespaces import ROOT
from bench.scale import unlimited
from bench.swarm.cases import CASES
from bench.swarm.measured import ComparedRun, MeasuredCase
from bench.swarm.picture import picture
from bench.swarm.swarm_results import HERE, record

ROWS = (
    *("main", "large", "crowd", "holders", "apart", "slow", "killed", "liars", "leaving", "tls"),
    *("unlimited-1", "unlimited-4", "download", "source"),
)
"""The rows of the table, in order."""
PICTURES = ROOT / "docs" / "swarm"
UNLIMITED_RUNS = 3


def make(
    directory: Path,
    named: list[str],
    runs: int | None,
    through: str,
    *,
    rows: Path = HERE,
    pictures: Path = PICTURES,
) -> int:
    """`named`: only these rows. `runs`: number of runs, instead of the case's own."""
    if unknown := [key for key in named if key not in (*ROWS, *CASES)]:
        print(f"no such row: {', '.join(unknown)}; there are {', '.join(ROWS)}", file=sys.stderr)
        return 2
    directory.mkdir(parents=True, exist_ok=True)
    many = {key: runs or (CASES[key].runs if key in CASES else UNLIMITED_RUNS) for key in named or ROWS}
    lacking = []
    for key, number in turns(many):
        out = directory / f"{key}-{number}.json"
        if out.exists():
            continue
        print(f"{key}, run {number} of {many[key]}", file=sys.stderr, flush=True)
        with (directory / f"{key}-{number}.log").open("ab") as log:
            subprocess.run(
                [*shlex.split(through), *_command(key, number, out)], cwd=ROOT, stdout=log, stderr=log, check=False
            )
        if out.exists():
            renew(directory, key, rows=rows, pictures=pictures)
        else:
            lacking.append(out.stem)
    if lacking:
        print(f"without a result, see their logs in {directory}: {', '.join(lacking)}", file=sys.stderr)
    return 1 if lacking else 0


def turns(many: dict[str, int]) -> list[tuple[str, int]]:
    """Returns the order of runs as pairs of row and number."""
    all_turns = [(key, number) for key, count in many.items() for number in range(1, 1 + count)]
    return sorted(all_turns, key=lambda turn: (turn[0] not in CASES, turn[1]))


def renew(directory: Path, key: str, *, rows: Path = HERE, pictures: Path = PICTURES) -> None:
    """Makes a row and its picture from all runs that exist."""
    files = sorted(directory.glob(f"{key}-*.json"), key=lambda file: int(file.stem.rpartition("-")[2]))
    if key not in CASES:
        turns = [turn for file in files for turn in msgspec.json.decode(file.read_bytes(), type=list[unlimited.Turn])]
        record(key, unlimited.row(turns), rows)
        return
    runs = [run for file in files for run in msgspec.json.decode(file.read_bytes(), type=list[ComparedRun])]
    measured = MeasuredCase(CASES[key], runs)
    record(key, measured.row(), rows)
    pictures.mkdir(exist_ok=True)
    drawn = picture(CASES[key].what, measured.contenders(), measured.middle().link_time)
    (pictures / f"{key}.svg").write_text(drawn)
    (pictures / "README.md").write_text(album(pictures))


def album(pictures: Path) -> str:
    """Returns a page with all pictures that exist."""
    there = [(key, case.what) for key, case in CASES.items() if (pictures / f"{key}.svg").exists()]
    head = """# Broadcasts in pictures

`python -m bench.swarm.lab_run --table DIR` draws the median run of each case. Each line is one
host; a dot marks the moment at which its directory was published, a cross a host that lost power. T
is one plain HTTP transfer over one link. A line rises above one copy because of headers, and of
blocks that arrived twice.
"""
    return "\n".join([head, *(f"## {key}: {what}\n\n![{what}]({key}.svg)\n" for key, what in there)])


def _command(key: str, number: int, out: Path) -> list[str]:
    if key not in CASES:
        _, _, hosts = key.rpartition("-")
        return [sys.executable, "-m", "bench.scale.unlimited", hosts, str(number), str(out.resolve())]
    peers = ",".join(CASES[key].peers)
    return [
        sys.executable,
        "-m",
        "bench.swarm.lab_run",
        "--scenario",
        key,
        "--peers",
        peers,
        "--out",
        str(out.resolve()),
    ]
