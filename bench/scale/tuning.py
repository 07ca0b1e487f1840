"""Measures the worth of each setting: one change at a time, in the lab and between two processes.

`python -m bench.scale.tuning TABLE`: `ours` (8 hosts on slow links), `pieces` (piece lengths by the
bundle's size), `pair` (two processes on an unlimited link), `bare` (the search for the settings of
tuned libtorrent). bench/tuning.md keeps the findings.

Always: one row of a table has the unchanged settings, measured like the others.
Never: change two settings at once. Only `bare`, which is a search, keeps the better value.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.lab import namespaces as labs
from bench.lab.namespaces import ROOT
from bench.lab.warm_memory import level
from bench.pair import command, seeder, write_content
from bench.results import conditions
from bench.swarm.lab_run import run_ours, write_source
from bench.swarm.peers import TUNED_PIECE, broadcast, libtorrent, link_time
from bench.swarm.scenario import Outcome, Scenario
from torrentdist.bundle.metafile_maker import make_metafile

KIB, MIB = 1024, 1024 * 1024
HOSTS = Scenario(hosts=8, size=16)
OURS = (
    "",
    "queue_secs=1",
    "queue_secs=1,blocks=128",
    "queue_secs=1,blocks=4000",
    "whole_pieces_threshold=20",
    "send_buffer_watermark=65536,send_buffer_low_watermark=16384",
    "tick_interval=100",
    "tick_interval=500",
    "predictive_piece_announce=200",
    "look_ms=25",
    "look_ms=400",
    "deadline_ms=500",
    "deadline_ms=2000",
    "shares=4",
)
TITLES = {
    "ours": "Settings of ours: 8 hosts, 25 Mbit/s, 16 MiB, one holder",
    "pieces": "The length of pieces, by the size of the bundle: 8 hosts, 25 Mbit/s, and 50 for 64 MiB",
    "pair": "Between two processes without a limit, 1 GiB, the best of three",
    "bare": "The search for tuned libtorrent: 16 hosts, 25 Mbit/s, 16 MiB, pieces of 32 KiB, no code of ours",
}
HEAD = """# What each setting is worth

Made by `python -m bench.scale.tuning TABLE`, one setting changed at a time, each row one run. T is one plain HTTP
transfer of the same bytes over one such link. "Our Python" is the event loop of a host's supervisor, everything that it
does included; the rest of a host's processor time is libtorrent's threads. Settings are libtorrent's, but for
`queue_secs` (0: two blocks at a time are asked of each peer; 1: as many as come in a second, `blocks` among all peers
at most), `look_ms` (between two looks at what the others have, by each of which the conductor sets the priorities),
`deadline_ms` (libtorrent's deadline for the next eight pieces of each host's own share; there is none) and `shares` (so
many hosts have one, and the others get all from them).
"""
PIECES = {
    Scenario(hosts=8, size=4): (32, 64, 128, 256),
    Scenario(hosts=8, size=16): (32, 64, 128, 256),
    Scenario(hosts=8, size=64, rate=50.0): (32, 64, 128, 512),
}
PAIR = (
    "",
    *(f"aio_threads={threads}" for threads in (1, 2, 10)),
    *(f"hashing_threads={threads}" for threads in (1, 4)),
    *(f"send_buffer_watermark={kib * KIB},send_buffer_low_watermark={kib * KIB}" for kib in (64, 512, 8192)),
    *(f"max_queued_disk_bytes={mib * MIB}" for mib in (1, 16)),
    *(f"max_out_request_queue={depth},max_allowed_in_request_queue={depth}" for depth in (100, 500, 4000)),
    *(f"piece_length={piece * KIB}" for piece in (64, 256, 4096)),
)
BARE = (
    "whole_pieces_threshold=0",
    *(f"max_allowed_in_request_queue={depth}" for depth in (64, 16, 4, 2)),
    "request_queue_time=0",
    "piece=65536",
    "prioritize_partial_pieces=1",
    "predictive_piece_announce=200",
    "suggest_mode=1",
    "seed_choking_algorithm=1",
    "unchoke_slots_limit=8",
    "send_buffer_watermark=65536,send_buffer_low_watermark=16384",
    "initial_picker_threshold=100",
    "tick_interval=25",
)
BETTER = 0.97
"""A setting counts as better below this part of the best time so far. A smaller gain is noise."""


class TuningLab:
    """A lab for many runs of one scenario."""

    def __init__(self) -> None:
        self._lab = labs.Lab()
        self._links: dict[Scenario, tuple[Path, float]] = {}

    def ours(self, scenario: Scenario, changed: str) -> tuple[float, Outcome]:
        source, seconds = self._link(scenario)
        outcome = run_ours(self._lab, scenario, source, seconds, changed=changed)
        return outcome.last_done / seconds, outcome

    def bare(self, scenario: Scenario, changed: str) -> tuple[float, Outcome]:
        source, seconds = self._link(scenario)
        pairs = dict(pair.split("=") for pair in changed.split(",") if pair)
        piece = int(pairs.pop("piece", TUNED_PIECE))
        kind = "tuned:" + ",".join(f"{key}={value}" for key, value in pairs.items())
        outcome = broadcast(self._lab, scenario, source, "tuned", seconds, libtorrent(kind, piece))
        return outcome.last_done / seconds, outcome

    def _link(self, scenario: Scenario) -> tuple[Path, float]:
        if scenario not in self._links:
            source = write_source(self._lab.dir / f"source-{len(self._links)}", scenario.size)
            self._links[scenario] = source, link_time(self._lab, scenario, source)
        return self._links[scenario]


def ours(bench: TuningLab) -> Iterator[str]:
    yield "| changed | last host | holder sent | fetched twice | processor of a host | of it all our Python |"
    yield "|---|---|---|---|---|---|"
    for changed in OURS:
        ratio, seen = bench.ours(HOSTS, changed)
        secs = seen.last_done
        yield (
            f"| {changed or 'as it is'} | {ratio:.2f} T | {seen.seeder_copies:.2f} | {seen.duplicates:.1%} "
            f"| {seen.cpu_secs / secs:.1%} | {seen.python_secs / secs:.1%} |"
        )


def pieces(bench: TuningLab) -> Iterator[str]:
    yield "| bundle | pieces of | last host | holder sent | processor of a host |"
    yield "|---|---|---|---|---|"
    for scenario, lengths in PIECES.items():
        for kib in lengths:
            ratio, seen = bench.ours(scenario, f"piece_length={kib * KIB}")
            share = seen.cpu_secs / seen.last_done
            yield f"| {scenario.size} MiB | {kib} KiB | {ratio:.2f} T | {seen.seeder_copies:.2f} | {share:.1%} |"


def bare(bench: TuningLab) -> Iterator[str]:
    yield "| changed on top of what was kept | last host | holder sent | kept |"
    yield "|---|---|---|---|"
    scenario = Scenario(size=16)
    best, seen = bench.bare(scenario, "")
    yield f"| as TUNED was | {best:.2f} T | {seen.seeder_copies:.2f} | |"
    kept = ""
    for changed in BARE:
        tried = f"{kept},{changed}".strip(",")
        ratio, seen = bench.bare(scenario, tried)
        if better := ratio < BETTER * best:
            best, kept = ratio, tried
        yield f"| {changed} | {ratio:.2f} T | {seen.seeder_copies:.2f} | {'yes' if better else ''} |"


def pair(runs: int = 3, mib: int = 1024) -> Iterator[str]:
    """Measures pairs. Takes the best of some runs, because disturbances only make a run slower."""
    yield "| changed | speed |\n|---|---|"
    with tempfile.TemporaryDirectory(prefix="torrentdist-tuning-") as place:
        directory = Path(place)
        source = directory / "source"
        write_content(source, mib, 0)
        for changed in PAIR:
            seconds = [_fetched(source, directory, mib, changed) for _ in range(runs)]
            yield f"| {changed or 'as it is'} | {mib / min(seconds):.0f} MiB/s |"


def _fetched(source: Path, directory: Path, mib: int, changed: str) -> float:
    length = dict(item.split("=") for item in changed.split(",") if item).get("piece_length")
    metafile = directory / "metafile"
    metafile.write_bytes(make_metafile(source / "content", piece_length=int(length) if length else None).raw)
    level(directory, mib * MIB, source)
    with seeder("ours", metafile, source, changed=changed) as port:
        fetch = command("fetch", "ours", metafile, directory / "to", port, changed=changed)
        ended = subprocess.run(fetch, stdout=subprocess.PIPE, check=True)
    shutil.rmtree(directory / "to")
    return float(json.loads(ended.stdout)["seconds"])


TABLES = {"ours": ours, "pieces": pieces, "bare": bare}


def keep(table: str, lines: list[str]) -> None:
    """Replaces this table on the page."""
    place = ROOT / "bench" / "swarm_tuning.json"
    tables = json.loads(place.read_text()) if place.exists() else {}
    tables[table] = {"lines": lines, "conditions": conditions("tuning")}
    place.write_text(json.dumps(tables, indent=1, ensure_ascii=False) + "\n")
    parts = [HEAD]
    for key, title in TITLES.items():
        if key in tables:
            when = tables[key]["conditions"]
            under = f"{when['date']}, {when['cores']} processors, libtorrent {when['libtorrent']}."
            parts.append("\n".join([f"## {title}", "", *tables[key]["lines"], "", under, ""]))
    (ROOT / "bench" / "tuning.md").write_text("\n".join(parts))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.scale.tuning", description=__doc__)
    parser.add_argument("table", choices=[*TABLES, "pair"])
    table = parser.parse_args().table
    if table == "pair":
        lines = pair()
    else:
        if reason := labs.why_not() if not os.environ.get(labs.INSIDE) else "":
            print(f"no lab on this machine: {reason}", file=sys.stderr)
            return 2
        labs.enter("bench.scale.tuning", sys.argv[1:])
        lines = TABLES[table](TuningLab())
    began = time.monotonic()
    told: list[str] = []
    for line in lines:
        print(line, flush=True)
        told += line.splitlines()
        keep(table, told)
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
