"""Puts a story's clocks, chance, threads and sockets in the place of the operating system's.

Always: `time.monotonic()`, `time.time()` and every source of chance follow the seed and the virtual
clock. Everything is put back at the end.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import fcntl
import hashlib
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from simulation import disk
from simulation.clocks import SOURCE
from simulation.host_process import HERE
from simulation.simulated_engine import SimulatedEngine
from simulation.simulated_kazoo import SimulatedKazoo
from simulation.simulated_runs import HostRuns, SimulatedRunning, no_namespaces
from simulation.simulated_sockets import SimulatedSocket
from simulation.simulated_zookeeper import SimulatedZooKeeper
from simulation.virtual_loop import EPOCH, VirtualLoop

import torrentdist.client.bundles.client_peer
import torrentdist.cluster.session.kazoo_client
import torrentdist.host.process.host_daemon
import torrentdist.launcher.launcher_client
import torrentdist.master.master_core
import torrentdist.supervisor.jobs.host_workers
import torrentdist.supervisor.place.room
from torrentdist.model.records import MasterRecord, SupervisorRecord


@contextlib.contextmanager
def simulated(loop: VirtualLoop, seed: int) -> Iterator[SimulatedZooKeeper]:
    """Runs the body, and what it runs on the loop, in the simulated world."""
    zookeeper = SimulatedZooKeeper(loop)
    chance = random.Random(seed ^ 0x5EED)
    for kind in (SimulatedKazoo, SimulatedEngine):
        kind.network, kind.rng = loop.network, loop.rng
    SimulatedKazoo.loop, SimulatedKazoo.server = loop, zookeeper
    SimulatedEngine.everywhere = {}
    SimulatedRunning.all_runs = HostRuns(loop.rng)
    SimulatedSocket.network = loop.network
    state = random.getstate()
    random.seed(seed)
    with contextlib.ExitStack() as undo:
        for place, name, value in _replacements(loop, chance):
            undo.callback(setattr, place, name, getattr(place, name))
            setattr(place, name, value)
        yield zookeeper
    random.setstate(state)


def _replacements(loop: VirtualLoop, chance: random.Random) -> list[tuple[Any, str, Any]]:
    kazoo_client = torrentdist.cluster.session.kazoo_client
    monotonic = loop.time

    def wall() -> float:
        here = HERE.get()
        return EPOCH + loop.now * (1.0 + here.wall_drift) + here.wall_skew

    class InPlace(threading.Thread):
        """A thread whose work the loop does soon."""

        def start(self) -> None:
            loop.call_later(loop.rng.uniform(0.0001, 0.002), self.run)

    def quick_hash(password: bytes, *, salt: bytes, dklen: int = 64, **_: int) -> bytes:
        """Stands for scrypt, which takes long on purpose."""
        return hashlib.pbkdf2_hmac("sha256", password, salt, 1, dklen)

    def at_once(_: Any, work: Callable[..., Any], *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        done: concurrent.futures.Future[Any] = concurrent.futures.Future()
        try:
            done.set_result(work(*args, **kwargs))
        except Exception as exc:
            done.set_exception(exc)
        return done

    return [
        (SOURCE, "monotonic", monotonic),
        (time, "monotonic_ns", lambda: int(monotonic() * 1e9)),
        (time, "perf_counter", monotonic),
        (time, "clock_gettime", lambda _: monotonic()),
        (SOURCE, "wall", wall),
        (time, "time_ns", lambda: int(wall() * 1e9)),
        (time, "sleep", lambda secs: None),
        (os, "urandom", chance.randbytes),
        (hashlib, "scrypt", quick_hash),
        (random, "_urandom", chance.randbytes),
        (os, "sched_getaffinity", lambda _: {0}),
        *disk.replacements(),
        (os, "sync", lambda: None),
        (fcntl, "flock", _noting_locks(fcntl.flock)),
        (threading, "Thread", InPlace),
        (concurrent.futures.ThreadPoolExecutor, "submit", at_once),
        (socket, "socket", SimulatedSocket),
        (asyncio, "run_coroutine_threadsafe", loop.run_threadsafe),
        (kazoo_client, "KazooClient", SimulatedKazoo),
        (kazoo_client, "_Connection", _Granted),
        (torrentdist.host.process.host_daemon, "Engine", SimulatedEngine),
        (torrentdist.master.master_core, "MasterRecord", of_release(MasterRecord)),
        (torrentdist.supervisor.place.room, "SupervisorRecord", of_release(SupervisorRecord)),
        (torrentdist.supervisor.jobs.host_workers, "Running", SimulatedRunning),
        (torrentdist.launcher.launcher_client.OwnStarter, "isolation", no_namespaces),
        (torrentdist.client.bundles.client_peer, "Engine", SimulatedEngine),
    ]


def of_release(kind: Any) -> Callable[..., Any]:
    """Makes registrations that say which records this release of the daemon reads."""

    def make(**fields: Any) -> Any:
        return kind(**(fields | {"speaks": HERE.get().release or fields["speaks"]}))

    return make


class _Granted:
    """Stands for the product's subclass of kazoo's connection."""

    granted = 0.0
    _xid = 0

    def stop(self, _: float = 0.0) -> None:
        pass


def _noting_locks(flock: Callable[[int, int], None]) -> Callable[[int, int], None]:
    def noting(fd: int, kind: int) -> None:
        flock(fd, kind)
        HERE.get().locks.add(fd)

    return noting
