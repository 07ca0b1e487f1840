"""Many members and resources under constant faults: an oracle outside checks whether two members
ever work on the same resource.

Both algorithms run side by side, each in a tree of its own. TORRENTDIST_TEST_GROUP=100x1000x60 runs
100 members on 1000 resources, one algorithm after the other.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from group_members import GROUP, MemberProcess, Worker
from group_oracle import Oracle
from patience import patient
from zookeeper_fixtures import Connect, TcpProxy

from torrentdist.cluster.rebalance import Algorithm, Settings, add_resource, remove_resource
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.dev.embedded_zookeeper import EmbeddedZooKeeper
from torrentdist.model.errors import TorrentdistError

pytestmark = pytest.mark.anyio

MEMBERS, RESOURCES, SECONDS = map(int, os.environ.get("TORRENTDIST_TEST_GROUP", "20x100x10").split("x"))
SIDE_BY_SIDE = 50
"""With more members than this, one process cannot run both algorithms at once."""
PROCESSES = 4
SESSION_SECS = 3.0
SETTINGS = Settings(min_interval_secs=0.3, patience_secs=0.2, max_backoff_secs=1.0)
ACT_SECS = 0.1


class Seat:
    """A member in this process, with its own connection that a test can cut."""

    def __init__(self, chaos: Chaos, number: int) -> None:
        self.chaos = chaos
        self.number = number
        self.proxy = TcpProxy(chaos.server.servers[0])
        self.worker: Worker | None = None
        self._lives = 0

    async def enter(self) -> None:
        self._lives += 1
        zk = await self.chaos.connect(
            servers=[self.proxy.address],
            chroot=self.chaos.chroot,
            session_timeout_secs=SESSION_SECS,
            operation_timeout_secs=1.5,
        )
        worker = Worker(zk, f"m{self.number}-{self._lives}", self.chaos.oracle)
        worker.before_start = self.chaos.may_throw
        await worker.join(self.chaos.algorithm, SETTINGS)
        self.worker = worker

    async def leave(self) -> None:
        worker, self.worker = self.worker, None
        if worker is not None:
            await worker.leave()
            await worker.zk.close()


class Chaos:
    def __init__(
        self, algorithm: Algorithm, server: EmbeddedZooKeeper, connect: Connect, chroot: str, oracle: Oracle
    ) -> None:
        self.algorithm = algorithm
        self.server = server
        self.connect = connect
        self.chroot = chroot
        self.oracle = oracle
        seed = secrets.randbits(32)
        print(algorithm, "seed", seed)
        self.rng = random.Random(seed)
        self.calm = False
        self.seats: list[Seat] = []
        self.processes: dict[str, MemberProcess] = {}
        self.done: dict[str, int] = {}

    async def may_throw(self) -> None:
        if not self.calm and self.rng.random() < 0.02:
            raise ValueError("on purpose")

    async def start(self, admin: ZooKeeper) -> None:
        await asyncio.gather(*(add_resource(admin, GROUP, f"r{n}") for n in range(RESOURCES)))
        for number in range(MEMBERS - PROCESSES):
            seat = Seat(self, number)
            await seat.proxy.start()
            self.seats.append(seat)
        await asyncio.gather(*(seat.enter() for seat in self.seats))
        for number in range(PROCESSES):
            await self.launch(f"k{number}" if number % 2 else f"p{number}")

    async def launch(self, name: str) -> None:
        paused = name.startswith("p")
        self.processes[name] = await MemberProcess.start(
            self.server.addresses[0],
            self.chroot,
            self.algorithm,
            name,
            self.oracle,
            paused=paused,
            session_secs=SESSION_SECS,
        )

    async def act(self) -> None:
        """Lets every member here act on the resources that it believes to hold."""
        while True:
            for seat in self.seats:
                if seat.worker is not None:
                    seat.worker.act()
                await asyncio.sleep(0)
            await asyncio.sleep(ACT_SECS)

    async def trouble(self, admin: ZooKeeper, end: float) -> None:
        """Causes one fault after another, some at the same time."""
        async with asyncio.TaskGroup() as faults:
            while time.monotonic() < end:
                kinds = [self.cut, self.cut, self.come_and_go, self.come_and_go, self.pause, self.kill, self.resources]
                kind = self.rng.choice(kinds)
                self.done[kind.__name__] = self.done.get(kind.__name__, 0) + 1
                faults.create_task(self._one(kind, admin))
                await asyncio.sleep(self.rng.uniform(0.1, 1.2))

    async def _one(self, kind: Callable[[ZooKeeper], Awaitable[None]], admin: ZooKeeper) -> None:
        try:
            await kind(admin)
        except TorrentdistError as exc:
            print(kind.__name__, exc)

    async def cut(self, _: ZooKeeper) -> None:
        """Cuts connections for a moment, or for longer than the session."""
        seat = self.rng.choice(self.seats)
        seat.proxy.cut()
        await asyncio.sleep(self.rng.choice([0.1, 1.0, 1.5 * SESSION_SECS]))
        seat.proxy.mend()

    async def come_and_go(self, _: ZooKeeper) -> None:
        seat = self.rng.choice(self.seats)
        if seat.worker is not None:
            await seat.leave()
            await asyncio.sleep(self.rng.uniform(0, 1))
            await seat.enter()

    async def pause(self, _: ZooKeeper) -> None:
        process = self.processes[self.rng.choice([name for name in self.processes if name.startswith("p")])]
        process.pause()
        await asyncio.sleep(self.rng.choice([0.5, 1.5 * SESSION_SECS]))
        process.resume()

    async def kill(self, _: ZooKeeper) -> None:
        name = self.rng.choice([name for name in self.processes if name.startswith("k")])
        process = self.processes[name]
        if process.alive:
            await process.kill()
            await self.launch(name)

    async def resources(self, admin: ZooKeeper) -> None:
        name = f"r{self.rng.randrange(RESOURCES)}"
        await remove_resource(admin, GROUP, name)
        await asyncio.sleep(self.rng.uniform(0, 0.5))
        await add_resource(admin, GROUP, name)

    async def stop_processes(self) -> None:
        await asyncio.gather(*(process.stop() for process in self.processes.values()))

    async def everything_held(self, deadline: float) -> float:
        """Waits until a member here works on each resource."""
        began = time.monotonic()
        while True:
            held = sorted(r for seat in self.seats if seat.worker for r in seat.worker.member.resources)
            if held == sorted(f"r{n}" for n in range(RESOURCES)):
                return time.monotonic() - began
            assert time.monotonic() < began + patient(deadline), [
                s.worker.member.statistics() for s in self.seats if s.worker
            ]
            await asyncio.sleep(0.02)

    def acts(self) -> int:
        return sum(self.oracle.acts(f"r{n}") for n in range(RESOURCES))

    async def close(self) -> None:
        await asyncio.gather(*(process.kill() for process in self.processes.values()))
        for seat in self.seats:
            seat.proxy.mend()
        await asyncio.gather(*(seat.leave() for seat in self.seats))
        for seat in self.seats:
            await seat.proxy.close()


async def test_c6_never_two_holders(
    own_zookeeper: EmbeddedZooKeeper, connect: Connect, chroot: str, tmp_path: Path
) -> None:
    """C6, C7: if this fails, joins, stops, kills, expiries or pauses make two members work on one
    resource, or none. It takes long: members die and start for ten seconds."""
    groups = [
        Chaos(algorithm, own_zookeeper, connect, f"{chroot}-{algorithm}", Oracle(tmp_path / algorithm))
        for algorithm in Algorithm
    ]
    if MEMBERS > SIDE_BY_SIDE:
        for chaos in groups:
            await endure(chaos)
    else:
        async with asyncio.TaskGroup() as both:
            for chaos in groups:
                both.create_task(endure(chaos))

    for chaos in groups:
        assert [] == chaos.oracle.overlaps()
        assert chaos.acts() > RESOURCES


async def endure(chaos: Chaos) -> None:
    """Causes faults for a while. Soon after them, every resource must be worked on."""
    admin = await chaos.connect(servers=chaos.server.addresses, chroot=chaos.chroot, session_timeout_secs=10.0)
    acting: asyncio.Task[None] | None = None
    try:
        await chaos.start(admin)
        acting = asyncio.create_task(chaos.act())
        await chaos.trouble(admin, time.monotonic() + SECONDS)
        chaos.calm = True
        await chaos.stop_processes()
        for seat in chaos.seats:
            if seat.worker is None:
                await seat.enter()
        seconds = await chaos.everything_held(SESSION_SECS + 5.0)
        print(f"{chaos.algorithm}: {chaos.done} faults, {chaos.acts()} acts, all held {seconds:.1f} s after the last")
    finally:
        if acting is not None:
            acting.cancel()
        await chaos.close()
