"""Measures bundles of many small files: upload, distribution, download and archive, beside `cp -r`,
`sync` and `sha256sum` of the same tree, and the processor time of each process for each file.

Always: every tree is new to the cluster. Both sides take their turn in one run.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import httpx

from bench.lab.warm_memory import fill_page_cache
from bench.results import Row
from bench.stage import cluster_of, torrentdist
from torrentdist.bundle.files.durability import sync_filesystem
from torrentdist.dev.dev_cluster import DevCluster

PROCESSOR_BAR = 120.0
"""In microseconds for each file."""
TIME_BAR = 3.0
GROWTH_BAR = 6.0
WRITTEN = 64 * 1024
"""Bytes of memory that are made ready for each file: all hosts together write half of it."""
FEW, MANY = 10_000, 50_000
_PER_DIRECTORY = 80
_TICKS = os.sysconf("SC_CLK_TCK")


class Round(NamedTuple):
    """One tree: seconds of each step, and processor seconds of each process."""

    reference: float
    upload: float
    distribute: float
    download: float
    archive: float
    verify: float
    client: float
    master: float
    supervisor: float


def measure(directory: Path, *, counts: Sequence[int], rounds: int) -> list[Row]:
    rows: list[Row] = []
    medians: dict[int, Round] = {}
    with cluster_of(directory / "cluster", masters=3, supervisors=3) as cluster:
        for count in counts:
            fill_page_cache(directory / "hole", count * WRITTEN)
            taken = [_of(cluster, directory / str(count), count, turn) for turn in range(rounds)]
            medians[count] = Round(*(statistics.median(values) for values in zip(*taken, strict=True)))
            rows += _rows(count, medians[count])
    return rows + _growth(medians)


def make_tree(top: Path, count: int, seed: int = 1) -> None:
    """Makes files of 100 to 4,000 bytes, in directories like those of an environment."""
    chance = random.Random(seed)
    for number in range(count):
        place = top / f"package{number // (8 * _PER_DIRECTORY)}" / f"module{number // _PER_DIRECTORY % 8}"
        if number % _PER_DIRECTORY == 0:
            place.mkdir(parents=True)
        (place / f"f{number}.py").write_bytes(chance.randbytes(chance.randint(100, 4000)))


def _of(cluster: DevCluster, directory: Path, count: int, turn: int) -> Round:
    tree, bundle = directory / "tree", f"small-{count}-{turn}"
    make_tree(tree, count, seed=count + turn)
    sync_filesystem(tree)
    reference = _copied(tree, directory / "copy")
    masters = [f"master-{number}" for number in (1, 2, 3)]
    supervisors = [f"supervisor-{number}" for number in (1, 2, 3)]
    client = resource.getrusage(resource.RUSAGE_CHILDREN)
    upload, by_masters = _counted(cluster, masters, lambda: _seconds(cluster, "upload", str(tree), "--id", bundle))
    by_client = _processor_secs(resource.getrusage(resource.RUSAGE_CHILDREN)) - _processor_secs(client)
    told, by_supervisors = _counted(
        cluster, supervisors, lambda: _seconds(cluster, "bundle", "distribute", bundle, "--wait", "1")
    )
    download = _seconds(cluster, "download", bundle, str(directory / "dest"), "--from", str(directory / "none"))
    archive = _archived(cluster, bundle)
    verify = _seconds(cluster, "bundle", "verify", bundle, str(tree))
    shutil.rmtree(directory)
    return Round(reference, upload, told, download, archive, verify, by_client, by_masters, by_supervisors)


def _rows(count: int, medians: Round) -> list[Row]:
    files = f"{count:,} small files"
    return [
        _beside(f"small-upload-{count}", f"upload of {files}", medians.upload, medians.reference),
        _beside(f"small-distribute-{count}", f"{files} to 3 hosts", medians.distribute, medians.reference),
        _beside(f"small-download-{count}", f"download of {files} by a peer", medians.download, medians.reference),
        _beside(f"small-archive-{count}", f"archive of {files}", medians.archive, medians.reference),
        _beside(f"small-verify-{count}", f"verify of {files}", medians.verify, medians.reference),
        _processor("client", medians.client, count),
        _processor("master", medians.master, count),
        _processor("supervisor", medians.supervisor, count),
    ]


def _growth(medians: dict[int, Round]) -> list[Row]:
    """Returns what 50,000 files cost beside 10,000."""
    if not {FEW, MANY} <= medians.keys():
        return []
    few, many = medians[FEW], medians[MANY]
    return [
        Row(
            key=f"small-growth-{step}",
            what=f"{step} of {MANY:,} small files",
            ours=getattr(many, step),
            unit="s",
            reference=getattr(few, step),
            against=f"of {FEW:,}",
            ratio=getattr(many, step) / getattr(few, step),
            bar=GROWTH_BAR,
        )
        for step in ("upload", "distribute", "download", "archive", "verify")
    ]


def _copied(tree: Path, copy: Path) -> float:
    """Copies, syncs and hashes the tree as a shell does. Returns the seconds."""
    (tree.parent / "none").mkdir()
    began = time.perf_counter()
    subprocess.run(["cp", "-r", tree, copy], check=True)
    subprocess.run(["sync", "-f", copy], check=True)
    subprocess.run(f"find '{copy}' -type f -print0 | xargs -0 sha256sum > /dev/null", shell=True, check=True)
    return time.perf_counter() - began


def _seconds(cluster: DevCluster, *arguments: str) -> float:
    return torrentdist(cluster, *arguments).seconds


def _archived(cluster: DevCluster, bundle: str) -> float:
    gateway = cluster.member("supervisor-1").gateway
    began = time.perf_counter()
    with httpx.stream("GET", f"{gateway}/bundles/{bundle}/archive.tar", timeout=600, trust_env=False) as answer:
        answer.raise_for_status()
        for _ in answer.iter_raw():
            pass
    return time.perf_counter() - began


def _counted(cluster: DevCluster, names: Sequence[str], act: Callable[[], float]) -> tuple[float, float]:
    """Returns what `act` returns, and the processor seconds that these daemons took meanwhile, as a
    mean."""
    before = [_processor_secs_of(cluster.member(name).pid) for name in names]
    seconds = act()
    after = [_processor_secs_of(cluster.member(name).pid) for name in names]
    return seconds, (sum(after) - sum(before)) / len(names)


def _processor_secs_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _processor_secs(usage: resource.struct_rusage) -> float:
    return usage.ru_utime + usage.ru_stime


def _beside(key: str, what: str, ours: float, reference: float) -> Row:
    return Row(
        key=key,
        what=what,
        ours=ours,
        unit="s",
        reference=reference,
        against="cp -r, sync and sha256sum",
        ratio=ours / reference,
        bar=TIME_BAR if "upload" in key or "distribute" in key else None,
    )


def _processor(user: str, seconds: float, count: int) -> Row:
    return Row(
        key=f"small-processor-{user}-{count}",
        what=f"processor time of a {user} for each of {count:,} small files",
        ours=1e6 * seconds / count,
        unit="µs",
        bar=PROCESSOR_BAR if count >= 10_000 else None,
    )
