"""Measures what a new version costs against the bars, and keeps the table in bench/versions/.

`make bench-versions` measures every row, three times each; `--only` renews some of them. Needs
root, for the lab. Exits with 3 if a bar was missed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

from bench.lab import namespaces as labs
from bench.lab.namespaces import Lab
from bench.measures.metafile import write_random
from bench.results import Row, conditions, read, renewed, table, write
from bench.versions import local_costs
from bench.versions.environments import Versions, archives, environment, jars, size_of
from bench.versions.fleet import Spread, spread

MISSED = 3
MIB = 1024 * 1024
RATE = 10.0
"""Mbit/s of each link in the rows about time."""
HOSTS = 16


class Measurements:
    """`top` holds the versions, and is kept between runs."""

    def __init__(self, top: Path, runs: int) -> None:
        self._top = top
        self._runs = runs
        self._lab: Lab | None = None

    def named(self) -> dict[str, Callable[[], list[Row]]]:
        return {
            "environment": self.environment,
            "archive": lambda: self._bytes(
                "archive", archives(self._env(), "same"), "the same as one .tar, --mtime=@0", 9.0
            ),
            "times": lambda: self._bytes(
                "times", archives(self._env(), "kept"), "the same as one .tar, pandas' files with new times", None
            ),
            "jars": lambda: self._bytes("jars", jars(self._top), "PySpark's jars 3.5.4 to 3.5.5", 16.0),
            "fleet": self.fleet,
            "files": lambda: [local_costs.matching(self._top, self._runs)],
            "recipe": lambda: [local_costs.recipe(self._top, self._runs)],
            "nobody": lambda: [local_costs.nobody(self._top, self._runs, RATE)],
        }

    def prepare(self) -> None:
        """Gets the packages, which the lab cannot."""
        (
            archives(self._env(), "same"),
            archives(self._env(), "kept"),
            jars(self._top),
            environment(self._top, "base-100"),
        )

    def _env(self) -> Versions:
        return environment(self._top, "base-400")

    def lab(self) -> Lab:
        if self._lab is None:
            (self._top / "lab").mkdir(exist_ok=True)
            self._lab = Lab(self._top / "lab")
        return self._lab

    def environment(self) -> list[Row]:
        versions = self._env()
        took = [
            spread(self.lab(), versions.old, versions.new, hosts=2, holders=3, knowing=2) for _ in range(self._runs)
        ]
        size = size_of(versions.new)
        what = f"environment of {size / 1e6:.0f} MB, pandas patched"
        return [
            _share("environment", f"{what}: down each link", [_most_received(one) for one in took], size, 7.0),
            _share("upload", f"{what}: leaving the uploader to 3 masters", [one.uploaded for one in took], size, 7.5),
        ]

    def _bytes(self, key: str, versions: Versions, what: str, bar: float | None) -> list[Row]:
        took = [
            spread(self.lab(), versions.old, versions.new, hosts=1, holders=1, knowing=1) for _ in range(self._runs)
        ]
        size = size_of(versions.new)
        what = f"{what} ({size / 1e6:.0f} MB): down each link"
        return [_share(key, what, [_most_received(one) for one in took], size, bar)]

    def fleet(self) -> list[Row]:
        """The rows about time: all, half and none of the hosts have the old version."""
        versions = environment(self._top, "base-100")
        nothing, fresh = self._top / "nothing", self._top / "fresh"
        for path, mib in ((nothing, 1), (fresh, 0)):
            path.mkdir(exist_ok=True)
            write_random(path / "random.bin", mib)
        every, half, none, alone = [], [], [], []
        for _ in range(self._runs):
            every.append(self._timed(versions.old, versions.new, HOSTS))
            with (fresh / "random.bin").open("wb") as out:
                out.write(local_costs.random_bytes(local_costs.new_bytes(versions)))
            alone.append(self._timed(nothing, fresh, 0))
            half.append(self._timed(versions.old, versions.new, HOSTS // 2))
            none.append(self._timed(nothing, versions.new, 0))
        others = [max(end for name, end in one.done.items() if int(name[1:]) >= HOSTS // 2) for one in half]
        return [
            _times("fleet", "every host has the old version", _last(every), _last(alone), "new bytes alone", 1.3),
            _times("half", "half have it: the others", others, _last(none), "nobody has it", 1.05),
        ]

    def _timed(self, old: Path, new: Path, knowing: int) -> Spread:
        return spread(self.lab(), old, new, hosts=HOSTS, holders=1, knowing=knowing, rate=RATE)


def _most_received(one: Spread) -> int:
    return max(one.received.values())


def _last(took: list[Spread]) -> list[float]:
    return [max(one.done.values()) for one in took]


def _share(key: str, what: str, counts: list[int], size: int, bar: float | None) -> Row:
    shares = [100 * count / size for count in counts]
    note = f"{len(shares)} runs, {min(shares):.2f}-{max(shares):.2f} %"
    return Row(key=key, what=what, ours=statistics.median(shares), unit="%", bar=bar, note=note)


def _times(key: str, what: str, ours: list[float], others: list[float], against: str, bar: float) -> Row:
    ratios = [one / other for one, other in zip(ours, others, strict=True)]
    return Row(
        key=key,
        what=f"100 MB to {HOSTS} hosts at {RATE:g} Mbit/s, {what}",
        ours=statistics.median(ours),
        reference=statistics.median(others),
        unit="s",
        against=against,
        ratio=statistics.median(ratios),
        bar=bar,
        note=f"{len(ratios)} runs, {min(ratios):.2f}-{max(ratios):.2f}",
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.versions.versions_run", description=__doc__)
    parser.add_argument("--only", help="some of environment,archive,times,jars,fleet,files,recipe,nobody")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--dir", type=Path, required=True, help="a disk with 20 GB; the packages are kept there")
    arguments = parser.parse_args()
    if reason := labs.why_not() if labs.INSIDE not in os.environ else "":
        print(f"no lab on this machine: {reason}", file=sys.stderr)
        return 2
    arguments.dir.mkdir(exist_ok=True)
    measurements = Measurements(arguments.dir.resolve(), arguments.runs)
    measurements.prepare()
    labs.enter("bench.versions.versions_run", sys.argv[1:])
    rows: list[Row] = []
    here, known = Path(__file__).parent, measurements.named()
    for name in arguments.only.split(",") if arguments.only else known:
        rows += known[name]()
        print(table(rows[-2:]), file=sys.stderr, flush=True)
        kept = here / "results.json"
        before, circumstances = read(here) if kept.exists() else ([], conditions("full"))
        write(renewed(before, rows, circumstances), conditions("full"), here)
    print(table(rows))
    return MISSED if any(row.met is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
