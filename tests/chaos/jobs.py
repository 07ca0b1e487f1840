"""A job whose workers tell an outside oracle when they run. It is steered at random while faults go
on.

Always: only a worker's own word counts, written under a lock that a second worker finds taken.
Never: judge during faults, except that two workers at once are always a finding.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from chaos.load import EXPECTED_CODES, PATIENCE_SECS, Load
from worker_oracle import Oracle, make_worker_bundle

from torrentdist.client import job_client
from torrentdist.model.errors import EXIT_UNAVAILABLE, TorrentdistError
from torrentdist.model.records import JobStatus

WORKERS = 4
MOST_WORKERS = 6
STABLE_SECS = 30.0
"""How long a worker may be without a place once everything is well: a session to notice, another
one for its barrier, and time for a busy machine. bench/ measures how long it takes on a quiet
one."""
PAUSE_SECS = 3.0


class JobLoad:
    def __init__(self, directory: Path, load: Load, seed: int) -> None:
        self._dir = directory
        self._load = load
        self._rng = random.Random(seed)
        self.oracle = Oracle(directory / "oracle")
        self.id = ""
        self.done: Counter[str] = Counter()
        self.findings: list[str] = []
        self.waited = 0.0

    async def open(self) -> None:
        """Submits the job, and returns when it runs, before the first fault."""
        source = make_worker_bundle(self._dir / "job")
        (source / "job.toml").write_text(
            f'name = "chaos"\ncommand = ["work.py"]\nworkers = {WORKERS}\nstop_grace_secs = 1\n'
            f'[restart]\npolicy = "always"\nbackoff_secs = 0.1\nmax_backoff_secs = 1\nlimit = -1\n'
            f'[env]\nORACLE = "{self.oracle.directory}"\nBEAT_SECS = "0.1"\n'
        )
        async with self._load.client() as client:
            self.id = (await job_client.submit(client, str(source), timeout=PATIENCE_SECS)).id
        if not await self._runs(PATIENCE_SECS):
            self.findings.append("the job did not start in peace")

    async def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while True:
            await asyncio.sleep(self._rng.uniform(0.3, 1.7) * PAUSE_SECS)
            if time.monotonic() > end:
                return
            if self._rng.random() < 0.5:
                await self._try("rebalance", self._rebalance)
            else:
                await self._try("deactivate", self._deactivate)
                await asyncio.sleep(self._rng.uniform(0.0, 1.0))
                await self._try("activate", self._activate)

    async def _try(self, name: str, change: Callable[[], Awaitable[object]]) -> None:
        try:
            async with self._load.hush.work():
                await change()
            self.done[name] += 1
        except TorrentdistError as error:
            if error.exit_code != EXIT_UNAVAILABLE and error.code not in {*EXPECTED_CODES, "job_state"}:
                self.findings.append(f"{name} of the job failed with {error.code}: {error.message}")

    async def _activate(self) -> None:
        async with self._load.client() as client:
            await job_client.activate(client, self.id)

    async def _deactivate(self) -> None:
        async with self._load.client() as client:
            await job_client.deactivate(client, self.id)

    async def _rebalance(self) -> None:
        workers = self._rng.randint(2, MOST_WORKERS)
        async with self._load.client() as client:
            await job_client.rebalance(client, self.id, wait=self._rng.uniform(0.0, 3.0), workers=workers)

    # judging

    async def judge(self) -> list[str]:
        """Judges once everything is well: every worker runs soon, no two ever ran at once, and a
        killed job leaves nothing."""
        try:
            await self._settle()
            began = time.monotonic()
            if not await self._runs(STABLE_SECS):
                self.findings.append(
                    f"after {STABLE_SECS:g} s of peace not every worker of the job runs: {await self._view()}"
                )
            self.waited = round(time.monotonic() - began, 1)
            await self._kill()
        except TorrentdistError as error:
            self.findings.append(f"in peace the job failed with {error.code}: {error.message}")
        return [*self.findings, *self._overlaps()]

    async def _settle(self) -> None:
        """Waits until the job is active and no rebalance is pending."""
        deadline = time.monotonic() + PATIENCE_SECS
        while time.monotonic() < deadline:
            async with self._load.client() as client:
                status = (await job_client.job(client, self.id)).status
            if status is JobStatus.ACTIVE:
                return
            if status is JobStatus.INACTIVE:
                await self._try("activate", self._activate)
            await asyncio.sleep(0.1)
        self.findings.append("the job does not become active any more")

    async def _runs(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                async with self._load.client() as client:
                    wanted = (await job_client.job(client, self.id)).wanted
                if all(self._alive(worker) for worker in range(wanted)):
                    return True
            except TorrentdistError as error:
                if error.exit_code != EXIT_UNAVAILABLE:
                    raise
            await asyncio.sleep(0.1)
        return False

    async def _view(self) -> str:
        """Returns what the cluster says of the job."""
        async with self._load.client() as client:
            return msgspec.json.encode(await job_client.job(client, self.id)).decode()

    def _alive(self, worker: int) -> bool:
        lines = self.oracle.lines(self.id, worker)
        return bool(lines) and lines[-1]["event"] == "beat" and self.oracle.holder(self.id, worker) != 0

    async def _kill(self) -> None:
        async with self._load.client() as client:
            await job_client.kill(client, self.id, wait=0.0)
        deadline = time.monotonic() + PATIENCE_SECS
        while any(self._alive(worker) for worker in range(MOST_WORKERS)):
            if time.monotonic() > deadline:
                self.findings.append("a worker of a killed job runs on")
                return
            await asyncio.sleep(0.1)

    def restarts(self) -> int:
        """Returns how often a worker started again."""
        every = [[line["event"] for line in self.oracle.lines(self.id, worker)] for worker in range(MOST_WORKERS)]
        return sum(max(0, events.count("start") - 1) for events in every)

    def _overlaps(self) -> list[str]:
        return [
            f"OVERLAP: worker {worker} of the job found another one of it at {line['at']:.3f}"
            for worker in range(MOST_WORKERS)
            for line in self.oracle.lines(self.id, worker)
            if line["event"] == "overlap"
        ]
