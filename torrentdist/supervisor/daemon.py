"""The supervisor daemon: keeps this host's bundles, exchanges them with other hosts, runs workers,
and serves the loopback gateway.

Always: bundles need neither a master nor ZooKeeper. While both are away, running downloads finish,
bundles here are served and seeded, and the last assignment stands.
Longer than most files: it wires all parts of a supervisor together.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from torrentdist import __version__
from torrentdist.bundle.store.store import KeepReason, StoreUsage
from torrentdist.cluster.records.registration import OtherCluster, Registration
from torrentdist.cluster.session.acl import read_identity
from torrentdist.cluster.session.arrival import enter
from torrentdist.cluster.session.znode_operations import SessionId, SessionState
from torrentdist.distributor.protocol import Holder
from torrentdist.host.certificates.revocations import Revocations
from torrentdist.host.http.health_api import HealthApi
from torrentdist.host.http.operation import Router
from torrentdist.host.http.socket_activation import inherited_socket
from torrentdist.host.http.web import bind_socket
from torrentdist.host.process.background_loops import Background
from torrentdist.host.process.daemon_process import run_daemon
from torrentdist.host.process.host_daemon import HostDaemon, HostIdentity
from torrentdist.host.process.logs import configure_logs
from torrentdist.host.telemetry.audit_log import AuditLog
from torrentdist.host.telemetry.host_metrics import host_samples
from torrentdist.host.telemetry.metrics import Metrics, Sample
from torrentdist.http.asking_in_turn import ask_leader
from torrentdist.launcher.run.run_lease import NEVER
from torrentdist.log import get_logger
from torrentdist.model import ids
from torrentdist.model.access.host_messages import PlaceBody, PlaceView
from torrentdist.model.configuration.config import Config
from torrentdist.model.errors import NO_CLUSTER, TorrentdistError
from torrentdist.model.ids import BundleId, Digest, SupervisorId
from torrentdist.model.policies.bundle_terms import BundleTerms
from torrentdist.model.records import SCHEMA, SupervisorRecord
from torrentdist.model.wire.swarm_messages import PeerAddress, PeerRole, SwarmEntry
from torrentdist.security.job_token import key_of_host
from torrentdist.security.passes import admits, host_key
from torrentdist.security.principal import Role
from torrentdist.supervisor.bundles.bundle_signatures import BundleSignatures
from torrentdist.supervisor.bundles.high_mark import keep_below_mark
from torrentdist.supervisor.bundles.host_state_api import HostStateApi
from torrentdist.supervisor.bundles.keeper import Keeper
from torrentdist.supervisor.exclusivity.isolation import Isolation
from torrentdist.supervisor.gateway.archive_cache import ArchiveCache
from torrentdist.supervisor.gateway.bundle_reader import BundleReader
from torrentdist.supervisor.gateway.bundle_server import BundleServer
from torrentdist.supervisor.gateway.gateway import gateway_app
from torrentdist.supervisor.gateway.host_bundle_api import HostBundleApi
from torrentdist.supervisor.gateway.output_api import OutputApi
from torrentdist.supervisor.gateway.peer_api import PeerApi, outside_app
from torrentdist.supervisor.gateway.worker_api import WorkerApi
from torrentdist.supervisor.hub.hub_api import HubApi
from torrentdist.supervisor.jobs.host_workers import HostWorkers
from torrentdist.supervisor.jobs.job_signatures import JobSignatures
from torrentdist.supervisor.jobs.local_state import read_left
from torrentdist.supervisor.jobs.reporting import Reporting, job_facts
from torrentdist.supervisor.jobs.worker_services import WorkerServices
from torrentdist.supervisor.process.job_isolation import policy_of
from torrentdist.supervisor.repositories.file_facts import FileFacts
from torrentdist.supervisor.repositories.maven_api import MavenApi
from torrentdist.supervisor.repositories.python_index_api import PythonIndexApi
from torrentdist.supervisor.znode_watch import LOOK_SECS, ZnodeWatch
from torrentdist.swarm.swarm_picture import SwarmPicture

log = get_logger()


def id_of(config: Config) -> SupervisorId:
    return ids.supervisor_id(config.supervisor.id or f"supervisor-{socket.gethostname()}")


class Supervisor:
    """A `HostDaemon` with the parts that only a supervisor has."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.id = id_of(config)
        self.started_at = time.time()
        self.metrics = Metrics(self._samples)
        self.jobs: HostWorkers | None = None
        self._host: HostDaemon | None = None
        self._registration: Registration | None = None
        self._bundles: frozenset[BundleId] = frozenset()
        """Bundles that the assignment names, without those that workers need."""
        self._terms: Mapping[BundleId, BundleTerms] = {}

    async def start(self) -> None:
        data_dir = Path(self.config.supervisor.data_dir)
        identity = HostIdentity(PeerRole.SUPERVISOR, self.id, self._address(), data_dir)
        host = self._host = await HostDaemon.open(self.config, identity, self, self._bind, self._read_left)
        self._port, self._outside_port = (int(sock.getsockname()[1]) for sock in host.sockets)
        self.runtime, self.links, self._zookeeper = host.runtime, host.links, host.zookeeper
        self._marks = host.marks
        self.znode_watch = ZnodeWatch(host.zookeeper, self.id)
        folder = host.runtime.store.data_dir / "signatures"
        self._signatures = BundleSignatures(self.config.trust, folder, host.links.signatures)
        self.keeper = Keeper(
            host.runtime,
            host.hand_outs,
            host.links,
            self._signatures,
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
        self._file_facts = FileFacts(store.data_dir / "file-facts", self._has)
        host.close_later(self._file_facts.close)
        self.reader = BundleReader(host.runtime, self.keeper, self.config.supervisor.read_stall_secs)
        await self._open_doors(host, jobs)
        host.announce(self.gateway_url())
        self._spawn_loops(
            host.background, jobs, Reporting(host.http, self.id, self.masters, jobs, host.runtime.events.emit)
        )
        log.info("supervisor started", gateway=self.gateway_url(), swarm_port=host.swarm_port)

    def _bind(self) -> list[socket.socket]:
        """Binds the gateway's port, and the port for other hosts."""
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
        """Reads the workers and the ZooKeeper session of the previous process. Returns that
        session."""
        self._left = read_left(data_dir, read_identity(self.config.zookeeper).host_user)
        return None if self._left.seat is None else self._left.seat.session

    async def _open_doors(self, host: HostDaemon, jobs: HostWorkers) -> None:
        """Serves the gateway, and the API for other hosts."""
        gateway, outside = host.sockets
        output, health = OutputApi(jobs.homes, jobs.placed), HealthApi(self.failing_checks, self.metrics)
        state = HostStateApi(host.runtime)
        routers: list[Router] = [
            HealthApi(self.failing_checks, self.metrics, Role.ANYONE),
            HostBundleApi(host.runtime, self.keeper),
            BundleServer(host.runtime, self.keeper, self.reader, self._archives),
            HubApi(host.runtime, self.reader),
            PythonIndexApi(self.reader, self._file_facts),
            MavenApi(self.reader, self._file_facts),
            WorkerApi(jobs),
            state,
            output,
        ]
        users, audit = self.config.supervisor.gateway_users, AuditLog(host.runtime.events.emit)
        host.background.spawn("audit", audit.run())
        app = gateway_app(routers, users, jobs, lambda client: self._web.cut(client), audit)
        self._web = await host.serve(app, gateway, audit)
        fetches = host.runtime.fetches
        peers = PeerApi(fetches.raw_metafile, fetches.raw_recipe, self._is_admitted)
        others: list[Router] = [output, state, peers, health]
        revocations = Revocations(host.http, self.masters)
        app = outside_app(others, host.guard, self._is_admitted, revocations.covers, audit)
        await host.serve(app, outside, audit, host.guard.tls)
        if host.guard.tls is not None:
            host.background.spawn("revocations", revocations.follow())

    def _is_admitted(self, given: str, path: str) -> bool:
        now = self._zookeeper.server_now() or time.time()
        return admits(self._own_key() or self.znode_watch.shared_pass_key(), given, path, now)

    def _own_key(self) -> str:
        """Returns what this host and the masters alone know; empty if it has no identity of its own
        in ZooKeeper."""
        identity = self._zookeeper.identity
        return "" if identity.host is None else host_key(identity.credentials[0].password)

    def _make_jobs(self, host: HostDaemon) -> HostWorkers:
        """Creates the workers of this host, including those that the previous process left."""
        services = WorkerServices(
            store=host.runtime.store,
            facts=lambda job: job_facts(host.http, self.masters(), job),
            checked=self.keeper.checked,
            spec_of=JobSignatures(self.config, self._signatures).spec_of,
            trouble=self._trouble,
            needs_changed=self._keep,
            lease_sent=self.znode_watch.recheck_masters,
            gateway=self.gateway_url,
            host=self._address(),
            job_key=host.guard.job_key or key_of_host(self._own_key()),
        )
        isolation = Isolation(host.http, self.id, self.znode_watch)
        jobs = HostWorkers(
            host.zookeeper, self.config.supervisor, policy_of(self.config), self._left, isolation, services
        )
        self.znode_watch.on_masters_read.append(jobs.prolonged)
        return jobs

    def _spawn_loops(self, background: Background, jobs: HostWorkers, reporting: Reporting) -> None:
        for name, loop in jobs.loops():
            background.spawn(name, loop)
        background.spawn("reporting", reporting.run())
        background.spawn("keeper", self.keeper.run())
        background.spawn("high mark", keep_below_mark(self.runtime, self._marks))
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
        await self.znode_watch.close()
        # The session stays open, so that the workers run on under their guardians until a new
        # process takes over.
        await host.close(keep_session=leaves_workers)
        log.info("supervisor stopped")

    # what this host tells others

    def gateway_url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def url(self) -> str:
        """Returns the URL at which other hosts reach this supervisor."""
        assert self._host is not None
        return self._host.guard.url(self._address(), self._outside_port)

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
        if self.znode_watch.lacks_cluster():
            failing["cluster"] = NO_CLUSTER
        if self._masters_answering() == 0:
            failing["masters"] = "no master answers"
        return failing

    def _masters_answering(self) -> int:
        return self._host.agent.picture.answered if self._host is not None else 0

    def _samples(self) -> Iterator[Sample]:
        assert self._host is not None
        yield from host_samples(self._host)
        yield Sample("assigned_bundles", len(self.keeper.assigned()))
        yield Sample("masters_answering", self._masters_answering())
        yield Sample("archive_bytes", self._archives.held_bytes())

    # callbacks of HostDaemon

    def masters(self) -> list[str]:
        """Returns the masters registered in ZooKeeper, followed by those of the configuration."""
        return list(dict.fromkeys([*self.znode_watch.masters().values(), *self.config.client.masters]))

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

    def _has(self, digest: Digest) -> bool:
        """Whether this host has a bundle, or fetches it."""
        return self.runtime.store.get(digest) is not None or digest in self.runtime.fetches.under_way()

    def _trouble(self, bundle: BundleId) -> str:
        error = self.keeper.error(bundle)
        return "" if error is None else error.message

    def _keep(self) -> None:
        """Tells the keeper which bundles to keep: those of the assignment, and those that workers
        need."""
        bundles = self._bundles if self.jobs is None else self._bundles | self.jobs.needs()
        left = self.keeper.assigned() - bundles
        self.keeper.assign(bundles, self._terms)
        if left and self._host is not None:
            self._host.agent.poke()  # They may have been removed: the swarm directory knows.

    # ZooKeeper

    async def _follow_zookeeper(self, background: Background) -> None:
        """Joins the cluster in ZooKeeper, and any cluster that an operator puts in its place,
        through every outage."""
        await enter(self._zookeeper)
        background.spawn("znode watch", self.znode_watch.run())
        while True:
            cluster = await self.znode_watch.founded()
            if self.jobs is not None:
                await self.jobs.assigning.bind_to_cluster(cluster)
            await self._take_part(cluster)

    async def _take_part(self, cluster: str) -> None:
        """Stays registered and follows the assignment until ZooKeeper holds a different cluster."""
        registration = Registration(
            self._zookeeper, self._record(), look_secs=LOOK_SECS, cluster=cluster, ask_place=self._ask_place
        )
        self._registration = registration
        registration.on_change.append(lambda registered: None if registered else self.znode_watch.recheck_all())
        try:
            await registration.start()
            await self._follow_assignment(registration, cluster)
        except OtherCluster:
            self.znode_watch.recheck_all()
        await registration.close()

    async def _ask_place(self) -> None:
        """Has the leader make this host's place in ZooKeeper."""
        assert self._host is not None
        answer = await ask_leader(
            self._host.http, "", self.masters(), f"/v1/hosts/{self.id}/place", PlaceBody(), PlaceView
        )
        if answer is None:
            raise TorrentdistError("zookeeper_unavailable", detail="no leader makes a place for this host yet")

    async def _follow_assignment(self, registration: Registration, cluster: str) -> None:
        before = None
        while self.znode_watch.cluster() in (cluster, None):
            version, assignment = self.znode_watch.version, self.znode_watch.assignment()
            self.keeper.knows_assignment |= self.znode_watch.known_at != NEVER
            if assignment is not None:  # A missing assignment drops nothing: a wiped tree looks the same.
                self._bundles, self._terms = frozenset(assignment.bundles), assignment.terms
                if self.jobs is not None:
                    await self.jobs.assigning.assign(assignment)
                self._keep()
            # Only this znode is watched: others may be gone too.
            if assignment is None and before is not None:
                self.znode_watch.recheck_all()
                registration.look_again()
            before = assignment
            await self.znode_watch.changed(version)


def run(config: Config) -> None:
    configure_logs(config.log, role="supervisor", id=id_of(config))
    log.info("starting", pid=os.getpid(), version=__version__)
    run_daemon(lambda: Supervisor(config), shutdown_secs=config.api.shutdown_secs)
