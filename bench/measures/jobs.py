"""Measures the time from a submit, and from a host's death, until the worker runs.

`python -m bench.measures.jobs [--short]` prints a line of JSON. It exits with 1 if a bar was
missed.

Always: a worker counts as running when it has written so itself.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from bench.results import Row
from bench.stage import cluster_of, torrentdist
from torrentdist.client import job_client
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.dev.dev_cluster import DevCluster
from torrentdist.model.configuration.config import ClientConfig
from torrentdist.model.wire.job_messages import WorkerView

SESSION_SECS = 4.0
SUBMIT_BAR = 2.0
LOST_BAR = SESSION_SECS + 2.0
LOOK_SECS = 0.01
PATIENCE_SECS = 60.0
PROGRAM = '#!/bin/sh\ndate +%s.%N >> "$OUT/$TORRENTDIST_JOB.$TORRENTDIST_WORKER"\nexec sleep 1000\n'


def measure(directory: Path, *, runs: int) -> list[Row]:
    with cluster_of(directory / "cluster", masters=3, supervisors=3, session_secs=SESSION_SECS) as cluster:
        stage = _ResubmittedJob(cluster, directory)
        bundle = asyncio.run(stage.prepare())
        submits = [stage.submit(bundle) for _ in range(runs)]
        lost = [stage.lose(bundle) for _ in range(max(2, runs // 2))]
    return [
        _row("job-submit", "a submit of a cached bundle to its first worker running: longest", submits, SUBMIT_BAR),
        _row("supervisor-lost", "kill -9 of a supervisor to its worker running elsewhere: longest", lost, LOST_BAR),
    ]


def _row(key: str, what: str, seconds: list[float], bar: float) -> Row:
    note = f"{len(seconds)} runs, median {statistics.median(seconds):.2f} s, session {SESSION_SECS:g} s"
    return Row(key=key, what=what, ours=max(seconds), unit="s", bar=bar, note=note)


class _ResubmittedJob:
    """A job with one worker per supervisor, submitted again and again."""

    def __init__(self, cluster: DevCluster, directory: Path) -> None:
        self._cluster = cluster
        self._out = directory / "out"
        self._source = directory / "job"
        self._config = ClientConfig(masters=cluster.masters(), supervisor="", token_file=str(cluster.token_file))

    async def prepare(self) -> str:
        """Puts the job's bundle on every host, and returns its id."""
        self._out.mkdir()
        self._source.mkdir()
        (self._source / "work.sh").write_text(PROGRAM)
        (self._source / "work.sh").chmod(0o755)
        (self._source / "job.toml").write_text(
            f'name = "timed"\ncommand = ["work.sh"]\nworkers = 3\nstop_grace_secs = 0\n[env]\nOUT = "{self._out}"\n'
        )
        async with MasterClient(self._config) as client:
            view = await job_client.submit(client, str(self._source))
        await asyncio.to_thread(self._started, view.id, 3)
        await asyncio.to_thread(self._end, view.id)
        return view.bundle

    def submit(self, bundle: str) -> float:
        """Returns the seconds from the start of the command."""
        began = time.time()
        id_ = torrentdist(self._cluster, "job", "submit", bundle).answer["id"]
        seconds = min(self._started(id_, 1)) - began
        self._started(id_, 3)
        self._end(id_)
        return seconds

    def lose(self, bundle: str) -> float:
        id_ = torrentdist(self._cluster, "job", "submit", bundle).answer["id"]
        before = self._started(id_, 3)
        _until(lambda: all(worker.pid for worker in self._workers(id_)))
        victim = self._workers(id_)[0].supervisor
        assert victim is not None
        began = time.time()
        self._cluster.signal(victim, signal.SIGKILL)
        seconds = max(self._started(id_, len(before) + 1)) - began
        self._end(id_)
        self._cluster.start(victim)
        self._cluster.wait_started(victim)
        self._cluster.wait_ready()
        return seconds

    def _started(self, id_: str, count: int) -> list[float]:
        """Waits for `count` workers of this job, and returns when each began."""
        found: list[float] = []

        def look() -> bool:
            found[:] = [float(line) for path in self._out.glob(f"{id_}.*") for line in path.read_text().split()]
            return len(found) >= count

        _until(look)
        return found

    def _workers(self, id_: str) -> list[WorkerView]:
        """Returns the workers of the job; None when the job is gone."""

        async def ask() -> list[WorkerView]:
            async with MasterClient(self._config) as client:
                return [worker for job in await job_client.jobs(client) if job.id == id_ for worker in job.workers]

        return asyncio.run(ask())

    def _end(self, id_: str) -> None:
        torrentdist(self._cluster, "job", "kill", id_, "-w", "0")
        _until(lambda: not self._workers(id_))


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECS
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError("the jobs don't get on")
        time.sleep(LOOK_SECS)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.measures.jobs", description=__doc__)
    parser.add_argument("--short", action="store_true", help="for CI")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="torrentdist-bench-") as directory:
        rows = measure(Path(directory), runs=2 if args.short else 10)
    print(json.dumps([{**asdict(row), "met": row.met} for row in rows]))
    return 1 if any(row.met is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
