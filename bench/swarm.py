"""One scenario in the lab: ours, bare libtorrent beside it, and T, the time of one plain HTTP transfer over one link.

`make swarm HOSTS=16 RATE=25 SIZE=32 HOLDERS=1`. The last line is JSON. Needs root, for the namespaces.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import sys
from pathlib import Path

import structlog

from bench import lab as labs
from bench.lab import Lab
from bench.swarm_ours import Ours
from bench.swarm_peers import bare, link_time
from bench.swarm_scenario import MIB, Outcome, Scenario, median


def main() -> int:
    arguments = _parser().parse_args()
    if reason := labs.why_not() if not os.environ.get(labs.INSIDE) else "":
        print(f"no lab on this machine: {reason}", file=sys.stderr)
        return 2
    labs.enter("bench.swarm", sys.argv[1:])
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    scenario = Scenario(
        hosts=arguments.hosts,
        rate=arguments.rate,
        size=arguments.size,
        holders=arguments.holders,
        slow=arguments.slow,
        apart=arguments.apart,
        killed=arguments.killed,
    )
    lab = Lab(arguments.dir)
    source = write_source(lab.dir / "source", scenario.size)
    seconds = link_time(lab, scenario, source)
    _say(f"one HTTP transfer over one link: {seconds:.2f} s")
    ours = [run_ours(lab, scenario, source, seconds, arguments.keep) for _ in range(arguments.runs)]
    stock = [bare(lab, scenario, source, "stock", n, seconds) for n in range(arguments.stock)]
    _say(_lines("stock", stock, seconds))
    best = median(ours)
    answer = {
        "hosts": scenario.hosts,
        "rate": scenario.rate,
        "size": scenario.size,
        "holders": scenario.holders,
        "link_time": round(seconds, 3),
        "last_done": round(best.last_done, 3),
        "ratio": round(best.last_done / seconds, 3),
        "stock_ratio": round(median(stock).last_done / seconds, 3) if stock else None,
        "seeder_copies": round(best.seeder_copies, 3),
        "stock_seeder_copies": round(median(stock).seeder_copies, 3) if stock else None,
        "longest": round(best.longest / seconds, 3),
        "done": len(best.ends),
        "cpu_secs": round(best.cpu_secs, 2),
        "ratios": [round(outcome.last_done / seconds, 3) for outcome in ours],
    }
    print(json.dumps(answer), flush=True)
    return 0 if not best.failed else 3


def run_ours(lab: Lab, scenario: Scenario, source: Path, seconds: float, keep: Path | None) -> Outcome:
    ours = Ours(lab, scenario, source)
    ours.up()
    outcome = ours.run(seconds)
    ours.down()
    if keep is not None:
        shutil.copytree(ours.home, keep, dirs_exist_ok=True, ignore=shutil.ignore_patterns("objects"), symlinks=True)
        for log in lab.dir.glob("*.log"):
            shutil.copy(log, keep)
        (keep / "progress.json").write_text(json.dumps({"ends": outcome.ends, "progress": outcome.progress}))
    shutil.rmtree(ours.home)
    _say(_lines("ours", [outcome], seconds))
    return outcome


def write_source(directory: Path, mib: int) -> Path:
    """One file that nothing can shorten."""
    directory.mkdir()
    with (directory / "data").open("wb") as out:
        for _ in range(mib):
            out.write(os.urandom(MIB))
    return directory


def _lines(name: str, outcomes: list[Outcome], seconds: float) -> str:
    return "\n".join(
        f"{name}: last {o.last_done:.2f} s = {o.last_done / seconds:.3f} T, first {min(o.ends.values()):.2f} s, "
        f"all but the last {sorted(o.ends.values())[-2 if len(o.ends) > 1 else -1]:.2f} s, longest of its own start "
        f"{o.longest / seconds:.3f} T, "
        f"seeder sent {o.seeder_copies:.2f} copies, a host received {o.received_copies:.3f}, "
        f"cpu {o.cpu_secs:.2f} s a host" + (f", NOT DONE: {', '.join(o.failed)}" if o.failed else "")
        for o in outcomes
        if o.ends
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.swarm", description=__doc__)
    parser.add_argument("--hosts", type=int, default=16)
    parser.add_argument("--rate", type=float, default=25.0, help="Mbit/s of every link, each way; 0: no limit")
    parser.add_argument("--size", type=int, default=32, help="MiB")
    parser.add_argument("--holders", type=int, default=1)
    parser.add_argument("--slow", type=int, default=0, help="so many hosts have a tenth of the rate")
    parser.add_argument("--apart", type=float, default=0.0, help="seconds between one host's start and the next one's")
    parser.add_argument("--killed", type=float, default=0.0, help="the share of hosts that dies after half of T")
    parser.add_argument("--runs", type=int, default=1, help="of ours; the one in the middle counts")
    parser.add_argument("--stock", type=int, default=1, help="runs of bare libtorrent")
    parser.add_argument("--dir", type=Path, default=None, help="a disk for all hosts; default: each has its own memory")
    parser.add_argument("--keep", type=Path, default=None, help="where to keep logs and progress")
    return parser


if __name__ == "__main__":
    sys.exit(main())
