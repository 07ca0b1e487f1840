"""The cluster of a night: that of `make chaos`, with its disks, links and networks, scraped by a
real Prometheus that has our alert rules, and asked by commands as an operator asks it.

Always: nothing is left running after close().
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
from chaos.network import Network
from chaos.schedule import LEADER, MASTERS, SUPERVISORS
from chaos.world import World
from prometheus_server import PrometheusServer

from torrentdist.testing.sample_trees import write_tree

RESERVE = 64 * 2**20
SETTINGS: dict[str, dict[str, object]] = {
    "store": {"reserve_bytes": RESERVE},
    "distribution": {"patience_secs": 10.0},
    "replication": {"lost_secs": 5.0},
}
COMMAND_SECS = 60.0
PERIOD_SECS = 2.0


class NightCluster:
    def __init__(self, directory: Path, network: Network, rules: str, session_secs: float) -> None:
        """`rules`: those of Prometheus. `session_secs`: of ZooKeeper's sessions."""
        self.dir = directory
        self._rules = rules
        self.world = World(directory, network, {**SETTINGS, "zookeeper": {"session_timeout_secs": session_secs}})
        self.prometheus: PrometheusServer

    async def open(self) -> None:
        await self.world.open()
        urls = self.world.urls
        jobs = {
            "torrentdist-masters": [urls[name] for name in MASTERS],
            "torrentdist-supervisors": [urls[name] for name in SUPERVISORS],
        }
        token = self.world.cluster.token_file
        self.prometheus = PrometheusServer(self.dir / "prometheus", jobs, token, PERIOD_SECS)
        await asyncio.to_thread(self.prometheus.start, self._rules)
        await self.until(lambda: bool(self.world.leader), "a master leads")

    async def close(self) -> None:
        if hasattr(self, "prometheus"):
            await asyncio.to_thread(self.prometheus.stop)
        await self.world.close()

    def resolve(self, target: str) -> str:
        """Returns the member that a target means now."""
        if target == "standby":
            return next(name for name in MASTERS if name != self.world.leader)
        return self.world.leader if target == LEADER else target

    # looking

    async def overview(self, master: str) -> dict[str, Any] | None:
        """Returns the first page of a master as a program reads it; None: it does not answer."""
        with contextlib.suppress(httpx.HTTPError):
            answer = await self.world.http.get(f"{self.world.urls[master]}/ui/", headers={"Accept": "application/json"})
            if answer.status_code == 200:
                found: dict[str, Any] = answer.json()
                return found
        return None

    async def overviews(self) -> list[tuple[str, dict[str, Any]]]:
        """Returns the first pages of the masters that answer."""
        pages = await asyncio.gather(*map(self.overview, MASTERS))
        return [(master, page) for master, page in zip(MASTERS, pages, strict=True) if page is not None]

    async def doctor(self) -> list[dict[str, Any]]:
        """Returns what the doctor finds fault with."""
        _, output = await self.command("doctor", "-o", "json", may_fail=True)
        return [finding for finding in json.loads(output)["findings"] if finding["verdict"] != "ok"]

    async def until(self, condition: Callable[[], object], what: str, seconds: float = 60.0) -> None:
        async with _deadline(what, seconds):
            while not condition():  # noqa: ASYNC110  its subject is another process
                await asyncio.sleep(0.05)

    async def registered(self, name: str) -> None:
        """Returns once every master that answers lists a member as registered."""
        async with _deadline(f"{name} is registered", COMMAND_SECS):
            while True:
                _, output = await self.command("cluster", "-o", "json", may_fail=True)
                with contextlib.suppress(json.JSONDecodeError):
                    view = json.loads(output)
                    if name in [each["id"] for each in (*view["masters"], *view["supervisors"])]:
                        return

    # doing

    async def command(self, *words: str, may_fail: bool = False) -> tuple[int, str]:
        """Runs `torrentdist` with these words. Returns its exit code and what it printed."""
        config = str(self.world.cluster.dir / "client.toml")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "torrentdist_cli", *words, "--config", config),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ},
        )
        try:
            async with asyncio.timeout(COMMAND_SECS):
                output, errors = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise
        if process.returncode and not may_fail:
            raise RuntimeError(f"{' '.join(words)}: {errors.decode()}")
        return process.returncode or 0, output.decode()

    async def upload(self, id_: str, *options: str) -> None:
        source = self.dir / "sources" / id_
        await asyncio.to_thread(write_tree, source, {"data.bin": os.urandom(300_000)})
        await self.command("upload", str(source), "--id", id_, *options)

    async def submit(self, name: str, script: str, *options: str) -> None:
        """Submits a job with one worker, which runs a shell script."""
        source = self.dir / "sources" / name
        source.mkdir(parents=True, exist_ok=True)
        (source / "run.sh").write_text(f"#!/bin/sh\n{script}\n")
        (source / "run.sh").chmod(0o755)
        (source / "job.toml").write_text(f'name = "{name}"\ncommand = ["run.sh"]\nworkers = 1\n')
        await self.command("job", "submit", str(source), *options)


@contextlib.asynccontextmanager
async def _deadline(what: str, seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise TimeoutError(f"not within {seconds:g} s: {what}") from None
