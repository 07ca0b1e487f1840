"""The runs of workers, without processes: each has a guardian that follows its lease, as the real
one does.

Always: a run outlives its supervisor, and dies with its host. The product's own rule
(run_lease.py) says when it has to end.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

from simulation.host_process import HERE, HostProcess

from torrentdist.launcher.launcher_client import HostIsolation
from torrentdist.launcher.run.run_lease import LeaseStep, LeaseTerm, clock
from torrentdist.supervisor.jobs.local_state import RunRecord
from torrentdist.supervisor.process.guardian_processes import GuardianStatus
from torrentdist.supervisor.process.running import Handle, Running
from torrentdist.supervisor.worker.worker_types import Key, Measure

BUSY_SECS = (2.0, 60.0)
"""How long a worker works until it ends by itself."""
LOOK_SECS = 0.05


class SimulatedRun:
    """One run: its worker, and the guardian that ends it."""

    def __init__(self, key: Key, record: RunRecord, home: Path, rng: random.Random) -> None:
        self.key, self.record, self.home, self._rng = key, record, home, rng
        self.host = HERE.get()
        self.gone = asyncio.Event()
        self.reason = ""
        self._measure = Measure.NONE
        self._asked = asyncio.Event()

    async def live(self) -> None:
        """Does what the guardian does, until nothing of the run is left."""
        term = LeaseTerm(str(self.home.parent.parent / "lease.json"), self.record.id, self.record.grace_secs)
        works_until = clock() + self._rng.uniform(*SimulatedRunning.all_runs.busy_secs)
        stops_after = self._rng.uniform(0.0, 1.5 * self.record.grace_secs)
        stopped_at = float("inf")
        while not self.reason:
            now = clock()
            if self._measure is Measure.STOP:
                term.ask_to_stop(now)
            step = term.due(now)
            if term.stopping and stopped_at == float("inf"):
                stopped_at = now + stops_after
            if self._measure in (Measure.KILL, Measure.DESTROY) or step is LeaseStep.KILL:
                self.reason = "kill" if step is not LeaseStep.KILL else "lease"
            elif now >= stopped_at:
                self.reason = "stop"
            elif now >= works_until:
                self.reason = "exit"
            else:
                await asyncio.sleep(LOOK_SECS)
        self.gone.set()

    def take(self, measure: Measure) -> None:
        self._measure = measure


class HostRuns:
    """All runs of a story, by the id of their record."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.runs: dict[str, SimulatedRun] = {}
        self.busy_secs = BUSY_SECS
        self.last_words = ""
        """What every other run that fails by itself says in the end."""
        self.on_start: list[Callable[[SimulatedRun], None]] = []

    def living(self) -> list[SimulatedRun]:
        return [run for run in self.runs.values() if not run.gone.is_set()]

    def start(self, key: Key, record: RunRecord, home: Path) -> None:
        run = SimulatedRun(key, record, home, self.rng)
        term = LeaseTerm(str(home.parent.parent / "lease.json"), record.id, record.grace_secs)
        self.runs[record.id] = run
        if term.over:
            run.reason = "lease"
            run.gone.set()
            return
        for hear in self.on_start:
            hear(run)
        # The guardian is a process of its own, which the supervisor's death does not end.
        guardian = HostProcess(f"guardian on {run.host.name}", run.host.address)
        task = asyncio.get_running_loop().create_task(run.live(), context=guardian.context())
        guardian.tasks.append(task)

    def host_lost(self, address: str) -> None:
        """Ends every run of a host that died."""
        for run in self.living():
            if run.host.address == address:
                run.reason = "host"
                run.gone.set()


class SimulatedRunning(Running):
    """The product's table of runs, on simulated ones."""

    all_runs: HostRuns

    async def launch(self, key: Key) -> None:
        handle = self._handles[key]
        await asyncio.sleep(self.all_runs.rng.uniform(0.01, 0.2))
        self.all_runs.start(key, handle.run, handle.home)
        handle.pid = 1000 + len(self.all_runs.runs)
        self._spawn(f"guardian of {key}", self._until_gone(key, handle, self._follow))
        self._on_change()

    def end(self, key: Key, measure: Measure) -> bool:
        handle = self._handles.get(key)
        run = None if handle is None else self.all_runs.runs.get(handle.run.id)
        if handle is None or run is None:
            return False
        handle.measure, handle.measured_at = measure, clock()
        run.take(measure)
        return True

    async def _adopt(self, key: Key, handle: Handle) -> None:
        await self._follow(key, handle)

    async def _follow(self, key: Key, handle: Handle) -> None:
        run = self.all_runs.runs.get(handle.run.id)
        status = None
        if run is not None:
            handle.pid = handle.pid or 1
            await run.gone.wait()
            words = self.all_runs.last_words if run.reason == "exit" and self.all_runs.rng.random() < 0.5 else ""
            code = None if run.reason != "exit" else 1 if words else 0
            ended_by = "" if run.reason == "exit" else run.reason
            status = GuardianStatus(
                handle.run.id, "gone", 1, 1, pid=handle.pid, exit_code=code, reason=ended_by, detail=words
            )
        await self._ended(key, handle.run, status)
        del self._handles[key]
        self._on_change()


def no_namespaces(_: object) -> HostIsolation:
    """Stands for OwnStarter.isolation, which starts processes to find out."""
    return HostIsolation(False, "simulated")
