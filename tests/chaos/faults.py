"""Carries out the faults of a schedule on a world.

Always: a member has one fault at a time. A disk is damaged only while another one has a good copy
of everything acknowledged that is on it. A fault that is left out for this reason is counted, not
hidden.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from chaos import disks
from chaos.forgetting import Hush, OutOfReach, forget
from chaos.links import Links
from chaos.load import Load, State
from chaos.schedule import (
    DAEMONS,
    DISK,
    MASTERS,
    SUPERVISORS,
    ClockJump,
    Cut,
    Drops,
    Event,
    Expire,
    Fault,
    Flip,
    Forget,
    Full,
    Kill,
    Part,
    Pause,
    Stop,
    Wipe,
)
from chaos.world import World
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

DROP_SECS = 0.05
CUT_SHARE = 0.3
"""The share of damaged files that lose their end. The others get a wrong byte."""
DAY_SECS = 86_400.0
EXPIRE_SECS = 20.0
KNOCK_SECS = 2.0
"""Time for a server to answer. The first server that is asked may be paused."""


class Injector:
    def __init__(self, world: World, hush: Hush, seed: int, may_go: Callable[[str, Damage | None], bool]) -> None:
        """`hush`: asks everything that works with the cluster to wait."""
        self._world = world
        self._hush = hush
        self._rng = random.Random(seed)
        self._may_go = may_go
        self._busy: set[str] = set()
        self._disk = asyncio.Lock()
        self.done: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        self.stolen: set[int] = set()
        self.outsiders: set[int] = set()
        """Sessions of the harness that changed the tree."""
        self.failed: list[str] = []
        self._damage: Damage | None = None

    async def run(self, events: list[Event]) -> None:
        """Carries out the events, and returns when every fault is over."""
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for event in events:
                await asyncio.sleep(max(0.0, began + event.at - time.monotonic()))
                group.create_task(self._carry_out(event.fault))

    async def _carry_out(self, fault: Fault) -> None:
        name = await asyncio.to_thread(self._world.resolve, fault.target)
        if name in self._busy or (isinstance(fault, Full | Part) and self._world.network is None):
            self.left_out[type(fault).__name__] += 1
            return
        self._busy.add(name)
        try:
            if isinstance(fault, Expire) and name in SUPERVISORS:
                # Workers trust that a session lasts as long as ZooKeeper granted it, and no other
                # process has its password.
                self.left_out[type(fault).__name__] += 1
                return
            if isinstance(fault, DISK):
                async with self._disk:
                    if not await asyncio.to_thread(self._may_go, name, self._damage):
                        self.left_out[type(fault).__name__] += 1
                        return
                    await self._do(fault, name)
            else:
                await self._do(fault, name)
            self.done[type(fault).__name__] += 1
        except OutOfReach:
            self.left_out[type(fault).__name__] += 1
        except Exception as exc:  # a failure of the harness: it is reported at the end
            self.failed.append(f"{fault}: {exc!r}")
        finally:
            self._busy.discard(name)

    async def _do(self, fault: Fault, name: str) -> None:
        world = self._world
        match fault:
            case Kill(secs=secs) | Pause(secs=secs) | Full(secs=secs) if name not in DAEMONS:
                await self._server(fault, name, secs)
            case Kill(secs=secs):
                await world.end(name, signal.SIGKILL)
                await asyncio.sleep(secs)
                world.start(name)
            case Stop(secs=secs):
                await world.end(name, signal.SIGTERM)
                await asyncio.sleep(secs)
                world.start(name)
            case Pause(secs=secs):
                world.signal(name, signal.SIGSTOP)
                await asyncio.sleep(secs)
                world.signal(name, signal.SIGCONT)
            case Drops(secs=secs):
                await _drop(world.links[name], secs)
            case Cut(way=way, secs=secs):
                world.links[name].cut(way)
                await asyncio.sleep(secs)
                world.links[name].mend()
            case Part(others=others, direction=direction, secs=secs) if world.network is not None:
                await asyncio.to_thread(world.network.part, name, others, direction)
                await asyncio.sleep(secs)
                await asyncio.to_thread(world.network.mend, name)
            case Expire():
                await self._expire(world.links[name])
            case Flip():
                self._damage = await asyncio.to_thread(flip_somewhere, world.store(name), self._rng)
            case Wipe(secs=secs):
                await world.end(name, signal.SIGKILL)
                await asyncio.to_thread(disks.wipe, world.store(name))
                await asyncio.sleep(secs)
                world.start(name)
            case ClockJump(days=days, secs=secs):
                world.set_clock(name, days * DAY_SECS)
                await asyncio.sleep(secs)
                world.set_clock(name, 0.0)
            case Forget(secs=secs):
                await forget(world.zookeeper.addresses, self._hush, secs, self.outsiders)
            case Full(secs=secs):
                await asyncio.to_thread(disks.fill, world.store(name))
                await asyncio.sleep(secs)
                await asyncio.to_thread(disks.empty, world.store(name))

    async def _server(self, fault: Fault, name: str, secs: float) -> None:
        server = self._world.server(name)
        match fault:
            case Kill():
                await asyncio.to_thread(server.kill)
                await asyncio.sleep(secs)
                server.spawn()
            case Full():
                await asyncio.to_thread(disks.fill, server.directory)
                await asyncio.sleep(secs)
                await asyncio.to_thread(disks.empty, server.directory)
                await asyncio.to_thread(
                    server.kill
                )  # a daemon on a full disk ends by itself, unless it had nothing to write
                server.spawn()
            case _:
                server.pause()
                await asyncio.sleep(secs)
                server.resume()

    async def _expire(self, links: Links) -> None:
        session = links.session
        if session is None:
            return
        self.stolen.add(session.id)
        hosts = ",".join(self._world.zookeeper.addresses)
        thief = KazooClient(hosts=hosts, client_id=(session.id, session.password), timeout=KNOCK_SECS)
        try:
            await asyncio.to_thread(thief.start, EXPIRE_SECS)
        except KazooTimeoutError:
            raise OutOfReach from None
        finally:
            await asyncio.to_thread(thief.stop)
            await asyncio.to_thread(thief.close)


async def _drop(links: Links, secs: float) -> None:
    end = time.monotonic() + secs
    while time.monotonic() < end:
        links.drop()
        await asyncio.sleep(DROP_SECS)


@dataclass(frozen=True)
class Damage:
    path: Path
    before: bytes

    def lasts(self) -> bool:
        """Whether the damage is still there."""
        return not self.path.exists() or sha256(self.path.read_bytes()).digest() != self.before


def expendable(world: World, load: Load, name: str, damage: Damage | None) -> bool:
    """Whether everything acknowledged survives the loss of this disk. Looks at the disks
    themselves."""
    others = [world.store(master) for master in MASTERS if master != name]
    bad = damage.path if damage is not None and damage.lasts() else None

    def has(store: Path, digest: str) -> bool:
        return (store / "bundles" / digest).exists() and (bad is None or store / "objects" / digest not in bad.parents)

    return name not in MASTERS or all(
        any(has(store, entry.digest) for store in others) for entry in load.in_state(State.ACKED)
    )


def flip_somewhere(store: Path, rng: random.Random) -> Damage | None:
    """Damages one file of one published bundle, or its metafile, as a disk does: a byte changes
    without a trace in size and times, or the end is missing."""
    found = [*store.glob("bundles/*/content/**/*"), *store.glob("bundles/*/metafile")]
    files = sorted(path.resolve() for path in found if path.is_file() and path.stat().st_size)
    if not files:
        return None
    path = rng.choice(files)
    damage = Damage(path, sha256(path.read_bytes()).digest())
    before = path.stat()
    offset = rng.randrange(before.st_size)
    path.chmod(0o600)
    if rng.random() < CUT_SHARE:
        os.truncate(path, offset)
    else:
        with path.open("r+b") as file:
            file.seek(offset)
            old = file.read(1)
            file.seek(offset)
            file.write(bytes([old[0] ^ 1]))
    path.chmod(before.st_mode & 0o777)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return damage
