"""Hosts that are only simulated: they register, send heartbeats and announce as real ones do, and
move no byte. They fill a console, or put the load of a large fleet on real masters.

`python -m torrentdist.dev.simulated_hosts --config FILE --hosts 50` runs until it is stopped. The
configuration is that of a client, as `dev up` writes it.
Always: they have no slots, so nothing is run on them.
Never: use them in a cluster whose bundles matter. Masters count their copies like real ones.
"""

import argparse
import asyncio
import contextlib
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from torrentdist import __version__
from torrentdist.client.client_access import access_of
from torrentdist.cluster import paths
from torrentdist.cluster.records.registration import Registration
from torrentdist.cluster.session.arrival import enter
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.http.asking_in_turn import ask_leader
from torrentdist.http.connection_pool import Http
from torrentdist.model.configuration.config import Config
from torrentdist.model.configuration.settings import load
from torrentdist.model.errors import TorrentdistError, required
from torrentdist.model.ids import BundleId, Digest, PeerId, StoreId, SupervisorId
from torrentdist.model.records import SCHEMA, AssignmentRecord, BundleRecord, SupervisorRecord, decode
from torrentdist.model.wire.job_messages import HeartbeatAnswer, HeartbeatBody
from torrentdist.model.wire.swarm_messages import PeerRole, SwarmEntry
from torrentdist.swarm.agent import LocalPeer, MasterAccess, SwarmAgent

LOOK_SECS = 1.0
FASTEST_SECS, SLOWEST_SECS = 8.0, 40.0
"""How long the fastest and the slowest host take for a bundle, whatever its size."""
STUCK_EVERY = 25
"""Number of hosts of which one gets stuck halfway."""
DISCARD_PORT = 9
"""The port that they announce. Nothing answers there."""


def arrived(digest: Digest, size: int, host: int, hosts: int, secs: float) -> SwarmEntry:
    """Returns what a host has of a bundle `secs` seconds after it was told. Pure."""
    place = host / max(1, hosts - 1)
    takes = FASTEST_SECS + (SLOWEST_SECS - FASTEST_SECS) * place
    stuck = host % STUCK_EVERY == STUCK_EVERY - 1
    done = min(size, int(size * secs / takes), size // 2 if stuck else size)
    masters = done // (4 if host < 4 else 50)
    return SwarmEntry(
        digest=digest,
        complete=done == size,
        done=done,
        size=size,
        rate=0.0 if (stuck and 2 * done >= size) or done == size else size / takes,
        from_masters=masters,
        from_peers=done - masters,
        problem="the disk is full" if stuck and 2 * done >= size and size else "",
    )


@dataclass
class _Host:
    number: int
    record: SupervisorRecord
    agent: SwarmAgent | None = None
    told: dict[BundleId, tuple[Digest, int, float]] = field(default_factory=dict)
    """Digest and size of each bundle that it is told to keep, and when it was told."""
    generation: int = 0


class SimulatedHosts:
    def __init__(self, config: Config, hosts: int) -> None:
        self._config = config
        self._zookeeper = ZooKeeper(config.zookeeper)
        self._http = Http(access=access_of(config.client))
        self._hosts = [_Host(number, _record(number)) for number in range(hosts)]
        self._bundles: dict[BundleId, tuple[Digest, int]] = {}
        self._registrations: list[Registration] = []

    async def run(self) -> None:
        """Simulates until it is cancelled."""
        await enter(self._zookeeper)
        async with asyncio.TaskGroup() as tasks:
            try:
                for host in self._hosts:
                    registration = Registration(self._zookeeper, host.record)
                    await registration.start()
                    self._registrations.append(registration)
                    tasks.create_task(self._live(host))
                await asyncio.Event().wait()
            finally:
                for registration in self._registrations:
                    await registration.abandon()
                await self._zookeeper.close()  # its records go with the session

    async def _live(self, host: _Host) -> None:
        peer = LocalPeer(
            id=PeerId(host.record.id),
            role=PeerRole.SUPERVISOR,
            ports=lambda: (DISCARD_PORT, 0),
            swarms=lambda: self._entries(host),
            host=host.record.host,
        )
        access = MasterAccess(http=self._http, masters=lambda: self._config.client.masters)
        host.agent = SwarmAgent(peer, access, lambda _: None)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(host.agent.run())
            tasks.create_task(self._beat(host))
            while True:
                with contextlib.suppress(TorrentdistError):
                    await self._look(host)
                await asyncio.sleep(LOOK_SECS)

    def _entries(self, host: _Host) -> list[SwarmEntry]:
        now = time.monotonic()
        return [
            arrived(digest, size, host.number, len(self._hosts), now - since)
            for digest, size, since in host.told.values()
        ]

    async def _look(self, host: _Host) -> None:
        """Reads what the host is told to keep, and announces what is new."""
        path = paths.assignment(host.record.id)
        found = await self._zookeeper.get(path)
        wanted: tuple[BundleId, ...] = ()
        if found is not None:
            assignment = decode(found[0], AssignmentRecord, path=path)
            wanted, host.generation = assignment.bundles, assignment.generation
        news = [bundle for bundle in wanted if bundle not in host.told]
        host.told = {bundle: told for bundle, told in host.told.items() if bundle in wanted}
        for bundle in news:
            digest, size = await self._bundle(bundle)
            host.told[bundle] = digest, size, time.monotonic()
        if news and host.agent is not None:
            host.agent.poke()

    async def _bundle(self, bundle: BundleId) -> tuple[Digest, int]:
        if bundle not in self._bundles:
            found = required(await self._zookeeper.get(paths.bundle(bundle)), "bundle_not_found", id=bundle, note="")
            record = decode(found[0], BundleRecord, path=paths.bundle(bundle))
            self._bundles[bundle] = record.digest, record.size
        return self._bundles[bundle]

    async def _beat(self, host: _Host) -> None:
        leader, masters, id_ = "", self._config.client.masters, SupervisorId(host.record.id)
        while True:
            body = HeartbeatBody(supervisor=id_, generation=host.generation, workers=[])
            told = await ask_leader(self._http, leader, masters, "/v1/heartbeat", body, HeartbeatAnswer)
            leader, pause = ("", LOOK_SECS) if told is None else (told[0], told[1].interval)
            await asyncio.sleep(pause)


def _record(number: int) -> SupervisorRecord:
    id_ = SupervisorId(f"simulated-{number + 1}")
    return SupervisorRecord(
        id=id_,
        host="127.0.0.1",
        gateway="",
        swarm_port=DISCARD_PORT,
        store=StoreId(f"store-of-{id_}"),
        version=__version__,
        labels={"simulated": "yes", "rack": f"r{number % 5 + 1}"},
        started_at=time.time(),
        speaks=SCHEMA,
    )


async def _simulate(config: Config, hosts: int) -> None:
    task = asyncio.ensure_future(SimulatedHosts(config, hosts).run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m torrentdist.dev.simulated_hosts", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="a client's configuration, with ZooKeeper's address")
    parser.add_argument("--hosts", type=int, default=50)
    arguments = parser.parse_args()
    asyncio.run(_simulate(load(config_file=arguments.config).config, arguments.hosts))


if __name__ == "__main__":
    main()
