"""Measures what a new version costs against the bars, and keeps the table in bench/versions/.

`make bench-versions` measures every row, three times each if that takes less than eight minutes;
`--only` renews some of them. Another run with the same `--dir` uses the packages and versions that
are there. Needs root, for the lab. Exits with 3 if a bar was missed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from bench.lab import namespaces as labs
from bench.lab.namespaces import Lab
from bench.results import Row, conditions, read, renewed, table, write
from bench.versions import local_costs
from bench.versions.environments import Versions, archives, environment, jars, sample, scattered, size_of
from bench.versions.fleet import Spread, spread, uploaded

MISSED = 3
MIB = 1024 * 1024
RATE = 10.0
"""Mbit/s of each link in the rows about time."""
ROW_SECS = 480.0
"""No row takes longer, unless its first run does."""
HOSTS, SMALL_HOSTS = 16, 4
SMALL_MIB = 3
FRESH_MIB = 16
SMALL_SCATTERED = 2_000
SCATTERED = 50_000
"""Small files, of which one of a hundred changes."""
ROWS = (
    "environment",
    "scattered",
    "upload",
    "archive",
    "times",
    "jars",
    "fleet",
    "half",
    "files",
    "recipe",
    "nobody",
)


class Measurements:
    """`top` holds the versions, and is kept between runs. `small`: tries everything with a few
    MiB."""

    def __init__(self, top: Path, runs: int, small: bool) -> None:
        self._top = top
        self._runs = runs
        self._small = small
        self._hosts = SMALL_HOSTS if small else HOSTS
        self._lab: Lab | None = None

    def named(self) -> dict[str, Callable[[], Row]]:
        return {
            "environment": self.environment,
            "scattered": self.scattered,
            "upload": self.upload,
            "archive": lambda: self._bytes("archive", self._archives("same"), "the same as one .tar, --mtime=@0", 9.0),
            "times": lambda: self._bytes(
                "times", self._archives("kept"), "the same as one .tar, pandas' files with new times", None
            ),
            "jars": lambda: self._bytes("jars", self._jars(), "PySpark's jars 3.5.4 to 3.5.5", 16.0),
            "fleet": self.fleet,
            "half": self.half,
            "files": lambda: local_costs.matching(self._top, self._runs),
            "recipe": lambda: local_costs.recipe(self._top, self._runs),
            "nobody": self.nobody,
        }

    def prepare(self, names: Collection[str]) -> None:
        """Gets the packages of these rows, which the lab cannot."""
        needed = {
            "environment": self._env,
            "upload": self._env,
            "archive": lambda: self._archives("same"),
            "times": lambda: self._archives("kept"),
            "jars": self._jars,
            "fleet": self._env_100,
            "half": self._env_100,
        }
        for name in names:
            if name in needed:
                needed[name]()

    def _env(self) -> Versions:
        return sample(self._top, SMALL_MIB) if self._small else environment(self._top, "base-400")

    def _env_100(self) -> Versions:
        return sample(self._top, SMALL_MIB) if self._small else environment(self._top, "base-100")

    def _archives(self, kind: str) -> Versions:
        return archives(self._env(), kind)

    def _jars(self) -> Versions:
        return sample(self._top, SMALL_MIB) if self._small else jars(self._top)

    def lab(self) -> Lab:
        if self._lab is None:
            shutil.rmtree(self._top / "lab", ignore_errors=True)  # of a run that was killed
            (self._top / "lab").mkdir()
            self._lab = Lab(self._top / "lab")
        return self._lab

    def _turns(self) -> Iterator[None]:
        """Yields for each run of a row; for fewer if another one would take the row too long."""
        began, longest = time.monotonic(), 0.0
        for _ in range(self._runs):
            start = time.monotonic()
            if start + longest > began + ROW_SECS:
                return
            yield
            longest = max(longest, time.monotonic() - start)

    def environment(self) -> Row:
        versions = self._env()
        took = [spread(self.lab(), *versions, hosts=2, holders=3, knowing=2) for _ in self._turns()]
        return _share("environment", f"{_patched(versions)}: down each link", _most_received(took), versions, 7.0)

    def scattered(self) -> Row:
        versions = scattered(self._top, SMALL_SCATTERED if self._small else SCATTERED)
        took = [spread(self.lab(), *versions, hosts=2, holders=3, knowing=2) for _ in self._turns()]
        size = f"{size_of(versions.new) / 1e6:.0f} MB of small files"
        return _share("scattered", f"{size}, 1 % of them changed: down each link", _most_received(took), versions, 3.0)

    def upload(self) -> Row:
        versions = self._env()
        took = [uploaded(self.lab(), *versions, holders=3, rate=RATE) for _ in self._turns()]
        return _share("upload", f"{_patched(versions)}: leaving the uploader to 3 masters", took, versions, 7.5)

    def _bytes(self, key: str, versions: Versions, what: str, bar: float | None) -> Row:
        took = [spread(self.lab(), *versions, hosts=1, holders=1, knowing=1) for _ in self._turns()]
        what = f"{what} ({size_of(versions.new) / 1e6:.0f} MB): down each link"
        return _share(key, what, _most_received(took), versions, bar)

    def fleet(self) -> Row:
        """Every host has the old version, against a bundle as large as what is new."""
        versions = self._env_100()
        every, alone = [], []
        for _ in self._turns():
            every.append(self._timed(*versions, self._hosts))
            fresh = local_costs.random_bundle(self._top / "fresh", local_costs.new_bytes(versions))
            alone.append(self._timed(self._nothing(), fresh, 0))
        what = f"{self._to_hosts(versions)}, every host has the old version"
        return _times("fleet", what, _last(every), _last(alone), "new bytes alone", 1.3)

    def half(self) -> Row:
        """The hosts without the old version, against a fleet in which nobody has it."""
        versions = self._env_100()
        half, none = [], []
        for _ in self._turns():
            half.append(self._timed(*versions, self._hosts // 2))
            none.append(self._timed(self._nothing(), versions.new, 0))
        others = [max(end for name, end in one.done.items() if int(name[1:]) >= self._hosts // 2) for one in half]
        what = f"{self._to_hosts(versions)}, half have the old version: the others"
        return _times("half", what, others, _last(none), "nobody has it", 1.05)

    def nobody(self) -> Row:
        """A fresh bundle to hosts that have another one and look for parts in it, against hosts
        that have nothing."""
        others, none = [], []
        for _ in self._turns():
            fresh = local_costs.random_bundle(self._top / "fresh", FRESH_MIB * MIB)
            others.append(self._timed(sample(self._top, SMALL_MIB).old, fresh, self._hosts))
            none.append(self._timed(self._nothing(), fresh, 0))
        what = f"fresh bundle of {FRESH_MIB} MiB to {self._hosts} hosts at {RATE:g} Mbit/s, nobody has an old version"
        return _times("nobody", what, _last(others), _last(none), "hosts without any bundle", 1.03)

    def _nothing(self) -> Path:
        return local_costs.random_bundle(self._top / "nothing", MIB)

    def _to_hosts(self, versions: Versions) -> str:
        return f"{size_of(versions.new) / 1e6:.0f} MB to {self._hosts} hosts at {RATE:g} Mbit/s"

    def _timed(self, old: Path, new: Path, knowing: int) -> Spread:
        return spread(self.lab(), old, new, hosts=self._hosts, holders=1, knowing=knowing, rate=RATE)


def _patched(versions: Versions) -> str:
    return f"environment of {size_of(versions.new) / 1e6:.0f} MB, pandas patched"


def _most_received(took: list[Spread]) -> list[int]:
    return [max(one.received.values()) for one in took]


def _last(took: list[Spread]) -> list[float]:
    return [max(one.done.values()) for one in took]


def _share(key: str, what: str, counts: list[int], versions: Versions, bar: float | None) -> Row:
    shares = [100 * count / size_of(versions.new) for count in counts]
    note = f"{len(shares)} runs, {min(shares):.2f}-{max(shares):.2f} %"
    return Row(key=key, what=what, ours=statistics.median(shares), unit="%", bar=bar, note=note)


def _times(key: str, what: str, ours: list[float], others: list[float], against: str, bar: float) -> Row:
    ratios = [one / other for one, other in zip(ours, others, strict=True)]
    return Row(
        key=key,
        what=what,
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
    parser.add_argument("--only", help=f"some of {','.join(ROWS)}")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="try the rows with a few MiB, and keep no figures")
    parser.add_argument("--dir", type=Path, required=True, help="a disk with 20 GB; the packages are kept there")
    arguments = parser.parse_args()
    if reason := labs.why_not() if labs.INSIDE not in os.environ else "":
        print(f"no lab on this machine: {reason}", file=sys.stderr)
        return 2
    arguments.dir.mkdir(parents=True, exist_ok=True)
    measurements = Measurements(arguments.dir.resolve(), arguments.runs, arguments.small)
    names = arguments.only.split(",") if arguments.only else ROWS
    measurements.prepare(names)
    labs.enter("bench.versions.versions_run", sys.argv[1:])
    rows: list[Row] = []
    circumstances = conditions("full")
    here, known = Path(__file__).parent, measurements.named()
    for name in names:
        rows.append(known[name]())
        print(table(rows[-1:]), file=sys.stderr, flush=True)
        if arguments.small:
            continue
        kept = here / "results.json"
        before, circumstances_before = read(here) if kept.exists() else ([], circumstances)
        write(renewed(before, rows, circumstances), circumstances_before, here)
    print(table(rows))
    return MISSED if not arguments.small and any(row.met is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
