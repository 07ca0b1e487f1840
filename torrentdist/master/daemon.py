"""The master daemon: its parts, the order in which they start, and what they know of each other.

Always holds: ports and configuration are checked before anything is announced; the API answers before ZooKeeper does
(`/readyz` says what is missing); a master is registered only after it has looked through its store.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import time
from pathlib import Path

import structlog

from torrentdist import __version__
from torrentdist.cluster.records.mirror import Mirror
from torrentdist.cluster.records.registration import Registration
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.records.tree_backup import make_backup
from torrentdist.cluster.session import acl
from torrentdist.cluster.session.arrival import CONNECT_SECS, answered, enter, until_founded
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.distributor.loader import joins_uploads
from torrentdist.distributor.protocol import Holder
from torrentdist.host.hand_outs import HandOuts
from torrentdist.host.http.health_api import HealthApi
from torrentdist.host.http.operation import Router
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
from torrentdist.host.telemetry.metrics import Metrics
from torrentdist.http.connection_pool import Http
from torrentdist.master.bundles.bundle_operations import BundleOperations
from torrentdist.master.bundles.intake import Intake
from torrentdist.master.bundles.raw_metafiles import RawMetafiles
from torrentdist.master.bundles.replicator import Replicator
from torrentdist.master.changes.answered_requests import Requests
from torrentdist.master.changes.commit import LeaderChanges
from torrentdist.master.changes.request_trimming import RequestTrimmer
from torrentdist.master.http.bundle_api import BundleApi
from torrentdist.master.http.bundle_change_api import BundleChangeApi
from torrentdist.master.http.cluster_api import ClusterApi
from torrentdist.master.http.job_api import JobApi
from torrentdist.master.http.leadership_api import LeadershipApi
from torrentdist.master.http.master_app import master_app
from torrentdist.master.http.metafile_api import MetafileApi
from torrentdist.master.http.supervisor_api import SupervisorApi
from torrentdist.master.http.swarm_api import SwarmApi
from torrentdist.master.http.upload_api import UploadApi
from torrentdist.master.jobs.job_service import JobService
from torrentdist.master.leading.heir import heir
from torrentdist.master.leading.leader_transfer import LeaderTransfer
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.leading.roles import Roles
from torrentdist.master.leading.schema_upgrade import Upgrade
from torrentdist.master.master_health import MasterHealth
from torrentdist.master.master_metrics import master_samples
from torrentdist.master.own_role import OwnRole
from torrentdist.master.reads.saved_records import Records, SavingPace
from torrentdist.master.reads.zookeeper_reachability import ZooKeeperReachability
from torrentdist.master.swarm.newer_records import NewerRecords
from torrentdist.master.swarm.swarms import Swarms
from torrentdist.model import ids
from torrentdist.model.backup import encode_backup
from torrentdist.model.configuration.config import Config
from torrentdist.model.events import DaemonStarted
from torrentdist.model.ids import BundleId, Digest, MasterId, PeerId
from torrentdist.model.records import SCHEMA, MasterRecord
from torrentdist.model.wire.swarm_messages import PeerRole
from torrentdist.swarm.agent import SwarmAgent

log = structlog.get_logger(__name__)

GOODBYE_SECS = 3.0


def id_of(config: Config) -> MasterId:
    if config.master.id:
        return ids.master_id(config.master.id)
    return ids.master_id(f"master-{socket.gethostname()}-{config.api.port}")


class Master:
    def __init__(self, config: Config, *, repair_acls: bool) -> None:
        self.config = config
        self.id = id_of(config)
        self.started_at = time.time()
        self.metrics = Metrics(lambda: master_samples(self.runtime, self.mirror, self.leadership, self.swarms))
        self._repair_acls = repair_acls
        self._token = token_of(config)
        self._background = Background()
        self._closing = contextlib.AsyncExitStack()
        self._zookeeper = ZooKeeper(config.zookeeper)
        self.sight = ZooKeeperReachability(self._zookeeper)
        self.mirror = Mirror(self._zookeeper)
        self.runtime: HostRuntime
        self._registration: Registration | None = None
        self._agent: SwarmAgent | None = None

    # life

    async def start(self) -> None:
        # The port first: nothing else has happened yet when it is taken.
        sock = bind_socket(self.config.api.listen, self.config.api.port, what="the API")
        self._port = int(sock.getsockname()[1])
        self._closing.callback(sock.close)
        self.runtime = await open_runtime(
            self.config,
            self.config.master.data_dir,
            node=self.id,
            role="master",
            server_now=lambda: self._zookeeper.server_now(),
        )
        self._closing.push_async_callback(asyncio.to_thread, self.runtime.store.close)
        self._closing.callback(self.runtime.events.close)
        self._closing.push_async_callback(self.runtime.stop)
        self.hand_outs = HandOuts(self.runtime)
        self._closing.push_async_callback(self.hand_outs.close)
        http = http_client(self._token)
        self._closing.push_async_callback(http.aclose)
        self.links = MasterLinks(http, self._other_masters, self.id)
        self.raw_metafiles = RawMetafiles(self.runtime.store, self.links, self.mirror)
        await self._load_records(http)
        self.health = MasterHealth(self._zookeeper, self.records, self._is_registered)
        self.swarms = Swarms(
            PeerId(self.id),
            self.runtime,
            self.snapshot,
            lambda: self.mirror.connected,
            own_host=self.host(),
            config=self.config.swarm,
        )
        self.newer = NewerRecords(self.mirror, self.swarms.directory.lists)
        self.leadership = self._make_leadership()
        own = OwnRole(self.id, self.url(), self.health, self.leadership, self.records, self.runtime.store)
        self.roles = Roles(http, self.snapshot, own.view)
        changes = self.changes = LeaderChanges(self.mirror, self.leadership, Requests(self._zookeeper))
        self.operations = BundleOperations(
            changes, self.leadership.default_min_replicas, lambda: self.server_now() or time.time()
        )
        self.intake = Intake(self.runtime, self.mirror, self.operations, changes)
        self.jobs = JobService(
            changes, self.mirror, self.leadership, self._zookeeper, self.sight, self.hand_outs, self.config
        )
        agent = self._agent = self._make_agent(http)
        self._load_plugin()
        await self.runtime.start()
        await self._serve(sock)
        self._closing.callback(withdraw_address, self.runtime.store.data_dir)
        self._spawn_loops(agent)
        log.info("master started", url=self.url(), swarm_port=self.runtime.engine.port)

    async def _serve(self, sock: socket.socket) -> None:
        app = master_app(self._routers(), self.mirror, self.records, self.leadership, self._token)
        web = WebServer(app, sock)
        await web.start()
        self._closing.push_async_callback(web.stop)

    def _routers(self) -> list[Router]:
        """The routers of the HTTP API, each with the parts that it calls."""
        max_body = self.config.api.max_request_bytes
        transfer = LeaderTransfer(self.id, self.leadership, self.mirror, self.roles, self.changes)
        return [
            HealthApi(self.health.failing, self.metrics),
            LeadershipApi(self.leadership, self.roles, self.records, transfer),
            ClusterApi(self.records, self.leadership, self.jobs, self.swarms, self._backup),
            BundleApi(self.records, self.mirror, self.swarms, self.runtime, self.hand_outs),
            BundleChangeApi(self.operations, self.leadership, self.jobs, self.swarms, max_body),
            UploadApi(self.leadership, self.intake, max_body),
            MetafileApi(self.records, self.runtime, self.swarms, self.raw_metafiles, self.replicator.retry, max_body),
            JobApi(self.jobs, self.leadership, self.records),
            SupervisorApi(self.jobs, self.leadership),
            SwarmApi(self.newer, self.swarms),
        ]

    def _spawn_loops(self, agent: SwarmAgent) -> None:
        started = DaemonStarted(host=self.host(), port=self.runtime.engine.port, version=__version__)
        self.runtime.events.emit(started)
        address = DaemonAddress(role="master", id=self.id, url=self.url(), swarm_port=self.runtime.engine.port)
        self._background.once("address", announced(self.runtime.store.data_dir, address))
        self._background.spawn("events", self.runtime.events.run())
        self._background.spawn("elections", self.leadership.elections.run())
        self._background.spawn("directory", self.swarms.run())
        self._background.spawn("agent", agent.run())
        self._background.spawn("zookeeper", self._join_cluster())
        self._background.spawn("records", self.records.run(self.leadership.is_leader))
        self.hand_outs.on_damage = self.replicator.poke
        self._background.spawn("scrub", scrub(self.runtime, self.config.store.scrub_secs, self.replicator.poke))

    async def _load_records(self, http: Http) -> None:
        master = self.config.master
        pace = SavingPace(master.snapshot_changes, master.snapshot_secs, random.random())
        self.records = Records(self.id, Path(master.data_dir), self._zookeeper, self.mirror, http, pace)
        await self.records.load()

    def _make_leadership(self) -> Leadership:
        return Leadership(
            self.id,
            self._zookeeper,
            self.mirror,
            self.config.replication,
            heard=self._uploads,
            published=self.runtime.store.published,
            seen_elsewhere=self.swarms.seen_elsewhere,
            requests=RequestTrimmer(self._zookeeper, self.config.requests.keep_secs),
            upgrade=Upgrade(self._zookeeper, self.config.master.upgrade_after_secs),
            tell=self.runtime.events.emit,
        )

    def _uploads(self, digest: Digest) -> bool:
        """Whether somebody is about to complete this upload."""
        within = self.config.replication.abandon_secs
        return self.swarms.may_complete(digest) or self.intake.is_active(digest, within)

    def _make_agent(self, http: Http) -> SwarmAgent:
        agent = SwarmAgent(
            peer=PeerId(self.id),
            role=PeerRole.MASTER,
            host=self.host(),
            http=http,
            masters=self._all_masters,
            port=lambda: self.runtime.engine.port,
            swarms=self.swarms.own_entries,
            on_picture=self.runtime.apply_picture,
        )
        self.runtime.poke = agent.poke
        return agent

    def _load_plugin(self) -> None:
        services = LoopServices(
            self.runtime,
            asyncio.get_running_loop(),
            holders=self._holders,
            raw_metafile=self.raw_metafiles.of_bundle,
            token=self._token,
        )
        self._closing.callback(services.close)
        plugin = open_plugin(self.config, self.runtime, services)
        self._closing.callback(plugin.close)
        self.replicator = Replicator(
            self.id,
            self.runtime,
            self._zookeeper,
            self.mirror,
            self.leadership,
            self.intake,
            self.links,
            self.config.replication,
            joins_uploads=joins_uploads(plugin),
            want_metafile=self.swarms.want_metafile,
        )

    async def failed(self) -> None:
        await self._background.failed()

    async def stop(self) -> None:
        await self._hand_over()
        if self._agent is not None:
            await self._agent.leave()
        await self._background.stop()
        if self._registration is not None:
            await self._say_goodbye(self._registration)
        await self.mirror.close()
        await self._closing.aclose()
        await self._zookeeper.close()
        log.info("master stopped")

    async def _hand_over(self) -> None:
        """A leader that stops takes on nothing from now on: its office goes to a standby that can lead at once."""
        if self._registration is None or not self.leadership.is_leader():
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_SECS):
                await self.leadership.leave("stopped", heir(self.snapshot().election, await self.roles.all()))

    async def _say_goodbye(self, registration: Registration) -> None:
        """So that the others needn't wait for the session to end; without ZooKeeper there is nobody to tell."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_SECS):
                await self.leadership.leave("stopped")
                await self.records.save()
                await registration.close()

    async def _join_cluster(self) -> None:
        """Connect, check the ACLs, mirror, wait for a cluster, register, queue for leadership: each only after the one
        before."""
        await enter(self._zookeeper)
        if self._repair_acls:
            mended = await answered(self._zookeeper, lambda: acl.repair_tree(self._zookeeper))
            log.info("ACLs repaired", znodes=mended)
        else:
            await answered(self._zookeeper, lambda: acl.check_tree(self._zookeeper))
        await answered(self._zookeeper, lambda: self.mirror.start(CONNECT_SECS))
        self._background.spawn("absences", self.leadership.watch_absences())
        self._background.spawn("replication", self.replicator.run())
        await until_founded(self.mirror)
        self._registration = Registration(self._zookeeper, self._record())
        await self._registration.start()
        self._background.spawn("jobs", self.jobs.run())
        await self.leadership.run()

    # what others know of this master

    def host(self) -> str:
        return self.config.master.host or self.config.api.listen

    def url(self) -> str:
        host = self.host()
        return f"http://[{host}]:{self._port}" if ":" in host else f"http://{host}:{self._port}"

    def _record(self) -> MasterRecord:
        return MasterRecord(
            id=self.id,
            host=self.host(),
            port=self._port,
            url=self.url(),
            swarm_port=self.runtime.engine.port,
            store=self.runtime.store.id,
            version=__version__,
            started_at=self.started_at,
            speaks=SCHEMA,
        )

    def _is_registered(self) -> bool:
        return self._registration is not None and self._registration.registered

    async def _backup(self) -> bytes:
        return await asyncio.to_thread(encode_backup, await make_backup(self._zookeeper))

    # what its parts ask

    def snapshot(self) -> ClusterSnapshot:
        """What to answer by; what is changed is decided on the mirror alone."""
        return self.records.snapshot()

    def server_now(self) -> float | None:
        """ZooKeeper's clock, which alone tells ages: hosts' clocks differ. None: not known yet."""
        return self._zookeeper.server_now()

    def _all_masters(self) -> list[str]:
        return [m.url for m in self.snapshot().masters.values()] or [self.url()]

    def _other_masters(self) -> list[str]:
        return [m.url for id_, m in self.snapshot().masters.items() if id_ != self.id]

    async def _holders(self, bundle: BundleId) -> list[Holder]:
        snapshot = self.mirror.snapshot
        return [Holder(id_, snapshot.masters[id_].url) for id_ in sorted(snapshot.holders(bundle))]


def run(config: Config, *, repair_acls: bool = False) -> None:
    configure_logs(config.log, role="master", id=id_of(config))
    log.info("starting", pid=os.getpid(), version=__version__)
    run_daemon(lambda: Master(config, repair_acls=repair_acls), shutdown_secs=config.api.shutdown_secs)
