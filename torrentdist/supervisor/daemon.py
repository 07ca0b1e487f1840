"""The supervisor daemon: keeps this host's bundles, exchanges them with other hosts, runs workers,
and serves the loopback gateway.

Always: bundles need neither a master nor ZooKeeper. While both are away, running downloads finish,
bundles here are served and seeded, and the last assignment stands.
Never: know what a room serves or which loops it runs. The rooms are named in the order in which
they start.
"""

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from torrentdist import __version__
from torrentdist.bundle.store.store import KeepReason, StoreUsage
from torrentdist.cluster.session.acl import read_identity
from torrentdist.cluster.session.znode_operations import SessionId
from torrentdist.distributor.protocol import Holder
from torrentdist.host.process.daemon_process import run_daemon
from torrentdist.host.process.host_daemon import HostDaemon, HostIdentity
from torrentdist.host.process.logs import configure_logs
from torrentdist.host.process.room import When, start_loops
from torrentdist.host.telemetry.host_metrics import host_samples
from torrentdist.host.telemetry.metrics import Metrics, Sample
from torrentdist.log import get_logger
from torrentdist.model import ids
from torrentdist.model.configuration.config import Config
from torrentdist.model.ids import BundleId, Digest, SupervisorId
from torrentdist.model.wire.swarm_messages import PeerAddress, PeerRole, SwarmAnnounce, SwarmAnswer, SwarmEntry
from torrentdist.supervisor.border.room import border_room
from torrentdist.supervisor.bundles.room import BundleRoom, bundle_room
from torrentdist.supervisor.gateway.doors import bind_doors, gateway_url
from torrentdist.supervisor.gateway.room import GatewayRoom, gateway_room
from torrentdist.supervisor.ids.room import ids_room
from torrentdist.supervisor.jobs.local_state import LeftBehind, read_left
from torrentdist.supervisor.jobs.room import JobRoom, job_room
from torrentdist.supervisor.place.room import PlaceRoom, place_room
from torrentdist.supervisor.place.znode_watch import ZnodeWatch
from torrentdist.swarm.swarm_picture import SwarmPicture

log = get_logger()


def id_of(config: Config) -> SupervisorId:
    return ids.supervisor_id(config.supervisor.id or f"supervisor-{socket.gethostname()}")


class Supervisor:
    """A `HostDaemon` with the rooms that only a supervisor has."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._identity = HostIdentity(
            role=PeerRole.SUPERVISOR,
            id=id_of(config),
            address=config.supervisor.host or config.swarm.listen or config.api.listen,
            data_dir=Path(config.supervisor.data_dir),
        )
        self._started_at = time.time()
        self.metrics = Metrics(self._samples)
        self._host: HostDaemon | None = None
        self._jobs: JobRoom | None = None
        self._place: PlaceRoom | None = None
        self._left: LeftBehind
        self._watch: ZnodeWatch
        self._bundles: BundleRoom | None = None
        self._gateway: GatewayRoom | None = None

    async def start(self) -> None:
        host = await self.open_host()
        bundles = bundle_room(host)
        await bundles.keeper.open()
        self._bundles = bundles
        jobs = self._jobs = job_room(host, self._watch, bundles, self._left)
        gateway = self._gateway = gateway_room(host, self._watch, bundles.keeper)
        paths = ids_room(host, bundles.keeper)
        await host.runtime.start()
        place = self._place = place_room(host, self._watch, bundles.keeper, jobs.workers.assigning, self._started_at)
        rooms = (bundles, jobs, gateway, paths, place, border_room(host))
        await gateway.archives.open()
        await gateway.pushes.open()
        await gateway.doors.open(rooms, jobs.workers, place.place.failing)
        host.announce(gateway_url(host))
        start_loops(rooms, When.STARTED, host.background)
        log.info("supervisor started", gateway=gateway_url(host), swarm_port=host.swarm_port)

    async def open_host(self) -> HostDaemon:
        """Opens the parts that a supervisor shares with masters. The rooms are built on them."""
        config = self._config
        host = self._host = await HostDaemon.open(
            config, self._identity, self, lambda: bind_doors(config), self._read_left
        )
        self._watch = ZnodeWatch(host.zookeeper, SupervisorId(self._identity.id), config.client.masters)
        return host

    def _read_left(self, data_dir: Path) -> SessionId | None:
        """Reads the workers and the ZooKeeper session of the previous process. Returns that
        session."""
        self._left = read_left(data_dir, read_identity(self._config.zookeeper).host_user)
        return self._left.session

    async def failed(self) -> None:
        assert self._host is not None
        await self._host.background.failed()

    async def stop(self) -> None:
        host, workers = self._host, None if self._jobs is None else self._jobs.workers
        if host is None:
            return
        if not host.background.has_failed:  # one that fails is missed, like one that dies
            await host.agent.leave()
        leaves_workers = workers is not None and workers.busy
        if workers is not None and leaves_workers:
            await workers.prolong()
        await host.background.stop()
        if workers is not None:
            await workers.close()
        if self._place is not None:
            await self._place.place.leave(keep_record=leaves_workers)
        # The session stays open, so that the workers run on under their guardians until a new
        # process takes over.
        await host.close(keep_session=leaves_workers)
        log.info("supervisor stopped")

    def _samples(self) -> Iterator[Sample]:
        assert self._host is not None
        yield from host_samples(self._host)
        yield Sample("assigned_bundles", 0 if self._bundles is None else len(self._bundles.keeper.assigned()))
        yield Sample("archive_bytes", 0 if self._gateway is None else self._gateway.archives.held_bytes())

    # callbacks of HostDaemon

    def masters(self) -> list[str]:
        return self._watch.master_urls()

    def other_masters(self) -> list[str]:
        return self._watch.master_urls()

    def swarm_entries(self) -> list[SwarmEntry]:
        assert self._host is not None
        entries = self._host.runtime.swarm_entries()
        return entries if self._bundles is None else self._bundles.keeper.holds.named_in(entries)

    def hear_own(self, url: str, announce: SwarmAnnounce) -> SwarmAnswer | None:
        """Returns None: no master runs in this process."""
        return None

    def hear_picture(self, picture: SwarmPicture) -> None:
        assert self._host is not None
        for digest in picture.wanted:
            self._host.background.once(f"metafile of {digest}", self._offer_metafile(self._host, digest))
        if self._bundles is not None:
            self._bundles.keeper.hear_removed(picture.removed)
            self._bundles.keeper.hear_unknown(picture.unknown)

    async def _offer_metafile(self, host: HostDaemon, digest: Digest) -> None:
        raw = await host.runtime.store.raw_metafile(digest)
        if raw is not None:
            await host.links.offer_metafile(digest, raw)

    def peers_at_hand(self, digest: Digest) -> list[PeerAddress]:
        assert self._host is not None
        return self._host.runtime.known.peers(digest)

    def claims(self, digest: Digest) -> frozenset[KeepReason]:
        if self._bundles is None:
            return frozenset({KeepReason.ASSIGNMENT_UNKNOWN})
        return self._bundles.keeper.claims(digest)

    def make_room(self, size: int, usage: StoreUsage) -> None:
        if self._gateway is not None:
            self._gateway.archives.make_room(size, usage)

    def on_damage(self) -> None:
        if self._bundles is not None:
            self._bundles.keeper.poke()

    async def holders(self, bundle: BundleId) -> list[Holder]:
        assert self._host is not None
        return await self._host.links.holders(bundle)

    async def metafile_for_plugin(self, bundle: BundleId) -> bytes:
        assert self._host is not None
        return (await self._host.links.metafile(bundle)).raw


def run(config: Config) -> None:
    configure_logs(config.log, role="supervisor", id=id_of(config))
    log.info("starting", pid=os.getpid(), version=__version__)
    run_daemon(lambda: Supervisor(config), shutdown_secs=config.api.shutdown_secs)
