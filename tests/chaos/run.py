"""`make chaos`: a cluster under load, a random schedule of faults, and then the verdict. Last, the
certificates of a second cluster are replaced under the same load.

Prints the seed first. The same seed gives the same schedule, although the daemons may react
differently. Exits with 1 if anything was found.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from chaos import oracle, verdict
from chaos.faults import Injector, expendable
from chaos.jobs import JobLoad
from chaos.load import Load, State
from chaos.network import Network
from chaos.rotation import rotate_under_load
from chaos.schedule import DAEMONS, MASTERS, SESSION_SECS, schedule
from chaos.txnlog import committed
from chaos.world import World

from bench.lab.namespaces import enter, why_not

THREADS = 32


@dataclass
class Report:
    seed: int
    seconds: float
    faults: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    work: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    ledger: dict[str, int] = field(default_factory=dict)
    epochs: int = 0
    acts_of_leaders: int = 0
    sightings: int = 0
    open_secs: float = 0.0
    judge_secs: dict[str, float] = field(default_factory=dict)
    lost: int = 0
    job: dict[str, float] = field(default_factory=dict)
    rotation: dict[str, int] = field(default_factory=dict)
    """What was done while certificates and CAs were replaced."""
    rotation_secs: float = 0.0
    findings: list[str] = field(default_factory=list)


async def run(seed: int, seconds: float, directory: Path, network: Network | None) -> Report:
    report, began = Report(seed, seconds), time.monotonic()
    # A task that waits for a process to end must not keep others waiting for a thread.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
    world = World(directory, network)
    try:
        await world.open()
        load = Load(directory, [world.urls[name] for name in MASTERS], world.cluster.token_file, seed)
        job = JobLoad(directory, load, seed)
        await job.open()
        report.open_secs = round(time.monotonic() - began, 1)
        injector = Injector(world, load.hush, seed, lambda name, damage: expendable(world, load, name, damage))
        async with asyncio.TaskGroup() as group:
            group.create_task(load.run(seconds))
            group.create_task(job.run(seconds))
            group.create_task(injector.run(schedule(seed, seconds)))
        await _judge(world, load, job, injector, report)
    finally:
        await world.close()
    return report


async def _judge(world: World, load: Load, job: JobLoad, injector: Injector, report: Report) -> None:
    found: list[str] = []

    async def ask(name: str, check: Awaitable[list[str]]) -> None:
        began = time.monotonic()
        found.extend(await check)
        report.judge_secs[name] = round(time.monotonic() - began, 1)

    await world.heal()
    await ask("well", verdict.well(world))
    found += load.findings + injector.failed
    await ask("job", job.judge())
    report.job = {**job.done, "restarts": job.restarts(), "waited": job.waited}
    await ask("replicated", verdict.replicated(world, load))
    await ask("repaired", verdict.repaired(world))
    await ask("ledger", verdict.ledger_kept(world, load))
    await ask("hosts", verdict.hosts_sound(world, load))
    (world.dir / "journal").write_text("\n".join(load.journal))
    await world.stop_watching()
    await ask("stopped", _stopped(world))
    found += world.ended + world.complaints()
    found += _judge_leaders(world, injector, report)
    report.faults, report.left_out = dict(injector.done), dict(injector.left_out)
    report.work, report.refused = dict(load.done), dict(load.refused)
    report.ledger = dict(Counter(str(e.state) for e in load.ledger.values()))
    report.lost = sum(finding.startswith("LOST: ") and f"({State.ACKED})" in finding for finding in found)
    report.findings = found
    if found:
        world.keep_disks()


async def _stopped(world: World) -> list[str]:
    await asyncio.gather(*(world.end(name, signal.SIGTERM) for name in DAEMONS))
    codes = {name: world.cluster.returncode(name) for name in DAEMONS}
    found = [f"{name} stopped with {code}" for name, code in codes.items() if code != 0]
    return found + await asyncio.to_thread(verdict.stores_sound, world)


def _judge_leaders(world: World, injector: Injector, report: Report) -> list[str]:
    transactions = committed([server.directory / "data" for server in world.zookeeper.servers])
    judgement = oracle.judge_transactions(transactions, injector.outsiders)
    words = [word for name in MASTERS for word in oracle.words_of(name, world.log(name).read_bytes().splitlines())]
    report.epochs, report.acts_of_leaders = len(judgement.reigns), judgement.acts
    report.sightings = len(world.sightings)
    return [
        *judgement.findings,
        *oracle.judge_sightings(judgement.reigns, world.sightings, injector.stolen, SESSION_SECS),
        *oracle.judge_words(judgement.reigns, words),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--time", type=float, default=600.0, help="seconds of faults")
    parser.add_argument("--seed", type=int, default=None, help="of the schedule; random by default")
    parser.add_argument("--keep", action="store_true", help="keep the directory, also of a run without findings")
    parser.add_argument("--no-rotation", action="store_true", help="replace no certificates")
    args = parser.parse_args()
    in_lab = not why_not()
    if in_lab:
        enter("chaos.run", sys.argv[1:])
    seed = secrets.randbits(32) if args.seed is None else args.seed
    directory = Path(tempfile.mkdtemp(prefix="torrentdist-chaos-"))
    os.environ |= {"XDG_CACHE_HOME": str(directory / "cache"), "XDG_CONFIG_HOME": str(directory / "config")}
    print(f"seed {seed}, {args.time:g} s, in {directory}", file=sys.stderr, flush=True)
    report = asyncio.run(run(seed, args.time, directory, Network(directory, MASTERS) if in_lab else None))
    if not args.no_rotation:
        rotated = asyncio.run(rotate_under_load(directory / "rotation", seed))
        report.rotation, report.rotation_secs = rotated.work, rotated.seconds
        report.findings += rotated.findings
    print(json.dumps(asdict(report), indent=1))
    if report.findings:
        print(f"{len(report.findings)} findings; everything is kept in {directory}", file=sys.stderr)
        return 1
    if not args.keep:
        shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
