"""Runs a case in the lab: ours, other programs, and T, the time of one HTTP transfer over one link.

`make swarm HOSTS=16 RATE=25 SIZE=32 HOLDERS=1` or `make swarm SCENARIO=killed`; `--list` shows all
cases. The last line is JSON. Needs root, for the namespaces.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from bench.lab import namespaces as labs
from bench.lab.namespaces import Lab
from bench.scale import unlimited
from bench.swarm import accounting, table
from bench.swarm.cases import CASES, By, Case
from bench.swarm.measured import ComparedRun, MeasuredCase
from bench.swarm.our_cluster import LOCAL, Ours
from bench.swarm.peers import SETTINGS, STAGES, broadcast, lacking, link_time, patience
from bench.swarm.picture import picture
from bench.swarm.scenario import MIB, Outcome, Scenario
from bench.swarm.swarm_results import keep, record
from torrentdist.dev.embedded_zookeeper import find_classpath, find_java
from torrentdist.model.errors import TorrentdistError

MISSED = 3
UNLIMITED = "unlimited"
"""A case without links, and so without a lab. It has a module of its own."""


def main() -> int:
    arguments = make_parser().parse_args()
    if arguments.list:
        for key, case in CASES.items():
            print(f"{key:10} {case.what}")
        print(f"{UNLIMITED:10} no limits on links, 4 GiB, 1:1 and 1:4 on loopback")
        return 0
    try:
        find_java(), find_classpath()
        if arguments.scenario == UNLIMITED:
            return unlimited.measured(
                size=arguments.size and int(arguments.size),
                runs=arguments.runs or 1,
                kept=arguments.record,
                disk=arguments.dir,
            )
        case = case_of(arguments)
    except (TorrentdistError, ValueError) as exc:
        print(f"{exc}; {exc.hint}" if isinstance(exc, TorrentdistError) else exc, file=sys.stderr)
        return 2
    if arguments.table:
        named = [key for key in arguments.only.split(",") if key]
        return table.make(arguments.table, named, arguments.runs, arguments.through)
    kinds = [kind for kind in arguments.peers.split(",") if kind]
    if unknown := [kind for kind in kinds if kind not in SETTINGS]:
        print(f"no such peer: {', '.join(unknown)}; there are {', '.join(SETTINGS)}", file=sys.stderr)
        return 2
    if reason := labs.why_not() if not os.environ.get(labs.INSIDE) else "":
        print(f"no lab on this machine: {reason}", file=sys.stderr)
        return 2
    if missing := lacking(kinds):
        print(f"missing: {', '.join(missing)}", file=sys.stderr)
        return 2
    labs.enter("bench.swarm.lab_run", sys.argv[1:])
    return _measure(case, kinds, arguments)


def _measure(case: Case, kinds: list[str], arguments: argparse.Namespace) -> int:
    lab = Lab(arguments.dir, case.scenario.rtt / 1000)
    sources = {
        files: write_source(lab.dir / f"source-{files}", case.scenario.size, files)
        for files in {1, case.scenario.files}
    }
    runs = [run_all(lab, case, sources, kinds, arguments) for _ in range(arguments.runs or 1)]
    measured = MeasuredCase(case, runs)
    if arguments.out:
        keep(arguments.out, runs)
    if arguments.picture:
        arguments.picture.write_text(picture(case.what, measured.contenders(), measured.middle().link_time))
    if arguments.record:
        record(arguments.scenario or "main", measured.row())
    answer = measured.answer()
    print(measured.table())
    print(json.dumps(answer), flush=True)
    return 0 if answer["met"] or (not arguments.scenario and not answer["failed"]) else MISSED


def run_all(
    lab: Lab, case: Case, sources: dict[int, Path], kinds: list[str], arguments: argparse.Namespace
) -> ComparedRun:
    """Runs everything that is compared, once. `sources`: the bundle by its number of files."""
    source = sources[1]
    load = os.getloadavg()[0]
    seconds = link_time(lab, case.scenario, source)
    _say(f"T, one HTTP transfer over one link: {seconds:.2f} s")
    base = None
    if case.base is not None:
        base = run_ours(lab, case.base, sources[case.base.files], seconds)
        _say(_line(case.beside, base, seconds))
    ours = run_ours(
        lab, case.scenario, sources[case.scenario.files], seconds, keep=arguments.keep, changed=arguments.changed
    )
    for line in (_line("ours", ours, seconds), *accounting.lines(ours, case.scenario, seconds)):
        _say(line)
    peers = {}
    for kind in kinds:
        peers[kind] = run_peer(lab, case.scenario, source, kind, seconds)
        _say(_line(kind, peers[kind], seconds))
    return ComparedRun(link_time=seconds, ours=ours, base=base, peers=peers, load=load)


def run_ours(
    lab: Lab,
    scenario: Scenario,
    source: Path,
    seconds: float,
    *,
    keep: Path | None = None,
    distributor: str = "",
    changed: str = "",
) -> Outcome:
    ours = Ours(lab, scenario, source, distributor=distributor, changed=changed)
    ours.up()
    outcome = ours.run(seconds, patience("local" if distributor else "", scenario))
    ours.down()
    if keep is not None:
        shutil.copytree(ours.home, keep, dirs_exist_ok=True, ignore=shutil.ignore_patterns("objects"), symlinks=True)
        for log in lab.dir.glob("*.log"):
            shutil.copy(log, keep)
        (keep / "progress.json").write_text(json.dumps({"ends": outcome.ends, "progress": outcome.progress}))
    shutil.rmtree(ours.home)
    return outcome


def run_peer(lab: Lab, scenario: Scenario, source: Path, kind: str, seconds: float) -> Outcome:
    if kind in STAGES:
        return broadcast(lab, scenario, source, kind, seconds)
    return run_ours(lab, scenario, source, seconds, distributor=LOCAL)


def write_source(directory: Path, mib: float, files: int = 1) -> Path:
    """Writes files of random bytes, which cannot be compressed."""
    for number in range(files):
        path = directory / (f"d{number // 80}/f{number}" if files > 1 else "data")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as out:
            left = round(mib * MIB) // files
            while left:
                left -= out.write(os.urandom(min(MIB, left)))
    return directory


def case_of(arguments: argparse.Namespace) -> Case:
    """Returns a named case, or one from the options. Options override the values of a named case,
    and those of its base run that are the same there."""
    options = (
        "hosts",
        "rate",
        "size",
        "holders",
        "holder_rate",
        "rtt",
        "slow",
        "apart",
        "killed",
        "tls",
        "zones",
        "border",
    )
    said = {key: getattr(arguments, key) for key in options}
    given = {key: value for key, value in said.items() if value is not None}
    if arguments.scenario:
        case, base = CASES[arguments.scenario], CASES[arguments.scenario].base
        if base is not None:
            alike = {k: v for k, v in given.items() if getattr(base, k) == getattr(case.scenario, k)}
            base = replace(base, **alike)
        return replace(case, scenario=replace(case.scenario, **given), base=base)
    scenario = Scenario(**given)
    what = f"{scenario.hosts} hosts, {scenario.rate:g} Mbit/s, {scenario.size:g} MiB, {scenario.holders} holders"
    return Case(what=what, scenario=scenario, bar=None, by=By.OWN_START if scenario.apart else By.LINK)


def _line(name: str, o: Outcome, seconds: float) -> str:
    failed = f", NOT DONE: {', '.join(o.failed)}" if o.failed else ""
    if not o.ends:
        return f"{name}: nobody is done"
    ends = sorted(o.ends.values())
    return (
        f"{name}: last {o.last_done:.2f} s = {o.last_done / seconds:.3f} T, first {ends[0]:.2f} s, all but the last "
        f"{ends[-2 if len(ends) > 1 else -1]:.2f} s, longest of its own start {o.longest / seconds:.3f} T, seeder sent "
        f"{o.seeder_copies:.2f} copies, a host received {o.received_copies:.3f}, cpu {o.cpu_secs:.2f} s a host, "
        f"{o.python_secs:.2f} s of it in the interpreter, {o.duplicates:.1%} fetched twice{_crossed(o)}"
        f"{f', {o.speeds:.2f} times the speed of the one beside it' if o.speeds else ''}{failed}"
    )


def _crossed(o: Outcome) -> str:
    return "".join(f", {copies:.2f} copies into {zone}" for zone, copies in o.into_zones.items())


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.swarm.lab_run", description=__doc__)
    parser.add_argument("--list", action="store_true", help="the named scenarios")
    parser.add_argument("--scenario", choices=[*CASES, UNLIMITED], help="a named one; the options below change it")
    parser.add_argument("--hosts", type=int)
    parser.add_argument("--rate", type=float, help="Mbit/s of every link, each way; 0: no limit")
    parser.add_argument("--size", type=float, help="MiB")
    parser.add_argument("--holders", type=int)
    parser.add_argument("--holder-rate", type=float, help="Mbit/s of the holders' links, if they differ")
    parser.add_argument("--rtt", type=float, help="milliseconds from any host to any other and back")
    parser.add_argument("--slow", type=int, help="number of hosts that have a tenth of the rate")
    parser.add_argument("--apart", type=float, help="seconds between one host's start and the next one's")
    parser.add_argument("--killed", type=float, help="the share of hosts that dies after half of T")
    parser.add_argument("--zones", type=int, help="number of zones that the hosts are in; the holders are in the first")
    parser.add_argument("--border", type=float, help="Mbit/s of each zone's border, each way; 0: no limit")
    parser.add_argument("--tls", action="store_true", default=None, help="the hosts' cluster has mutual TLS")
    parser.add_argument("--runs", type=int, help="of everything; the median counts. Default 1; in the table 3, or 5")
    parser.add_argument("--peers", default="stock", help=f"some of {','.join(SETTINGS)}; empty: none")
    parser.add_argument("--picture", type=Path, help="where to draw how every host got on, as SVG")
    parser.add_argument("--record", action="store_true", help="keep the row in bench/swarm.json and swarm.md")
    parser.add_argument(
        "--with", dest="changed", default="", help="other settings of ours: bench/lab/changed_settings.py"
    )
    parser.add_argument("--dir", type=Path, default=None, help="a disk for all hosts; default: each has its own memory")
    parser.add_argument("--out", type=Path, default=None, help="where to keep all of every run, as JSON")
    parser.add_argument("--table", type=Path, metavar="DIR", help="all rows, run by run; goes on where DIR ends")
    parser.add_argument("--only", default="", help="of the table: these, with commas between")
    parser.add_argument("--through", default="", help="of the table: a command in front of every run, such as a lock")
    parser.add_argument("--keep", type=Path, default=None, help="where to keep logs and progress")
    return parser


if __name__ == "__main__":
    sys.exit(main())
