"""The users of a story: each call of the Python API in a process of its own, noted in the
history."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simulation.history import Call, History
from simulation.invariants import Invariants, Tree, wrong_in
from simulation.simulated_cluster import SimulatedCluster
from simulation.steps import Step

from torrentdist.api.async_client import AsyncClient
from torrentdist.client import job_client
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.model.errors import TorrentdistError

CALL_SECS = 35.0
LONGEST_SECS = 130.0
READ_SECS = 2.5
"""Reads answer within two seconds (invariant 16). The rest is for the client's start and end."""


class Users:
    def __init__(
        self,
        cluster: SimulatedCluster,
        history: History,
        invariants: Invariants,
        sources: dict[int, Path],
        trees: dict[int, Tree],
        jobs: dict[str, Path],
        note: Callable[[str], None],
    ) -> None:
        self._cluster, self._history, self._invariants = cluster, history, invariants
        self._sources, self._trees, self._jobs, self._note = sources, trees, jobs, note
        self.findings: list[str] = []
        self._tasks: dict[asyncio.Task[Call], str] = {}
        self._count = 0

    def act(self, step: Step) -> None:
        task = asyncio.get_running_loop().create_task(self.call(step))
        self._tasks[task] = f"{step.who} has no answer to {step.kind} {step.what}"
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Call]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.findings.append(f"the story's user failed: {error!r}")

    def waiting(self) -> list[str]:
        return list(self._tasks.values())

    async def call(self, step: Step) -> Call:
        """Does what the step says, and returns what the user was told."""
        call = self._history.begin(step.kind, step.what, self._cluster.loop.now)
        self._count += 1
        dest = self._cluster.place / f"download-{self._count}"
        slow = any(host.process.disk == "slow" for host in self._cluster.hosts)
        try:
            async with asyncio.timeout(LONGEST_SECS):
                result = await self._cluster.as_user(step.who, lambda client: self._call(client, step, dest))
            self._check(step, call, result, dest)
        except TorrentdistError as error:
            call.error = error.code
            if error.code == "internal":
                self.findings.append(f"{step.who} is told of a bug: {error.message}")
        except TimeoutError:
            call.error = "no answer"
            self.findings.append(f"{step.who} has no answer to {step.kind} {step.what} after {LONGEST_SECS:.0f} s")
        except Exception as error:
            call.error = "bug"
            self.findings.append(f"{step.kind} {step.what} failed with {error!r}")
        call.ended = self._cluster.loop.now
        took = call.ended - call.began
        if step.kind == "read" and took > READ_SECS and not slow:
            self._invariants.say("16", f"a read was answered after {took:.1f} s ({call.error or 'ok'})")
        self._note(f"{step.who} {step.kind} {step.what}: {call.error or 'ok'} after {took:.3f} s")
        shutil.rmtree(dest, ignore_errors=True)
        return call

    async def _call(self, client: AsyncClient, step: Step, dest: Path) -> Any:
        match step.kind:
            case "upload":
                return await client.upload(self._sources[step.number], step.what, timeout=CALL_SECS)
            case "distribute":
                return await client.distribute(step.what, timeout=CALL_SECS)
            case "remove":
                return await client.remove(step.what)
            case "submit" | "kill job" | "rebalance":
                return await self._on_job(step)
            case "download":
                return await client.download(step.what, dest, timeout=CALL_SECS)
            case _:
                return await client.bundles()

    async def _on_job(self, step: Step) -> Any:
        async with MasterClient(self._cluster.client_config()) as client:
            match step.kind:
                case "submit":
                    return await job_client.submit(client, str(self._jobs[step.what]), timeout=CALL_SECS)
                case "rebalance":
                    return await job_client.rebalance(client, step.what, wait=1.0, workers=step.number)
                case _:
                    return await job_client.kill(client, step.what, wait=1.0)

    def _check(self, step: Step, call: Call, result: Any, dest: Path) -> None:
        if step.kind == "download" and (wrong := wrong_in(dest, self._trees[step.number])) is not None:
            self._invariants.say("14", f"{step.who} downloaded {step.what}, and {wrong}")
