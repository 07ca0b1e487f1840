"""One host of a simulated cluster, and its daemon.

Always: a daemon that was killed leaves its disk as it was, and starts again from it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from simulation.host_process import Died, HostProcess
from simulation.lost_names import Names

from torrentdist.host.process.daemon_process import Daemon
from torrentdist.master.daemon import Master
from torrentdist.model.errors import TorrentdistError
from torrentdist.supervisor.daemon import Supervisor

if TYPE_CHECKING:
    from simulation.simulated_cluster import SimulatedCluster

API_PORT = 7060
KEPT = ("wall_skew", "wall_drift", "disk", "rots")
"""What the next process of a host has from the one before."""


class Host:
    """One host with its daemon, which may be down."""

    def __init__(self, cluster: SimulatedCluster, name: str, address: str) -> None:
        self.cluster, self.name, self.address = cluster, name, address
        self.is_master = name.startswith("master")
        self.data_dir = cluster.place / name
        self.process = HostProcess(name, address, alive=False)
        self.daemon: Master | Supervisor | None = None
        self.room = 0
        """Most bytes that its store may take. 0: no limit."""
        self.next_release = 0
        """The release that starts here next, by its schema. 0: this one."""
        self.stopping: HostProcess | None = None
        """The process that was told to stop."""
        self.wanted = True
        """Whether its service manager starts it again after each end."""
        self.starts = 0
        self.died_at = 0.0
        """When its last process ended."""
        self.names: Names | None = None
        """Follows what a loss of power would undo on its disk. None: the story has none."""

    @property
    def ids_dir(self) -> Path:
        return self.data_dir.with_name(f"{self.name}-ids")

    @property
    def url(self) -> str:
        return f"http://{self.address}:{API_PORT}"

    @property
    def up(self) -> bool:
        return self.process.alive

    def start(self) -> None:
        self.starts += 1
        process = HostProcess(self.name, self.address, names=self.names)
        for kept in KEPT:
            setattr(process, kept, getattr(self.process, kept))
        process.release = self.next_release
        self.process = process
        process.at_death.append(self._note_death)
        process.at_death.append(lambda: self.cluster.on_death(self, process))
        self.cluster.loop.network.power_on(self.address)
        context = process.context()
        task = self.cluster.loop.create_task(self._live(process), context=context)
        process.tasks.append(task)

    def _note_death(self) -> None:
        self.died_at = self.cluster.loop.now

    async def _live(self, process: HostProcess) -> None:
        """Does what daemon_process.py does around a daemon, without signals."""
        daemon: Daemon | None = None
        try:
            if 0 < process.release < self.cluster.schema():
                raise TorrentdistError("later_release", path="/cluster", schema=2, newest=1)
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
