"""The supervisor daemon: keeps this host's bundles, takes part in swarms, serves the loopback
gateway.

Always holds: the data path needs no master and no ZooKeeper; while both are away, what is being
fetched goes on, what is here is served and seeded, and the last assignment stands.
Longer than most files: it names every part of a supervisor once.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from torrentdist import __version__
from torrentdist.bundle.store.store import KeepReason, StoreUsage
from torrentdist.cluster.records.registration import OtherCluster, Registration
from torrentdist.cluster.session.arrival import enter
from torrentdist.cluster.session.znode_operations import SessionId, SessionState
from torrentdist.distributor.protocol import Holder
from torrentdist.host.http.health_api import HealthApi
from torrentdist.host.http.operation import Router
from torrentdist.host.http.socket_activation import inherited_socket
from torrentdist.host.http.web import bind_socket
from torrentdist.host.process.background_loops import Background
from torrentdist.host.process.daemon_process import run_daemon
from torrentdist.host.process.host_daemon import HostDaemon, HostIdentity
from torrentdist.host.process.logs import configure_logs
from torrentdist.host.telemetry.host_metrics import host_samples
from torrentdist.host.telemetry.metrics import Metrics, Sample
from torrentdist.log import get_logger
from torrentdist.model import ids
from torrentdist.model.configuration.config import Config
from torrentdist.model.errors import NO_CLUSTER, TorrentdistError
from torrentdist.model.ids import BundleId, Digest, SupervisorId
from torrentdist.model.records import SCHEMA, SupervisorRecord
from torrentdist.model.wire.swarm_messages import PeerAddress, PeerRole, SwarmEntry
from torrentdist.supervisor.bundles.keeper import Keeper
from torrentdist.supervisor.exclusivity.isolation import Isolation
from torrentdist.supervisor.gateway.archive_cache import ArchiveCache
from torrentdist.supervisor.gateway.bundle_server import BundleServer
from torrentdist.supervisor.gateway.gateway import gateway_app
from torrentdist.supervisor.gateway.host_bundle_api import HostBundleApi
from torrentdist.supervisor.gateway.output_api import OutputApi
from torrentdist.supervisor.gateway.peer_api import outside_app
from torrentdist.supervisor.gateway.worker_api import WorkerApi
from torrentdist.supervisor.jobs.host_workers import HostWorkers
from torrentdist.supervisor.jobs.local_state import read_left
from torrentdist.supervisor.jobs.reporting import Reporting, job_facts
from torrentdist.supervisor.jobs.worker_services import WorkerServices
from torrentdist.supervisor.znode_watch import LOOK_SECS, Lookout
from torrentdist.swarm.swarm_picture import SwarmPicture

log = get_logger()


def id_of(config: Config) -> SupervisorId:
    return ids.supervisor_id(config.supervisor.id or f"supervisor-{socket.gethostname()}")


class Supervisor:
    """One `HostDaemon`, and what makes it a supervisor."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.id = id_of(config)
        self.started_at = time.time()
        self.metrics = Metrics(self._samples)
        self.jobs: HostWorkers | None = None
        self._host: HostDaemon | None = None
        self._registration: Registration | None = None
        self._bundles: frozenset[BundleId] = frozenset()
        """The bundles that the assignment names, besides those that its workers need."""

    async def start(self) -> None:
        data_dir = Path(self.config.supervisor.data_dir)
        identity = HostIdentity(PeerRole.SUPERVISOR, self.id, self._address(), data_dir)
        host = self._host = await HostDaemon.open(self.config, identity, self, self._bind, self._read_left)
        self._port, self._outside_port = (int(sock.getsockname()[1]) for sock in host.sockets)
        self.runtime, self.links, self._zookeeper = host.runtime, host.links, host.zookeeper
        self.lookout = Lookout(host.zookeeper, self.id)
        self.keeper = Keeper(
            host.runtime,
            host.hand_outs,
            host.links,
            joins_uploads=host.joins_uploads,
            seed_secs=self.config.supervisor.seed_secs,
        )
        store = host.runtime.store
        self._archives = ArchiveCache(store.data_dir / "archives", store.measure)
        jobs = self.jobs = self._make_jobs(host)
        self._keep()
        await host.runtime.start()
        await self._archives.open()
        host.close_later(self._archives.close)
        self.bundles = BundleServer(host.runtime, self.keeper, self._archives, self.config.supervisor.read_stall_secs)
        await self._open_doors(host, jobs)
        host.announce(self.gateway_url())
        self._spawn_loops(
            host.background, jobs, Reporting(host.http, self.id, self.masters, jobs, host.runtime.events.emit)
        )
        log.info("supervisor started", gateway=self.gateway_url(), swarm_port=host.swarm_port)

    def _bind(self) -> list[socket.socket]:
        """Takes the gateway's port and the one for other hosts."""
        gateway = inherited_socket(os.environ, what="the gateway") or bind_socket(
            "127.0.0.1", self.config.supervisor.gateway_port, what="the gateway"
        )
        try:
            outside = bind_socket(self.config.api.listen, self.config.supervisor.port, what="other hosts")
        except TorrentdistError:
            gateway.close()
            raise
        return [gateway, outside]

    def _read_left(self, data_dir: Path) -> SessionId | None:
        """Reads what the process before left: its workers, and the session that they hang on."""
        self._left = read_left(data_dir)
        return None if self._left.seat is None else self._left.seat.session

    async def _open_doors(self, host: HostDaemon, jobs: HostWorkers) -> None:
        """Opens the gateway, and the port for other hosts."""
        gateway, outside = host.sockets
        output = OutputApi(jobs.homes, jobs.placed)
        routers: list[Router] = [
            HealthApi(self.failing_checks, self.metrics),
            HostBundleApi(host.runtime, self.keeper),
            self.bundles,
            WorkerApi(jobs),
            output,
        ]
        app = gateway_app(routers, self.config.supervisor.gateway_users, lambda client: self._web.cut(client))
        self._web = await host.serve(app, gateway)
        await host.serve(outside_app(output, host.runtime.fetches.raw_metafile, host.token), outside)

    def _make_jobs(self, host: HostDaemon) -> HostWorkers:
        """The workers of this host, with those that the process before left."""
        services = WorkerServices(
            store=host.runtime.store,
            facts=lambda job: job_facts(host.http, self.masters(), job),
            checked=self.keeper.checked,
            trouble=self._trouble,
            needs_changed=self._keep,
            lease_sent=self.lookout.look,
            gateway=self.gateway_url,
            host=self._address(),
        )
        isolation = Isolation(host.http, self.id, self.lookout)
        jobs = HostWorkers(host.zookeeper, self.config.supervisor, self._left, isolation, services)
        self.lookout.on_look.append(jobs.prolonged)
        return jobs

    def _spawn_loops(self, background: Background, jobs: HostWorkers, reporting: Reporting) -> None:
        for name, loop in jobs.loops():
            background.spawn(name, loop)
        background.spawn("reporting", reporting.run())
        background.spawn("keeper", self.keeper.run())
        background.spawn("zookeeper", self._follow_zookeeper(background))

    async def failed(self) -> None:
        assert self._host is not None
        await self._host.background.failed()

    async def stop(self) -> None:
        host = self._host
        if host is None:
            return
        await host.agent.leave()
        leaves_workers = self.jobs is not None and self.jobs.busy
        if self.jobs is not None and leaves_workers:
            await self.jobs.prolong()
        await host.background.stop()
        if self.jobs is not None:
            await self.jobs.close()
        if self._registration is not None:
            await (self._registration.abandon() if leaves_workers else self._registration.close())
        await self.lookout.close()
        # Workers run on under their guardians for as long as the session lasts: time enough for a
        # new process.
        await host.close(keep_session=leaves_workers)
        log.info("supervisor stopped")

    # what others know of this host

    def gateway_url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def url(self) -> str:
        """Where other hosts reach it."""
        host = self._address()
        return f"http://[{host}]:{self._outside_port}" if ":" in host else f"http://{host}:{self._outside_port}"

    def _address(self) -> str:
        return self.config.supervisor.host or self.config.swarm.listen or self.config.api.listen

    def _record(self) -> SupervisorRecord:
        return SupervisorRecord(
            id=self.id,
            host=self._address(),
            gateway=self.gateway_url(),
            swarm_port=self.runtime.engine.port,
            store=self.runtime.store.id,
            version=__version__,
            slots=self.config.supervisor.slots,
            labels=self.config.supervisor.labels,
            started_at=self.started_at,
            speaks=SCHEMA,
            url=self.url(),
        )

    def failing_checks(self) -> dict[str, str]:
        failing = {}
        if self._zookeeper.state is not SessionState.CONNECTED:
            failing["zookeeper"] = f"the session is {self._zookeeper.state}"
        if self.lookout.lacks_cluster():
            failing["cluster"] = NO_CLUSTER
        if self._masters_answering() == 0:
            failing["masters"] = "no master answers"
        return failing

    def _masters_answering(self) -> int:
        return self._host.agent.picture.answered if self._host is not None else 0

    def _samples(self) -> Iterator[Sample]:
        yield from host_samples(self.runtime)
        yield Sample("assigned_bundles", "Bundles this host is told to keep", len(self.keeper.assigned()))
        yield Sample("masters_answering", "Masters that answered the last announce", self._masters_answering())

    # what the host asks

    def masters(self) -> list[str]:
        """The masters that ZooKeeper knows, and those of the configuration."""
        return list(dict.fromkeys([*self.lookout.masters().values(), *self.config.client.masters]))

    def other_masters(self) -> list[str]:
        return self.masters()

    def swarm_entries(self) -> list[SwarmEntry]:
        return self.runtime.swarm_entries()

    def hear_picture(self, picture: SwarmPicture) -> None:
        assert self._host is not None
        for digest in picture.wanted:
            self._host.background.once(f"metafile of {digest}", self._offer_metafile(digest))
        self.keeper.hear_removed(frozenset(d for d, swarm in picture.swarms.items() if swarm.removed))

    async def _offer_metafile(self, digest: Digest) -> None:
        raw = await self.runtime.store.raw_metafile(digest)
        if raw is not None:
            await self.links.offer_metafile(digest, raw)

    def peers_at_hand(self, digest: Digest) -> list[PeerAddress]:
        return self.runtime.known.peers(digest)

    def claims(self, digest: Digest) -> frozenset[KeepReason]:
        return self.keeper.claims(digest)

    def make_room(self, size: int, usage: StoreUsage) -> None:
        self._archives.make_room(size, usage)

    def on_damage(self) -> None:
        self.keeper.poke()

    async def holders(self, bundle: BundleId) -> list[Holder]:
        return await self.links.holders(bundle)

    async def metafile_for_plugin(self, bundle: BundleId) -> bytes:
        return (await self.links.metafile(bundle)).raw

    # bundles

    def _trouble(self, bundle: BundleId) -> str:
        error = self.keeper.error(bundle)
        return "" if error is None else error.message

    def _keep(self) -> None:
        """Has the keeper keep what the assignment names and what its workers need."""
        bundles = self._bundles if self.jobs is None else self._bundles | self.jobs.needs()
        left = self.keeper.assigned() - bundles
        self.keeper.assign(bundles)
        if left and self._host is not None:
            self._host.agent.poke()  # maybe because they were removed: the directory says so

    # ZooKeeper: register, and follow the assignment

    async def _follow_zookeeper(self, background: Background) -> None:
        """Takes part in the cluster that is there, and in one that an operator puts in its place,
        through every outage."""
        await enter(self._zookeeper)
        background.spawn("lookout", self.lookout.run())
        while True:
            cluster = await self.lookout.founded()
            if self.jobs is not None:
                await self.jobs.assigning.belong_to(cluster)
            await self._take_part(cluster)

    async def _take_part(self, cluster: str) -> None:
        """Stay registered and follow the assignment, until ZooKeeper holds another cluster than
        this one."""
        registration = Registration(self._zookeeper, self._record(), look_secs=LOOK_SECS, cluster=cluster)
        self._registration = registration
        registration.on_change.append(lambda registered: None if registered else self.lookout.look_around())
        try:
            await registration.start()
            await self._follow_assignment(registration, cluster)
        except OtherCluster:
            self.lookout.look_around()
        await registration.close()

    async def _follow_assignment(self, registration: Registration, cluster: str) -> None:
        before = None
        while self.lookout.cluster() in (cluster, None):
            version, assignment = self.lookout.version, self.lookout.assignment()
            if assignment is not None:  # none is no order to let go of anything: a wiped tree looks the same
                self._bundles = frozenset(assignment.bundles)
                if self.jobs is not None:
                    await self.jobs.assigning.assign(assignment)
                self._keep()
            if assignment is None and before is not None:  # it is all that is watched: more may be gone
                self.lookout.look_around()
                registration.look_again()
            before = assignment
            await self.lookout.changed(version)


def run(config: Config) -> None:
    configure_logs(config.log, role="supervisor", id=id_of(config))
    log.info("starting", pid=os.getpid(), version=__version__)
    run_daemon(lambda: Supervisor(config), shutdown_secs=config.api.shutdown_secs)
