"""The supervisor daemon: keeps this host's bundles, takes part in swarms, serves the loopback gateway.

Always holds: the data path needs no master and no ZooKeeper; while both are away, what is being fetched goes on, what
is here is served and seeded, and the last assignment stands.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Iterator

import structlog

from torrentdist import __version__
from torrentdist.cluster.records.registration import OtherCluster, Registration
from torrentdist.cluster.session.arrival import enter
from torrentdist.cluster.session.znode_operations import SessionId, SessionState
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.distributor.loader import joins_uploads
from torrentdist.host.hand_outs import HandOuts
from torrentdist.host.http.health_api import HealthApi
from torrentdist.host.http.operation import Router
from torrentdist.host.http.socket_activation import inherited_socket
from torrentdist.host.http.web import WebServer, bind_socket
from torrentdist.host.master_links import MasterLinks, http_client
from torrentdist.host.plugin_services import LoopServices
from torrentdist.host.process.background_loops import Background
from torrentdist.host.process.daemon_address import DaemonAddress, announced, withdraw_address
from torrentdist.host.process.daemon_process import run_daemon
from torrentdist.host.process.logs import configure_logs
from torrentdist.host.process.opening import open_plugin, open_runtime, token_of
from torrentdist.host.runtime import HostRuntime
from torrentdist.host.scrub import scrub
from torrentdist.host.telemetry.host_metrics import host_samples
from torrentdist.host.telemetry.metrics import Metrics, Sample
from torrentdist.http.connection_pool import Http
from torrentdist.model import ids
from torrentdist.model.configuration.config import Config
from torrentdist.model.errors import NO_CLUSTER
from torrentdist.model.events import DaemonStarted
from torrentdist.model.ids import BundleId, Digest, PeerId, SupervisorId
from torrentdist.model.records import SCHEMA, SupervisorRecord
from torrentdist.model.wire.swarm_messages import PeerRole
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
from torrentdist.swarm.agent import SwarmAgent, SwarmPicture

log = structlog.get_logger(__name__)


def id_of(config: Config) -> SupervisorId:
    return ids.supervisor_id(config.supervisor.id or f"supervisor-{socket.gethostname()}")


class Supervisor:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.id = id_of(config)
        self.started_at = time.time()
        self.metrics = Metrics(self._samples)
        self._token = token_of(config)
        self._background = Background()
        self._closing = contextlib.AsyncExitStack()
        self.runtime: HostRuntime
        self.keeper: Keeper
        self.jobs: HostWorkers | None = None
        self._registration: Registration | None = None
        self._agent: SwarmAgent | None = None
        self._bundles: frozenset[BundleId] = frozenset()
        """What the assignment names to be kept, besides what its workers need."""
        self._open_zookeeper(None)

    def _open_zookeeper(self, resume: SessionId | None) -> None:
        self._zookeeper = ZooKeeper(self.config.zookeeper, resume)
        self.lookout = Lookout(self._zookeeper, self.id)

    async def start(self) -> None:
        # The port first: nothing else has happened yet when it is taken.
        sock = inherited_socket(os.environ, what="the gateway") or bind_socket(
            "127.0.0.1", self.config.supervisor.gateway_port, what="the gateway"
        )
        self._closing.callback(sock.close)
        outside = self._bind_outside()
        self.runtime = await open_runtime(
            self.config,
            self.config.supervisor.data_dir,
            node=self.id,
            role="supervisor",
            server_now=lambda: self._zookeeper.server_now(),
        )
        self._closing.push_async_callback(asyncio.to_thread, self.runtime.store.close)
        self._closing.callback(self.runtime.events.close)
        self._closing.push_async_callback(self.runtime.stop)
        http = http_client(self._token)
        self._closing.push_async_callback(http.aclose)
        self.links = MasterLinks(http, self._masters, self.id)
        self._load_plugin()
        jobs = self.jobs = await self._open_jobs(http)
        self._keep()
        agent = SwarmAgent(
            peer=PeerId(self.id),
            role=PeerRole.SUPERVISOR,
            host=self._host(),
            http=http,
            masters=self._masters,
            port=lambda: self.runtime.engine.port,
            swarms=self.runtime.swarm_entries,
            on_picture=self._on_picture,
        )
        self._agent = agent
        await self.runtime.start()
        self.runtime.poke = agent.poke
        await self._open_bundles()
        await self._open_doors(jobs, sock, outside)
        self._closing.callback(withdraw_address, self.runtime.store.data_dir)
        self._spawn_loops(agent, jobs, Reporting(http, self.id, self._masters, jobs, self.runtime.events.emit))
        log.info("supervisor started", gateway=self.gateway_url(), swarm_port=self.runtime.engine.port)

    def _bind_outside(self) -> socket.socket:
        sock = bind_socket(self.config.api.listen, self.config.supervisor.port, what="other hosts")
        self._closing.callback(sock.close)
        return sock

    async def _open_doors(self, jobs: HostWorkers, gateway: socket.socket, outside: socket.socket) -> None:
        """The gateway, and what other hosts may ask."""
        output = OutputApi(jobs.homes, jobs.placed)
        routers: list[Router] = [
            HealthApi(self.failing_checks, self.metrics),
            HostBundleApi(self.runtime, self.keeper),
            self.bundles,
            WorkerApi(jobs),
            output,
        ]
        users = self.config.supervisor.gateway_users
        self._web = WebServer(gateway_app(routers, users, lambda client: self._web.cut(client)), gateway)
        self._outside = WebServer(outside_app(output, self.runtime.raw_metafile, self._token), outside)
        for web in (self._web, self._outside):
            await web.start()
            self._closing.push_async_callback(web.stop)

    async def _open_jobs(self, http: Http) -> HostWorkers:
        """With the session and the workers of the process before us, if it left any."""
        left = await asyncio.to_thread(read_left, self.runtime.store.data_dir)
        self._open_zookeeper(None if left.seat is None else left.seat.session)
        services = WorkerServices(
            store=self.runtime.store,
            facts=lambda job: job_facts(http, self._masters(), job),
            checked=self.keeper.checked,
            trouble=self._trouble,
            needs_changed=self._keep,
            lease_sent=self.lookout.look,
            gateway=self.gateway_url,
            host=self._host(),
        )
        isolation = Isolation(http, self.id, self.lookout)
        jobs = HostWorkers(self._zookeeper, self.config.supervisor, left, isolation, services)
        self.lookout.on_look = jobs.prolonged
        return jobs

    async def _open_bundles(self) -> None:
        store = self.runtime.store
        archives = ArchiveCache(store.data_dir / "archives", store.usage)
        await archives.open()
        self._closing.push_async_callback(archives.close)
        store.before_reserving = archives.make_room
        self.bundles = BundleServer(self.runtime, self.keeper, archives, self.config.supervisor.read_stall_secs)

    def _spawn_loops(self, agent: SwarmAgent, jobs: HostWorkers, reporting: Reporting) -> None:
        started = DaemonStarted(host=self._host(), port=self.runtime.engine.port, version=__version__)
        self.runtime.events.emit(started)
        port = self.runtime.engine.port
        address = DaemonAddress(role="supervisor", id=self.id, url=self.gateway_url(), swarm_port=port)
        self._background.once("address", announced(self.runtime.store.data_dir, address))
        self._background.spawn("events", self.runtime.events.run())
        for name, loop in jobs.loops():
            self._background.spawn(name, loop)
        self._background.spawn("reporting", reporting.run())
        self._background.spawn("agent", agent.run())
        self._background.spawn("keeper", self.keeper.run())
        self._background.spawn("zookeeper", self._follow_zookeeper())
        self._background.spawn("scrub", scrub(self.runtime, self.config.store.scrub_secs, self.keeper.poke))

    def _load_plugin(self) -> None:
        services = LoopServices(
            self.runtime,
            asyncio.get_running_loop(),
            holders=self.links.holders,
            raw_metafile=self._raw_metafile,
            token=self._token,
        )
        self._closing.callback(services.close)
        plugin = open_plugin(self.config, self.runtime, services)
        self._closing.callback(plugin.close)
        hand_outs = HandOuts(self.runtime)
        self._closing.push_async_callback(hand_outs.close)
        self.keeper = Keeper(
            self.runtime,
            hand_outs,
            self.links,
            joins_uploads=joins_uploads(plugin),
            seed_secs=self.config.supervisor.seed_secs,
        )
        self.runtime.claims = self.keeper.claims

    async def failed(self) -> None:
        await self._background.failed()

    async def stop(self) -> None:
        if self._agent is not None:
            await self._agent.leave()
        leaves_workers = self.jobs is not None and self.jobs.busy
        if self.jobs is not None and leaves_workers:
            await self.jobs.prolong()
        await self._background.stop()
        if self.jobs is not None:
            await self.jobs.close()
        if self._registration is not None:
            await (self._registration.abandon() if leaves_workers else self._registration.close())
        await self.lookout.close()
        await self._closing.aclose()
        # Workers run on under their guardians for as long as the session lasts: time enough for a new process.
        await (self._zookeeper.abandon() if leaves_workers else self._zookeeper.close())
        log.info("supervisor stopped")

    # what others know of this host

    def gateway_url(self) -> str:
        return f"http://127.0.0.1:{self._web.port}"

    def url(self) -> str:
        """Where other hosts reach it."""
        host = self._host()
        return f"http://[{host}]:{self._outside.port}" if ":" in host else f"http://{host}:{self._outside.port}"

    def _host(self) -> str:
        return self.config.supervisor.host or self.config.swarm.listen or self.config.api.listen

    def _record(self) -> SupervisorRecord:
        return SupervisorRecord(
            id=self.id,
            host=self._host(),
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
        return self._agent.picture.answered if self._agent is not None else 0

    def _samples(self) -> Iterator[Sample]:
        yield from host_samples(self.runtime)
        yield Sample("assigned_bundles", "Bundles this host is told to keep", len(self.keeper.assigned()))
        yield Sample("masters_answering", "Masters that answered the last announce", self._masters_answering())

    # what it hears

    def _on_picture(self, picture: SwarmPicture) -> None:
        self.runtime.apply_picture(picture)
        for digest in picture.wanted:
            self._background.once(f"metafile of {digest}", self._offer_metafile(digest))
        self.keeper.hear_removed(frozenset(d for d, swarm in picture.swarms.items() if swarm.removed))

    async def _offer_metafile(self, digest: Digest) -> None:
        raw = await asyncio.to_thread(self.runtime.store.raw_metafile, digest)
        if raw is not None:
            await self.links.offer_metafile(digest, raw)

    async def _raw_metafile(self, bundle: BundleId) -> bytes:
        return (await self.links.metafile(bundle)).raw

    def _masters(self) -> list[str]:
        """Those of the configuration, and those that ZooKeeper knows."""
        return list(dict.fromkeys([*self.lookout.masters().values(), *self.config.client.masters]))

    def _trouble(self, bundle: BundleId) -> str:
        error = self.keeper.error(bundle)
        return "" if error is None else error.message

    def _keep(self) -> None:
        """What the assignment names, and what its workers need."""
        bundles = self._bundles if self.jobs is None else self._bundles | self.jobs.needs()
        left = self.keeper.assigned() - bundles
        self.keeper.assign(bundles)
        if left and self._agent is not None:
            self._agent.poke()  # maybe because they were removed: the directory says so

    # ZooKeeper: register, and follow the assignment

    async def _follow_zookeeper(self) -> None:
        """Take part in the cluster that is there, and in the one that an operator puts in its place, through every
        outage."""
        await enter(self._zookeeper)
        self._background.spawn("lookout", self.lookout.run())
        while True:
            cluster = await self.lookout.founded()
            if self.jobs is not None:
                await self.jobs.assigning.belong_to(cluster)
            await self._take_part(cluster)

    async def _take_part(self, cluster: str) -> None:
        """Stay registered and follow the assignment, until ZooKeeper holds another cluster than this one."""
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
