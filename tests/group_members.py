"""Members of resource groups for tests: in this process, each with its own ZooKeeper client, or as
processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import pytest
from group_oracle import Oracle, Shift
from patience import patient
from zookeeper_fixtures import Connect

from torrentdist.cluster.rebalance import Algorithm, ResourceGroup, Settings, add_resource, join
from torrentdist.cluster.session.zookeeper_session import ZooKeeper

GROUP = "ingest"
QUICK = Settings(min_interval_secs=0.1, patience_secs=0.2, max_backoff_secs=1.0)


class Worker:
    """A member that works on the resources that it gets, and records what happened."""

    def __init__(self, zk: ZooKeeper, name: str, oracle: Oracle) -> None:
        self.zk = zk
        self.name = name
        self.oracle = oracle
        self.group: ResourceGroup | None = None
        self.events: list[tuple[str, tuple[str, ...]]] = []
        self.working_on: Mapping[str, int] = {}
        self.before_start: Callable[[], Awaitable[object]] | None = None
        self.before_stop: Callable[[], Awaitable[object]] | None = None
        self._shift = Shift(oracle, name)

    async def join(self, algorithm: Algorithm, settings: Settings = QUICK) -> Worker:
        self.group = await join(
            self.zk,
            GROUP,
            on_start=self.on_start,
            on_stop=self.on_stop,
            algorithm=algorithm,
            member_id=self.name,
            settings=settings,
        )
        return self

    async def on_start(self, resources: Mapping[str, int]) -> None:
        self.events.append(("start", tuple(resources)))
        self._shift.begin(resources)
        self.working_on = resources
        if self.before_start is not None:
            await self.before_start()

    async def on_stop(self) -> None:
        self.events.append(("stop", ()))
        try:
            if self.before_stop is not None:
                await self.before_stop()
        finally:
            self.working_on = {}
            self._shift.end()

    def act(self) -> None:
        if self.group is not None:
            for resource, fence in self.group.resources.items():
                self.oracle.act(resource, self.name, fence, lambda r=resource: self.holds(r))  # type: ignore[misc]

    def holds(self, resource: str) -> bool:
        return self.group is not None and self.group.holds(resource)

    @property
    def member(self) -> ResourceGroup:
        assert self.group is not None
        return self.group

    async def leave(self) -> None:
        await self.member.leave()


Workers = Callable[..., Coroutine[Any, Any, Worker]]


@pytest.fixture
def oracle(tmp_path: Path) -> Oracle:
    return Oracle(tmp_path / "oracle")


@pytest.fixture
async def worker(connect: Connect, oracle: Oracle) -> AsyncIterator[Workers]:
    """Makes members. After the test the remaining ones leave, and no two may have overlapped."""
    workers: list[Worker] = []

    async def make(
        name: str, algorithm: Algorithm | None, *, settings: Settings = QUICK, zk: ZooKeeper | None = None
    ) -> Worker:
        """Makes a member. Without an algorithm it does not join yet."""
        made = Worker(zk or await connect(), name, oracle)
        workers.append(made)
        return await made.join(algorithm, settings) if algorithm else made

    yield make
    await asyncio.gather(*(made.leave() for made in workers if made.group is not None))

    assert [] == oracle.overlaps()


class MemberProcess:
    """tests/group_process.py as a process that a test can kill and pause."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(
        cls, server: str, chroot: str, algorithm: Algorithm, name: str, oracle: Oracle, *, paused: bool, **options: Any
    ) -> MemberProcess:
        """`paused`: the test will pause this process, so it shows its work by acts alone."""
        told: dict[str, Any] = {"server": server, "chroot": chroot, "algorithm": algorithm.value, "name": name}
        told |= {"oracle": str(oracle.directory), "paused": paused, **options}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(Path(__file__).parent / "group_process.py"),
            json.dumps(told),
            stdin=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        return cls(process)

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        if self.alive:
            self._process.kill()
        await self._gone()

    async def _gone(self) -> None:
        """Returns when the process has ended and its pipe is closed."""
        await self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(OSError):
            await self._process.stdin.wait_closed()

    async def stop(self) -> None:
        """Stops the process as an operator would: it leaves the group first."""
        self.resume()
        if self.alive:
            self._process.terminate()
        await self._gone()


async def add_resources(zk: ZooKeeper, count: int) -> None:
    """Adds the resources r0, r1, … to the group."""
    for number in range(count):
        await add_resource(zk, GROUP, f"r{number}")


async def holds_exactly(workers: list[Worker], loads: list[int], timeout: float = 10.0) -> None:
    """Waits until the members work on these numbers of different resources.

    A member may act on its resources a moment before `on_start` runs, so both have to agree.
    """
    deadline = time.monotonic() + patient(timeout)
    while True:
        held = [resource for worker in workers for resource in worker.member.resources]
        found = sorted(len(worker.member.resources) for worker in workers)
        begun = all(worker.working_on.keys() == worker.member.resources.keys() for worker in workers)
        if begun and found == sorted(loads) and len(set(held)) == len(held):
            return
        assert time.monotonic() < deadline, [(worker.name, worker.member.statistics()) for worker in workers]
        await asyncio.sleep(0.01)
