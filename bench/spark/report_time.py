"""Measures the time and memory of `torrentdist report` by the number of events.

`python -m bench.spark.report_time --events 1000000,2000000`. It is not part of `make bench`: 50
million events take half an hour and 20 GB of disk.

Always: each size has its own Spark, so that none profits from another's warm-up.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

MADE_AT_ONCE = 5_000_000
"""Events that are generated. Larger sizes are renamed copies of these."""


class ReportCost(NamedTuple):
    events: int
    megabytes: float
    seconds: float
    cpu_secs: float
    """Processor seconds of the JVM. On a busy machine they say more than the elapsed time."""
    jvm_mib: float
    """Peak memory of the JVM."""
    python_mib: float
    """Peak memory of the Python process that drives the JVM."""


def make(events: int, target: Path, conf: dict[str, str]) -> None:
    from bench.spark.generated_events import generated, multiply, write_events
    from torrentdist.spark.spark_session import spark_session

    times = -(-events // MADE_AT_ONCE)
    with spark_session("bench", conf=conf) as spark:
        write_events(generated(spark, events // times, partitions=8), target)
    multiply(target, times)


def measure(source: Path, work: Path, conf: dict[str, str]) -> ReportCost:
    from torrentdist.spark.reporting.event_files import FEW_BYTES, find_events
    from torrentdist.spark.reporting.report import run_once
    from torrentdist.spark.spark_session import spark_session

    size = sum(path.stat().st_size for path in source.iterdir())
    events = find_events(str(source), conf)
    with spark_session("bench", conf=conf, brief=size <= FEW_BYTES) as spark:
        began = time.monotonic()
        view = run_once(spark, events, work / "out")
        seconds = time.monotonic() - began
        jvm = Path("/proc", str(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()))  # type: ignore[union-attr]
        status = (jvm / "status").read_text()
        peak = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
        ticks = (jvm / "stat").read_text().rpartition(")")[2].split()[11:13]
        cpu = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    python = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return ReportCost(view.events, size / 1e6, seconds, cpu, peak / 1024, python / 1024)


def table(rows: list[ReportCost]) -> str:
    head = [
        "events",
        "MB of JSON",
        "seconds",
        "a million",
        "CPU seconds",
        "a million",
        "JVM, MiB at most",
        "Python, MiB",
    ]
    lines = [f"| {' | '.join(head)} |", "|" + "---:|" * len(head)]
    for row in rows:
        millions = row.events / 1e6
        times = f"{row.seconds:.1f} | {row.seconds / millions:.1f} | {row.cpu_secs:.1f} | {row.cpu_secs / millions:.1f}"
        lines.append(
            f"| {row.events:,} | {row.megabytes:,.0f} | {times} | {row.jvm_mib:,.0f} | {row.python_mib:,.0f} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.spark.report_time", description=__doc__)
    parser.add_argument("--events", default="1000000,2000000,4000000", help="sizes, as N,N")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory", default="2g", help="the JVM's heap")
    parser.add_argument("--dir", type=Path, default=None, help="the disk to measure on: 500 MB a million events")
    parser.add_argument(
        "--keep", action="store_true", help="leave what was made in DIR/events-N, and use what is there"
    )
    parser.add_argument("--step", choices=("make", "measure"), help=argparse.SUPPRESS)
    parser.add_argument("--in", dest="source", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    counts = [int(count) for count in args.events.split(",")]
    with tempfile.TemporaryDirectory(prefix="torrentdist-bench-", dir=args.dir) as work:
        conf = {
            "spark.master": f"local[{args.cores}]",
            "spark.driver.memory": args.memory,
            "spark.local.dir": f"{work}/spill",
        }
        if args.step == "make":
            make(counts[0], args.source, conf)
        elif args.step == "measure":
            print(msgspec.json.encode(measure(args.source, Path(work), conf)).decode())
        else:
            print(table([_in_processes_of_its_own(count, args, Path(work)) for count in counts]))
    return 0


def _in_processes_of_its_own(count: int, args: argparse.Namespace, work: Path) -> ReportCost:
    source = (args.dir if args.keep else work) / f"events-{count}"
    options = ["--events", str(count), "--cores", str(args.cores), "--memory", args.memory, "--in", str(source)]
    options += ["--dir", str(args.dir)] if args.dir else []
    command = [sys.executable, "-m", "bench.spark.report_time", *options, "--step"]
    if not source.exists():
        subprocess.run([*command, "make"], check=True)
    out = subprocess.run([*command, "measure"], check=True, stdout=subprocess.PIPE).stdout
    if not args.keep:
        shutil.rmtree(source)
    measured = msgspec.json.decode(out.splitlines()[-1], type=ReportCost)
    print(f"measured {count:,}: {measured}", file=sys.stderr, flush=True)
    return measured


if __name__ == "__main__":
    sys.exit(main())
