"""`make night`: breaks a cluster in every way of breakages.py, one after the other, and measures
how soon the Overview, the doctor and an alert name each. With `--ordinary SECS`: an hour of
ordinary work instead, in which nothing may alarm.

Prints a report as JSON. Exits with 1 if a bar was missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from chaos.network import Network
from chaos.schedule import MASTERS, SESSION_SECS
from night import ordinary
from night.breakages import BREAKAGES, Breakage
from night.night_cluster import NightCluster
from night.watchers import FOR_SECS, measure, misses, quiet
from prometheus_server import PROGRAM, RULES, rules_with

from bench.lab.namespaces import enter, why_not
from torrentdist.model.configuration.config import ZooKeeperConfig

THREADS = 32
Report = dict[str, object]


async def break_things(night: NightCluster, chosen: list[Breakage]) -> Report:
    await quiet(night)
    rows, missed = [], []
    for breakage in chosen:
        row = await measure(night, breakage)
        print(
            f"{row.name}: overview {row.overview}, doctor {row.doctor}, alert {row.alert}", file=sys.stderr, flush=True
        )
        rows.append(asdict(row))
        missed += misses(row)
    return {"breakages": rows, "missed": missed}


async def in_a_cluster(directory: Path, is_ordinary: bool, act: Callable[[NightCluster], Awaitable[Report]]) -> Report:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
    rules = RULES.read_text() if is_ordinary else rules_with(f"{FOR_SECS:g}s")
    session_secs = ZooKeeperConfig().session_timeout_secs if is_ordinary else SESSION_SECS
    night = NightCluster(directory, Network(directory, MASTERS), rules, session_secs)
    try:
        await night.open()
        report = await act(night)
        report["complaints"] = night.world.ended + night.world.complaints()
        return report
    finally:
        await night.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="make night", description=__doc__)
    parser.add_argument("--only", default="", help="breakages with these words in their names, parted by commas")
    parser.add_argument("--short", action="store_true", help="only those that `make test` makes")
    parser.add_argument("--ordinary", type=float, default=0.0, help="seconds of ordinary work instead")
    parser.add_argument("--keep", action="store_true", help="keep the directory")
    args = parser.parse_args()
    if reason := why_not() or (
        "" if PROGRAM else "there is no prometheus; scripts/setup takes it from Debian's package"
    ):
        print(f"no night: {reason}", file=sys.stderr)
        return 2
    enter("night.run", sys.argv[1:])
    words = [word.strip() for word in args.only.split(",")]
    chosen = [b for b in BREAKAGES if any(word in b.name for word in words) and (b.is_short or not args.short)]
    directory = Path(tempfile.mkdtemp(prefix="torrentdist-night-"))
    os.environ |= {"XDG_CACHE_HOME": str(directory / "cache"), "XDG_CONFIG_HOME": str(directory / "config")}

    def act(night: NightCluster) -> Awaitable[Report]:
        return ordinary.work(night, args.ordinary) if args.ordinary else break_things(night, chosen)

    report = asyncio.run(in_a_cluster(directory, args.ordinary > 0.0, act))
    print(json.dumps(report, indent=1))
    if args.keep or report["missed"]:
        print(f"everything is kept in {directory}", file=sys.stderr)
    else:
        shutil.rmtree(directory)
    return 1 if report["missed"] or report["complaints"] else 0


if __name__ == "__main__":
    sys.exit(main())
