"""A whole cluster in one process: the real daemons on simulated hosts, and users with the real
client.

Always: a daemon that was killed leaves its disk as it was, and starts again from it.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from simulation.host_process import NOBODY, Died, HostProcess
from simulation.kazoo_connection import ZK
from simulation.lost_names import Names
from simulation.simulated_zookeeper import SimulatedZooKeeper
from simulation.virtual_loop import VirtualLoop

from torrentdist.api.async_client import AsyncClient
from torrentdist.cluster.session.founding import found_at
from torrentdist.host.process.daemon_process import Daemon
from torrentdist.master.daemon import Master
from torrentdist.model.configuration.config import (
    ApiConfig,
    ClientConfig,
    Config,
    JobsConfig,
    MasterConfig,
    ReplicationConfig,
    StoreConfig,
    SupervisorConfig,
    ZooKeeperConfig,
)
from torrentdist.model.errors import TorrentdistError
from torrentdist.supervisor.daemon import Supervisor

SESSION_SECS = 6.0
API_PORT = 7060


class Host:
    """One host with its daemon, which may be down."""

    def __init__(self, cluster: SimulatedCluster, name: str, address: str) -> None:
        self.cluster, self.name, self.address = cluster, name, address
        self.is_master = name.startswith("master")
        self.data_dir = cluster.place / name
        self.process = HostProcess(name, address, alive=False)
        self.daemon: Master | Supervisor | None = None
        self.stopping: HostProcess | None = None
        """The process that was told to stop."""
        self.wanted = True
        """Whether its service manager starts it again after each end."""
        self.names: Names | None = None
        """Follows what a loss of power would undo on its disk. None: the story has none."""

    @property
    def url(self) -> str:
        return f"http://{self.address}:{API_PORT}"

    @property
    def up(self) -> bool:
        return self.process.alive

    def start(self) -> None:
        process = HostProcess(self.name, self.address, names=self.names)
        process.wall_skew, process.disk, process.rots = self.process.wall_skew, self.process.disk, self.process.rots
        self.process = process
        process.at_death.append(lambda: self.cluster.on_death(self, process))
        context = process.context()
        task = self.cluster.loop.create_task(self._live(process), context=context)
        process.tasks.append(task)

    async def _live(self, process: HostProcess) -> None:
        """Does what daemon_process.py does around a daemon, without signals."""
        daemon: Daemon | None = None
        try:
            config = self.cluster.config_of(self)
            daemon = self.daemon = Master(config, repair_acls=False) if self.is_master else Supervisor(config)
            try:
                await daemon.start()
                await daemon.failed()
                if self.stopping is process:
                    return
                raise AssertionError("a loop of the daemon has ended")
            finally:
                if process.alive and self.stopping is not process:
                    await daemon.stop()
        except asyncio.CancelledError:
            raise
        except Died:
            return
        except TorrentdistError as error:
            self.cluster.ends.append((self.name, error.code, error.message))
        except OSError as error:
            self.cluster.ends.append((self.name, "os_error", str(error)))
        except Exception as error:
            self.cluster.ends.append((self.name, "bug", repr(error)))
            self.cluster.note_bug(f"{self.name} failed: {error!r}", error)
        process.die()

    async def stop(self) -> None:
        """Stops the daemon as SIGTERM does."""
        daemon, process = self.daemon, self.process
        if daemon is None or not process.alive:
            return
        self.stopping, context = process, process.context()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(20.0):
                    await self.cluster.loop.create_task(daemon.stop(), context=context)
        except (TorrentdistError, OSError) as error:  # A daemon whose disk fails ends all the same.
            self.cluster.ends.append((self.name, "os_error", str(error)))
        finally:
            process.die()


class SimulatedCluster:
    def __init__(self, loop: VirtualLoop, zookeeper: SimulatedZooKeeper, place: Path, rng: random.Random) -> None:
        self.loop, self.zookeeper, self.place, self.rng = loop, zookeeper, place, rng
        self.hosts: list[Host] = []
        self.ends: list[tuple[str, str, str]] = []
        """Daemons that ended by themselves: name, code and message."""
        self.bugs: list[str] = []
        self.bug_errors: list[BaseException] = []
        self.scrub_secs = StoreConfig().scrub_secs
        self.token_file = str(place / "token")
        Path(self.token_file).write_text(f"{'t' * 40}\n")
        Path(self.token_file).chmod(0o600)

    def note_bug(self, text: str, error: BaseException | None = None) -> None:
        self.bugs.append(text)
        if error is not None:
            self.bug_errors.append(error)

    @property
    def masters(self) -> list[Host]:
        return [host for host in self.hosts if host.is_master]

    @property
    def supervisors(self) -> list[Host]:
        return [host for host in self.hosts if not host.is_master]

    def add(self, name: str) -> Host:
        kind = 1 if name.startswith("master") else 2
        number = sum(host.is_master == (kind == 1) for host in self.hosts) + 1
        host = Host(self, name, f"10.0.{kind}.{number}")
        host.data_dir.mkdir(parents=True)
        self.hosts.append(host)
        return host

    async def found(self) -> None:
        await found_at(self._zookeeper_config(), 10.0)

    def _zookeeper_config(self) -> ZooKeeperConfig:
        return ZooKeeperConfig(servers=[f"{ZK}:2181"], session_timeout_secs=SESSION_SECS, operation_timeout_secs=3.0)

    def config_of(self, host: Host) -> Config:
        data_dir = str(host.data_dir)
        of_host = SupervisorConfig(id=host.name, data_dir=data_dir, ids_dir="")
        return Config(
            zookeeper=self._zookeeper_config(),
            api=ApiConfig(listen=host.address, port=API_PORT, insecure_listen=True, token_file=self.token_file),
            master=MasterConfig(id=host.name, data_dir=data_dir) if host.is_master else MasterConfig(),
            supervisor=SupervisorConfig() if host.is_master else of_host,
            client=self.client_config(),
            store=StoreConfig(reserve_bytes=0, scrub_secs=self.scrub_secs),
            jobs=JobsConfig(isolation="none", silent_secs=15.0),
            replication=ReplicationConfig(lost_secs=20.0, sync_secs=30.0),
        )

    # ends of processes

    def on_death(self, host: Host, process: HostProcess, *, host_too: bool = False) -> None:
        self.loop.network.process_died(process, host_too=host_too)
        if host.wanted and host.process is process:
            self.loop.call_later(self.rng.uniform(0.3, 2.0), self._restart, host, process, context=NOBODY.context())

    def _restart(self, host: Host, old: HostProcess) -> None:
        if host.wanted and host.process is old:
            host.start()

    def kill(self, host: Host, *, back_after: float | None) -> None:
        """Ends a daemon as `kill -9` does. None: its service manager starts it again at once."""
        if back_after is None:
            host.process.die()
            return
        host.wanted = False
        host.process.die()
        self.loop.call_later(back_after, self.bring_back, host, context=NOBODY.context())

    def stop(self, host: Host, *, back_after: float) -> None:
        """Ends a daemon as SIGTERM does."""
        host.wanted = False
        self.loop.create_task(host.stop(), context=NOBODY.context())
        self.loop.call_later(back_after, self.bring_back, host, context=NOBODY.context())

    def bring_back(self, host: Host) -> None:
        host.wanted = True
        if not host.up:
            host.start()

    def pause(self, host: Host) -> None:
        if host.up and host.process.held is None:
            host.process.held = []

    def go_on(self, host: Host) -> None:
        held, host.process.held = host.process.held, None
        for run in held or ():
            self.loop.call_soon(run, context=host.process.context())

    def wipe(self, host: Host) -> None:
        shutil.rmtree(host.data_dir, ignore_errors=True)
        host.data_dir.mkdir(parents=True, exist_ok=True)

    # users

    def client_config(self) -> ClientConfig:
        return ClientConfig(
            masters=[master.url for master in self.masters],
            supervisor="",
            token_file=self.token_file,
            token_in_the_clear=True,
            deadline_secs=30.0,
        )

    async def as_user(self, name: str, act: Callable[[AsyncClient], Awaitable[Any]]) -> Any:
        """Runs a call of the Python API as a user's process of its own."""
        process = HostProcess(name, "10.0.3.1")
        context = process.context()

        async def call() -> Any:
            return await act(AsyncClient.of(Config(client=self.client_config())))

        return await self.loop.create_task(call(), context=context)

    def leader(self) -> Host | None:
        """Returns the master that leads by the records, as far as there is one."""
        parent = self.zookeeper.nodes.get("/torrentdist/election")
        queue = [] if parent is None else sorted(parent.children, key=lambda name: name[-10:])
        if not queue:
            return None
        data = self.zookeeper.nodes[f"/torrentdist/election/{queue[0]}"].data.decode(errors="replace")
        return next((host for host in self.masters if host.name in data), None)


def leads(host: Host) -> bool:
    """Whether this daemon acts as leader now."""
    room = getattr(host.daemon, "leading", None)
    return bool(room is not None and room.leadership.is_leader())
