"""`python -m bench.report --events 1000000,2000000`: how long `torrentdist report` takes, and how much memory, by size.

Not a part of `make bench`: 50 million events want half an hour and 20 GB of disk. Always holds:
each size has a Spark of its own, so that none profits from what another one warmed up.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import msgspec


class Measured(NamedTuple):
    events: int
    megabytes: float
    seconds: float
    jvm_mib: float
    """The most that the JVM, driver and executor in one, had in memory."""


def measure(events: int, directory: Path, cores: int, memory: str) -> Measured:
    from bench.generated_events import generated, write_events
    from torrentdist.spark.report import run_once
    from torrentdist.spark.session import spark_session

    conf = {"spark.driver.memory": memory, "spark.local.dir": str(directory / "spill")}
    with spark_session("bench", master=f"local[{cores}]", conf=conf) as spark:
        write_events(generated(spark, events, partitions=max(4 * cores, events // 500_000)), directory / "in")
    size = sum(path.stat().st_size for path in (directory / "in").iterdir())
    with spark_session("bench", master=f"local[{cores}]", conf=conf) as spark:
        began = time.monotonic()
        view = run_once(spark, str(directory / "in"), directory / "out")
        seconds = time.monotonic() - began
        pid = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
        status = Path(f"/proc/{pid}/status").read_text()
        peak = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
    return Measured(view.events, size / 1e6, seconds, peak / 1024)


def table(rows: list[Measured]) -> str:
    lines = ["| events | MB of JSON | seconds | seconds per million | JVM, MiB at most |", "|---:|---:|---:|---:|---:|"]
    for row in rows:
        per_million = row.seconds / row.events * 1e6
        lines.append(
            f"| {row.events:,} | {row.megabytes:,.0f} | {row.seconds:.1f} | {per_million:.1f} | {row.jvm_mib:,.0f} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.report", description=__doc__)
    parser.add_argument("--events", default="1000000,2000000,4000000", help="sizes, as N,N")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory", default="2g", help="the JVM's heap")
    parser.add_argument("--dir", type=Path, default=None, help="the disk to measure on: 350 MB a million events")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    rows = []
    for count in map(int, args.events.split(",")):
        if args.one:
            with tempfile.TemporaryDirectory(prefix="torrentdist-bench-", dir=args.dir) as directory:
                rows.append(measure(count, Path(directory), args.cores, args.memory))
            print(msgspec.json.encode(rows[0]).decode())
            return 0
        options = ["--events", str(count), "--cores", str(args.cores), "--memory", args.memory]
        options += ["--dir", str(args.dir)] if args.dir else []
        command = [sys.executable, "-m", "bench.report", "--one", *options]
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
        rows.append(msgspec.json.decode(out.splitlines()[-1], type=Measured))
        print(f"measured {count:,}", file=sys.stderr, flush=True)
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
