"""The cluster under test: three ZooKeeper servers, three masters, two supervisors, and control of
every connection between a daemon and ZooKeeper.

Always: a daemon that ends is started again, as an init system would. A daemon that ended by itself
is recorded. Nothing is left running after close().
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import SIGCONT, SIGKILL, Signals

import httpx
import msgspec
from chaos import disks
from chaos.links import Links
from chaos.network import Network
from chaos.oracle import Sighting
from chaos.schedule import DAEMONS, LEADER, MASTERS, SERVERS, SERVERS_LEADER, SESSION_SECS

from bench.lab.namespaces import BRIDGE
from torrentdist.dev.dev_cluster import DevCluster, DevSpec
from torrentdist.dev.dev_processes import is_alive
from torrentdist.dev.embedded_zookeeper import EmbeddedZooKeeper, ZooKeeperServer
from torrentdist.model.wire.headers import CLIENT

SETTINGS: dict[str, dict[str, object]] = {
    "store": {"scrub_secs": 4.0, "reserve_bytes": 0},
    "replication": {"sync_secs": 5.0, "abandon_secs": 600.0},
    "zookeeper": {"operation_timeout_secs": 3.0},
}
LOOK_SECS = 0.1
PROGRAM = Path(__file__).parent.parent / "skewed_clock.py"
LOOPBACK = "127.0.0.1"


class LinkedCluster(DevCluster):
    """A DevCluster whose daemons each reach ZooKeeper at addresses of their own, and may be on
    hosts of their own."""

    def __init__(self, spec: DevSpec, servers: Mapping[str, Sequence[str]], network: Network | None) -> None:
        super().__init__(spec)
        self._servers = servers
        self._network = network

    def write_config(self, name: str, *, port: int) -> None:
        spec = self.spec
        own: dict[str, dict[str, object]] = {"zookeeper": {"servers": list(self._servers[name])}}
        if self._network is not None:
            own["api"] = {"listen": self._network.address(name)}
            own["jobs"] = {"isolation": "preferred"}
        settings = {**spec.settings}
        for section, values in own.items():
            settings[section] = {**settings.get(section, {}), **values}
        self.spec = msgspec.structs.replace(spec, settings=settings)
        try:
            super().write_config(name, port=port)
        finally:
            self.spec = spec

    def command(self, name: str) -> list[str]:
        """Returns the command of `torrentdist` with a clock that can be set."""
        python, _, _, *rest = super().command(name)
        within = [] if self._network is None else self._network.within(name)
        return [*within, python, str(PROGRAM), *rest]

    def returncode(self, name: str) -> int | None:
        child = self._children.get(self.member(name).pid)
        return child.wait(5.0) if child else None  # its first thread is gone; the others follow


class World:
    def __init__(
        self, directory: Path, network: Network | None, settings: dict[str, dict[str, object]] = SETTINGS
    ) -> None:
        """`network`: the network of the namespaces that we are in. Without it some faults are
        impossible. `settings`: of every daemon."""
        self._settings = settings
        self.dir = directory
        self.network = network
        self.zookeeper = EmbeddedZooKeeper(directory / "zookeeper", servers=3)
        self.links: dict[str, Links] = {}
        self.urls: dict[str, str] = {}
        self.sightings: list[Sighting] = []
        self.ended: list[str] = []
        self.down: set[str] = set()
        """Members that a fault keeps from running now."""
        self.leader = ""
        self._mounted = False
        self._tasks: list[asyncio.Task[None]] = []
        self.cluster: LinkedCluster

    async def open(self) -> None:
        if self.network is not None:
            await asyncio.to_thread(disks.mount_all, self._disks())
            self._mounted = True
        await asyncio.to_thread(self.zookeeper.start, 60.0)
        for name in DAEMONS:
            self.links[name] = Links(self.zookeeper.addresses, BRIDGE if self.network else LOOPBACK)
            await self.links[name].start()
        settings = self._settings
        if self.network is not None:
            settings = {**settings, "api": {"token_file": str(self.network.token), "insecure_listen": True}}
        spec = DevSpec(
            dir=self.dir / "cluster",
            zookeeper=",".join(self.zookeeper.addresses),
            session_secs=SESSION_SECS,
            settings=settings,
        )
        servers = {name: links.addresses for name, links in self.links.items()}
        self.cluster = LinkedCluster(spec, servers, self.network)
        await asyncio.to_thread(self.cluster.up)
        self.urls = {name: self.cluster.member(name).url for name in DAEMONS}
        self.http = httpx.AsyncClient(trust_env=False, timeout=2.0, headers={**self.cluster.headers(), CLIENT: "1"})
        self._tasks = [asyncio.create_task(self._watch(name)) for name in MASTERS]
        self._tasks.append(asyncio.create_task(self._restart_the_ended()))

    async def stop_watching(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def close(self) -> None:
        """Stops whatever still runs."""
        await self.stop_watching()
        if hasattr(self, "http"):
            await self.http.aclose()
        if hasattr(self, "cluster"):
            await asyncio.to_thread(self.cluster.down)
        await asyncio.to_thread(self.zookeeper.kill)
        for links in self.links.values():
            await links.close()
        if self._mounted:
            self._mounted = False
            await asyncio.to_thread(disks.unmount_all, self._disks())

    # looking

    async def _watch(self, master: str) -> None:
        """Asks a master again and again whether it leads."""
        while True:
            began = time.time()
            if await self.answers(master, "/leaderz"):
                self.sightings.append(Sighting(master, began, time.time()))
                self.leader = master
            await asyncio.sleep(LOOK_SECS)

    async def answers(self, name: str, path: str) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return (await self.http.get(self.urls[name] + path)).status_code == 200
        return False

    async def _restart_the_ended(self) -> None:
        while True:
            for name in DAEMONS:
                if name not in self.down and not self.alive(name):
                    code = await asyncio.to_thread(self.cluster.returncode, name)
                    self.ended.append(f"{name} ended by itself with {code}: {self.last(name)}")
                    self.cluster.start(name)
            await asyncio.sleep(1.0)

    def alive(self, name: str) -> bool:
        return is_alive(self.cluster.member(name))

    def last(self, name: str) -> str:
        lines = self.log(name).read_text(errors="replace").strip().splitlines()
        return ([line for line in lines[-20:] if "error" in line] or lines or [""])[-1][:400]

    def log(self, name: str) -> Path:
        return self.dir / "cluster" / f"{name}.log"

    def store(self, name: str) -> Path:
        return self.dir / "cluster" / name

    def _disks(self) -> list[Path]:
        """Returns the disks; every member has one of its own."""
        servers = [self.zookeeper.directory / f"server-{number}" for number in range(1, len(SERVERS) + 1)]
        return [*servers, *map(self.store, DAEMONS)]

    def resolve(self, target: str) -> str:
        """Returns the member that a target means now."""
        if target == LEADER:
            return self.leader or MASTERS[0]
        if target == SERVERS_LEADER:
            leading = [n for n, server in enumerate(self.zookeeper.servers, 1) if "Mode: leader" in _mode(server)]
            return f"zookeeper-{leading[0] if leading else 1}"
        return target

    def server(self, name: str) -> ZooKeeperServer:
        return self.zookeeper.servers[int(name.rpartition("-")[2]) - 1]

    # doing

    def signal(self, name: str, number: Signals) -> None:
        member = self.cluster.member(name)
        if is_alive(member):
            os.kill(member.pid, number)

    async def end(self, name: str, number: Signals) -> None:
        """Ends a daemon, and keeps it down until start()."""
        self.down.add(name)
        await asyncio.to_thread(self.cluster.signal, name, number)
        if self.alive(name):  # it was told to stop and does not
            self.ended.append(f"{name} did not stop when told to")
            await asyncio.to_thread(self.cluster.signal, name, SIGKILL)

    def start(self, name: str) -> None:
        self.down.discard(name)
        if not self.alive(name):
            self.cluster.start(name)

    def keep_disks(self) -> None:
        """Keeps what is on disks that end with this run, for the investigation of a finding."""
        for disk in self._disks() if self._mounted else ():
            shutil.copytree(disk, disk.with_suffix(".kept"), symlinks=True)

    def set_clock(self, name: str, off_by: float) -> None:
        fresh = self.cluster.config_of(name).with_suffix(".new")
        fresh.write_text(str(off_by))
        fresh.rename(fresh.with_suffix(".skew"))

    async def heal(self) -> None:
        for disk in self._disks() if self._mounted else ():
            disks.empty(disk)
        for name in DAEMONS:
            self.set_clock(name, 0.0)
            self.links[name].mend()
            self.signal(name, SIGCONT)
            self.start(name)
        if self.network is not None:
            for name in MASTERS:
                self.network.mend(name)
        for server in self.zookeeper.servers:
            server.resume()
            if server.exited():
                server.spawn()

    def complaints(self) -> list[str]:
        """Returns internal errors that the daemons logged."""
        found = []
        for name in DAEMONS:
            text = self.log(name).read_text(errors="replace")
            found += [f"{name}: {line[-600:]}" for line in re.findall(r"^.*Traceback.*$", text, re.MULTILINE)]
        return found


def _mode(server: ZooKeeperServer) -> str:
    return server.command("srvr")
