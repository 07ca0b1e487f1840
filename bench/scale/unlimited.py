"""Measures `bundle distribute` to hosts on loopback, without limits, against bare tuned libtorrent.

Both sides carry the same bytes with the same metafile to the same disk. The holder's files are in
memory, and the rest of memory is full of pages that may be dropped. The sides take turns, and the
order alternates. Our clock runs from the command's start to its end; the reference's runs from the
start of its first fetching process to the end of its last.

Never: give the reference peers that know less than ours. All of them know each other.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.lab.warm_memory import level
from bench.pair import MiB, write_content
from bench.stage import BARE, bare_seeder, cluster_of, torrentdist
from bench.swarm.swarm_results import keep, record
from torrentdist.dev.dev_cluster import DevCluster
from torrentdist.host.process.listening_sockets import free_ports

BAR = 0.8
LONGEST_SECS = 900.0
MISSED = 3
FORMS = (1, 4)
SIZE = 4096
"""Size of the bundle in MiB."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One run of ours and one of the reference, in the same minutes."""

    mib: int
    hosts: int
    ours_secs: float
    bare_secs: float
    load: float


def turn(directory: Path, number: int, *, mib: int, hosts: int) -> Turn:
    """Runs both sides. In the second, fourth and each other even turn, ours comes first."""
    load = os.getloadavg()[0]
    took: dict[str, float] = {}
    with _uploaded(directory / "turn", mib, hosts) as (cluster, held):
        sides = {"bare": lambda: _bare(directory, held, hosts), "ours": lambda: _ours(cluster)}
        for side in sorted(sides, reverse=number % 2 == 0):
            level(directory, hosts * mib * MiB, held)
            took[side] = sides[side]()
    ours, bare = took["ours"], took["bare"]
    _say(f"{mib} MiB to {hosts}: ours {ours:.1f} s, bare {bare:.1f} s")
    shutil.rmtree(directory / "turn")
    return Turn(mib=mib, hosts=hosts, ours_secs=ours, bare_secs=bare, load=load)


def row(turns: list[Turn]) -> dict[str, Any]:
    speeds = [turn.bare_secs / turn.ours_secs for turn in turns]
    return {
        "what": f"no limits, {turns[0].mib} MiB, 1:{turns[0].hosts} on loopback, speed",
        "bar": BAR,
        "by": "of bare tuned libtorrent's",
        "measured": round(statistics.median(speeds), 3),
        "met": statistics.median(speeds) >= BAR,
        "each": [round(speed, 3) for speed in speeds],
        "ours_secs": [round(turn.ours_secs, 2) for turn in turns],
        "bare_secs": [round(turn.bare_secs, 2) for turn in turns],
        "loads": [round(turn.load, 1) for turn in turns],
        "failed": [],
        "seeder_copies": None,
        "peers": {},
    }


@contextmanager
def _uploaded(directory: Path, mib: int, hosts: int) -> Iterator[tuple[DevCluster, Path]]:
    """Yields a cluster whose only master holds the bundle, and the bundle's directory."""
    with cluster_of(directory / "cluster", masters=1, supervisors=hosts) as cluster:
        source = directory / "source"
        write_content(source, mib, 0)
        answer = torrentdist(cluster, "upload", str(source / "content"), "--id", "big-1", "--min-replicas", "1").answer
        shutil.rmtree(source)
        yield cluster, cluster.dir / "master-1" / "objects" / str(answer["digest"])


def _ours(cluster: DevCluster) -> float:
    ended = torrentdist(cluster, "bundle", "distribute", "big-1")
    assert not ended.answer["failed"], ended.answer
    return ended.seconds


def _bare(directory: Path, held: Path, hosts: int) -> float:
    homes = [directory / f"bare-{number}" for number in range(hosts)]
    own = free_ports(hosts)
    with ExitStack() as stack:
        ports = [stack.enter_context(bare_seeder(held / "metafile", held)), *own]
        began = time.perf_counter()
        fetching = []
        for home, port in zip(homes, own, strict=True):
            others = [f"127.0.0.1:{other}" for other in ports if other != port]
            command = [sys.executable, str(BARE), "fetch", "loopback", str(held / "metafile"), str(home)]
            fetching.append(subprocess.Popen([*command, f"127.0.0.1:{port}", *others]))
            stack.callback(fetching[-1].kill)
        codes = [process.wait(LONGEST_SECS) for process in fetching]
        seconds = time.perf_counter() - began
    assert not any(codes), codes
    for home in homes:
        shutil.rmtree(home)
    return seconds


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def measured(*, size: int | None, runs: int, kept: bool, disk: Path | None) -> int:
    """Measures both forms. `disk`: a place with room for ten times the size. Returns 0 if both bars
    are met."""
    met = True
    for hosts in FORMS:
        with tempfile.TemporaryDirectory(prefix="torrentdist-unlimited-", dir=disk) as directory:
            home = Path(directory)
            made = row([turn(home, n, mib=size or SIZE, hosts=hosts) for n in range(1, 1 + runs)])
        if kept:
            record(f"unlimited-{hosts}", made)
        met = met and bool(made["met"])
        print(json.dumps(made), flush=True)
    return 0 if met else MISSED


if __name__ == "__main__":
    hosts, number, out = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    with tempfile.TemporaryDirectory(prefix="torrentdist-unlimited-") as home:
        keep(out, [turn(Path(home), number, mib=SIZE, hosts=hosts)])
