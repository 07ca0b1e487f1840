"""The master daemon: makes its parts, starts them in order, and stops them.

Always: the API answers before ZooKeeper does, and `/readyz` says what is missing. A master
registers only after it has looked through its store.
Never: decide anything about bundles, jobs or elections; its parts do.
Longer than most files: it names every part of a master once.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import socket
import time
from collections.abc import Collection, Iterable
from pathlib import Path

from torrentdist import __version__
from torrentdist.bundle.store.store import KeepReason, StoreUsage, claim_everything
from torrentdist.cluster.records.mirror import Mirror
from torrentdist.cluster.records.registration import Registration
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.records.tree_backup import make_backup
from torrentdist.cluster.session import acl
from torrentdist.cluster.session.arrival import CONNECT_SECS, answered, enter, until_founded
from torrentdist.distributor.protocol import Holder
from torrentdist.host.http.health_api import HealthApi
from torrentdist.host.http.operation import Operation, Router, operations_of
from torrentdist.host.http.web import bind_socket
from torrentdist.host.process.background_loops import Background
from torrentdist.host.process.daemon_process import run_daemon
from torrentdist.host.process.host_daemon import HostDaemon, HostIdentity
from torrentdist.host.process.logs import configure_logs
from torrentdist.host.telemetry.metrics import Metrics, Sample
from torrentdist.http.connection_pool import Http
from torrentdist.log import get_logger
from torrentdist.master.access.audit_api import AuditApi
from torrentdist.master.access.audit_trail import AuditTrail
from torrentdist.master.access.host_api import HostApi
from torrentdist.master.access.host_bundles import HostBundles
from torrentdist.master.access.host_issuing import HostIssuing
from torrentdist.master.access.job_keys import JobKeys
from torrentdist.master.access.kept_revocations import KeptRevocations
from torrentdist.master.access.proof_api import ProofApi
from torrentdist.master.access.token_api import TokenApi
from torrentdist.master.access.token_operations import TokenOperations
from torrentdist.master.bundles.bundle_operations import BundleOperations
from torrentdist.master.bundles.fetch_attempts import FetchAttempts
from torrentdist.master.bundles.intake import Intake
from torrentdist.master.bundles.pruning import Pruning
from torrentdist.master.bundles.raw_metafiles import RawMetafiles
from torrentdist.master.bundles.recipe_api import RecipeApi
from torrentdist.master.bundles.recipes import Recipes
from torrentdist.master.bundles.replica_fetches import FetchRules, ReplicaFetches
from torrentdist.master.bundles.replica_records import ReplicaRecords
from torrentdist.master.bundles.replicator import Replicas, Replicator
from torrentdist.master.changes.answered_requests import Requests
from torrentdist.master.changes.commit import LeaderChanges
from torrentdist.master.changes.request_trimming import RequestTrimmer
from torrentdist.master.console.console_sight import ConsoleSight
from torrentdist.master.console.host_asking import HostAsking
from torrentdist.master.console.live_feeds import LiveFeeds
from torrentdist.master.console.noted_events import NotedEvents
from torrentdist.master.console.pages.action_pages import ActionPages
from torrentdist.master.console.pages.bundle_pages import BundlePages
from torrentdist.master.console.pages.distribution_pages import DistributionPages
from torrentdist.master.console.pages.event_pages import EventPages
from torrentdist.master.console.pages.host_pages import HostPages
from torrentdist.master.console.pages.job_pages import JobPages
from torrentdist.master.console.pages.output_pages import OutputPages
from torrentdist.master.console.pages.overview_pages import OverviewPages
from torrentdist.master.console.pages.session_pages import SessionPages
from torrentdist.master.console.visits import Sessions, Visits
from torrentdist.master.history.distribution_history import DistributionHistory, closing
from torrentdist.master.history.history_api import HistoryApi
from torrentdist.master.history.history_file import HistoryFile
from torrentdist.master.http.bundle_api import BundleApi
from torrentdist.master.http.bundle_change_api import BundleChangeApi
from torrentdist.master.http.cluster_api import ClusterApi
from torrentdist.master.http.job_api import JobApi
from torrentdist.master.http.leadership_api import LeadershipApi
from torrentdist.master.http.master_app import Senders, master_app
from torrentdist.master.http.metafile_api import MetafileApi
from torrentdist.master.http.supervisor_api import SupervisorApi
from torrentdist.master.http.swarm_api import SwarmApi
from torrentdist.master.http.upload_api import UploadApi
from torrentdist.master.jobs.heartbeats import Heartbeats
from torrentdist.master.jobs.job_loop import JobLoop
from torrentdist.master.jobs.job_requests import JobRequests
from torrentdist.master.jobs.story_keeper import Stories
from torrentdist.master.leading.leader_rounds import Copies, LeaderRounds, Upkeep
from torrentdist.master.leading.leader_transfer import LeaderTransfer, successor
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.leading.lost_bundles import LostBundles
from torrentdist.master.leading.roles import Roles
from torrentdist.master.leading.schema_upgrade import Upgrade
from torrentdist.master.master_health import MasterHealth
from torrentdist.master.master_metrics import COUNTED, master_samples
from torrentdist.master.master_session import MasterSession
from torrentdist.master.own_role import OwnRole
from torrentdist.master.places.grant_loop import GrantLoop
from torrentdist.master.places.group_api import GroupApi
from torrentdist.master.places.place_api import PlaceApi
from torrentdist.master.places.place_removal import PlaceRemoval
from torrentdist.master.policies.distribution_operations import DistributionOperations
from torrentdist.master.policies.policy_api import DistributionApi, RetentionApi
from torrentdist.master.policies.policy_loop import PolicyLoop, PolicyParts
from torrentdist.master.policies.retention_operations import RetentionOperations
from torrentdist.master.policies.room_outlook import RoomOutlook
from torrentdist.master.reads.earlier_content import EarlierContent
from torrentdist.master.reads.saved_records import Records, SavingPace
from torrentdist.master.reads.zookeeper_reachability import ZooKeeperReachability
from torrentdist.master.swarm.newer_records import NewerRecords
from torrentdist.master.swarm.swarm_certificate_api import SwarmCertificateApi
from torrentdist.master.swarm.swarms import Swarms
from torrentdist.model import ids
from torrentdist.model.backup import encode_backup
from torrentdist.model.configuration.config import Config
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest, MasterId, PeerId
from torrentdist.model.records import SCHEMA, MasterRecord
from torrentdist.model.wire.swarm_messages import PeerAddress, PeerRole, SwarmEntry
from torrentdist.security.authority.issuing_key import IssuingKey
from torrentdist.security.authority.swarm_issuing import SwarmIssuing
from torrentdist.security.console_session import session_key
from torrentdist.swarm.swarm_picture import SwarmPicture

log = get_logger()

GOODBYE_SECS = 3.0
FIRST_PASSES_SECS = 5.0
"""Time within which every loop has looked at all records once."""


def id_of(config: Config) -> MasterId:
    if config.master.id:
        return ids.master_id(config.master.id)
    return ids.master_id(f"master-{socket.gethostname()}-{config.api.port}")


class Master:
    """One `HostDaemon`, and what makes it a master."""

    def __init__(self, config: Config, *, repair_acls: bool) -> None:
        self.config = config
        self.id = id_of(config)
        self.started_at = time.time()
        self.metrics = Metrics(self._samples)
        self.metrics.has(*COUNTED)
        self._repair_acls = repair_acls
        self._host: HostDaemon | None = None
        self._registration: Registration | None = None

    # life

    async def start(self) -> None:
        data_dir = Path(self.config.master.data_dir)
        identity = HostIdentity(PeerRole.MASTER, self.id, self.address(), data_dir)
        host = self._host = await HostDaemon.open(self.config, identity, self, self._bind)
        self._port = int(host.sockets[0].getsockname()[1])
        self.runtime, self.hand_outs, self.links = host.runtime, host.hand_outs, host.links
        zookeeper = self._zookeeper = host.zookeeper
        self.mirror = Mirror(zookeeper)
        await self._load_records(host.http)
        saved = self.records.snapshot()
        self.raw_metafiles = RawMetafiles(host.runtime.store, host.links, self.mirror)
        self.health = MasterHealth(zookeeper, self.records, self._is_registered)
        self._make_swarms()
        self.newer = NewerRecords(self.mirror, self.swarms.directory.lists)
        session = MasterSession(self.id, zookeeper, self.mirror)
        self.leadership = self._make_leadership(session)
        own = OwnRole(self.id, self.url(), self.health, self.leadership, self.records, host.runtime.store)
        self.roles = Roles(host.http, self.snapshot, own.view)
        self.revocations = KeptRevocations(session, self.leadership, saved)
        self.history = await self._load_history(session, host.http, data_dir)
        changes = self.changes = LeaderChanges(self.mirror, self.leadership, Requests(zookeeper), self.metrics)
        self.operations = BundleOperations(changes, self.leadership.default_min_replicas, self._now)
        self.attempts = FetchAttempts()
        self.intake = self._make_intake(changes)
        reachability = ZooKeeperReachability(zookeeper)
        heartbeats = self.heartbeats = Heartbeats(session, self.leadership, reachability, self.config.jobs.silent_secs)
        stories = Stories(session, self.leadership.is_leader)
        self.jobs = JobRequests(session, changes, heartbeats, stories, self.hand_outs, self.config.jobs)
        self.job_loop = JobLoop(session, self.leadership, reachability, heartbeats, stories, self.config)
        self.policies = self._make_policies(session)
        self.replicator = self._make_replicator(host)
        await self.runtime.start()
        self.trail = AuditTrail(self.id, self.runtime.events, self._now)
        await self.trail.load(data_dir / "events")
        sessions = await self._sessions(host)
        api = self._routers()
        pages = self._console(sessions, operations_of(*api), host)
        self.routers = [*api, *pages]
        senders = Senders(host.guard, self.trail.log, sessions, self.host_bundles, self._job_keys(host))
        app = master_app(self.routers, self.mirror, self.records, self.leadership, senders)
        await host.serve(app, host.sockets[0], self.trail.log, host.guard.tls)
        host.announce(self.url())
        self._spawn_loops(host.background)
        log.info("master started", url=self.url(), swarm_port=host.swarm_port)

    def _make_swarms(self) -> None:
        self.swarms = Swarms(
            PeerId(self.id),
            self.runtime,
            self.records,
            sees_records=lambda: self.mirror.connected,
            own_host=self.address(),
            config=self.config.swarm,
        )
        self.host_bundles = HostBundles(self.snapshot, self.swarms.names)

    def _job_keys(self, host: HostDaemon) -> JobKeys:
        return JobKeys(self.snapshot, self.swarms.hosts_running, self.records.secrets.host_key, host.guard.job_key)

    def _plugin_without_limits(self) -> str:
        is_without = self._host is not None and not self._host.keeps_limits
        return self.config.codedistributor.class_ if is_without else ""

    def _bind(self) -> list[socket.socket]:
        return [bind_socket(self.config.api.listen, self.config.api.port, what="the API")]

    def _routers(self) -> list[Router]:
        """The routers of the HTTP API, each with the parts that it calls."""
        max_body = self.config.api.max_request_bytes
        transfer = LeaderTransfer(self.id, self.leadership, self.mirror, self.roles, self.changes)
        return [
            HealthApi(self.health.failing, self.metrics),
            LeadershipApi(self.leadership, self.roles, self.records, transfer),
            ClusterApi(self.records, self.leadership, self.heartbeats, self.swarms, self._backup),
            BundleApi(self.records, self.mirror, self.swarms, self.runtime, self.hand_outs),
            BundleChangeApi(self.operations, self.leadership, self.pruning),
            DistributionApi(
                self.distributions, self.leadership, self.records, self.swarms.members, self._plugin_without_limits()
            ),
            RetentionApi(self.retention, self.leadership, self.records),
            UploadApi(self.leadership, self.intake, max_body),
            MetafileApi(self.records, self.runtime, self.swarms, self.raw_metafiles, self.attempts.retry, max_body),
            RecipeApi(self.records, self.runtime, self.swarms, self.recipes, self.leadership, max_body),
            JobApi(self.jobs, self.leadership, self.records),
            SupervisorApi(self.jobs, self.job_loop, self.heartbeats, self.leadership),
            SwarmApi(self.newer, self.swarms, self.host_bundles, members_only=self.config.swarm_is_closed),
            AuditApi(self.trail),
            HistoryApi(self.history),
            ProofApi(self.records, self.url, self._host.guard.token if self._host else None),
            TokenApi(TokenOperations(self.changes, self._now), self.leadership, self.records),
            self._host_api(),
            SwarmCertificateApi(SwarmIssuing(self.config)),
            PlaceApi(self._zookeeper, self.changes, self.leadership),
            GroupApi(self._zookeeper, self.changes, self.leadership),
        ]

    async def _sessions(self, host: HostDaemon) -> Sessions:
        """The console's sessions. Masters that share a secret accept each other's."""
        ca_key = b""
        if not host.guard.job_key:
            with contextlib.suppress(TorrentdistError):
                ca_key = (await asyncio.to_thread(IssuingKey(self.config.tls).key_text)).encode()
        return Sessions(session_key(host.guard.job_key, ca_key), self.records, host.guard.token)

    def _console(self, sessions: Sessions, api: list[Operation], host: HostDaemon) -> list[Router]:
        """The routers of the pages under /ui/."""
        http, secure = host.http, host.guard.tls is not None
        visits = Visits(self.id, self.records, self.leadership, sessions)
        sight = ConsoleSight(self.records, self.leadership, self.heartbeats, self.swarms)
        feeds, asking = LiveFeeds(self.metrics, sight.state), HostAsking(http, self.records)
        noted = NotedEvents(self.id, self._now)
        self.runtime.events.subscribe(noted.hear)
        earlier = EarlierContent(self.records, self.runtime.store, self.raw_metafiles, self.recipes)
        return [
            SessionPages(sessions, secure),
            OverviewPages(visits, sight, feeds),
            EventPages(visits, sight, self.trail, noted, self.history),
            BundlePages(visits, sight, feeds, self.history, earlier, RoomOutlook(self.records)),
            DistributionPages(visits, feeds, self.history),
            HostPages(visits, sight, self.roles, asking),
            JobPages(visits, self.jobs, self.records),
            OutputPages(visits, self.jobs, self.records, asking, feeds),
            ActionPages(visits, api),
        ]

    def _host_api(self) -> HostApi:
        key = IssuingKey(self.config.tls)
        issuing = HostIssuing(self.changes, lambda: self.mirror.snapshot, key, self._now)
        return HostApi(issuing, key, self.leadership, self.records, self._now)

    def _spawn_loops(self, background: Background) -> None:
        background.spawn("elections", self.leadership.elections.run())
        background.spawn("directory", self.swarms.run())
        background.spawn("zookeeper", self._join_cluster(background))
        background.spawn("audit", self.trail.log.run())
        background.spawn("revocations", self.revocations.run())
        background.spawn("records", self.records.run(self.leadership.is_leader))

    async def _load_records(self, http: Http) -> None:
        master = self.config.master
        pace = SavingPace(master.snapshot_changes, master.snapshot_secs, random.random())
        self.records = Records(self.id, Path(master.data_dir), self._zookeeper, self.mirror, http, pace)
        await self.records.load()

    async def _load_history(self, session: MasterSession, http: Http, data_dir: Path) -> DistributionHistory:
        leads, tell = self.leadership.is_leader, self.runtime.events.emit
        history = DistributionHistory(session, self.swarms, leads, http, HistoryFile(data_dir), tell)
        await history.load()
        return history

    def _make_leadership(self, session: MasterSession) -> Leadership:
        config, tell = self.config.replication, self.runtime.events.emit
        self.lost = LostBundles(session, self.swarms.seen_elsewhere, config.lost_secs)
        copies = Copies(self.runtime.store.published_digests, self._uploads, self.lost)
        requests = RequestTrimmer(session.zookeeper, self.config.requests.keep_secs)
        upgrade = Upgrade(session.zookeeper, self.config.master.upgrade_after_secs)
        rounds = LeaderRounds(session, config, copies, Upkeep(requests, upgrade), tell)
        return Leadership(session, config, copies, rounds, tell)

    def _make_policies(self, session: MasterSession) -> PolicyLoop:
        self.pruning = Pruning(session, self.changes)
        self.distributions = DistributionOperations(self.changes, self.swarms.members, self._now)
        self.retention = RetentionOperations(self.changes, session.zookeeper.server_now)
        parts = PolicyParts(
            self.changes, self.retention, self.swarms.members, lambda: self.swarms.directory.revisions.states
        )
        return PolicyLoop(session, self.leadership, parts, self.config.distribution.patience_secs)

    def _uploads(self, digest: Digest) -> bool:
        """Whether somebody is about to complete this upload."""
        within = self.config.replication.abandon_secs
        return self.swarms.may_complete(digest) or self.intake.is_active(digest, within)

    def _make_intake(self, changes: LeaderChanges) -> Intake:
        self.recipes = Recipes(self.runtime.store, self.links, self.records)
        self.runtime.fetches.keeps_recipes = True
        return Intake(self.runtime, self.mirror, self.operations, changes, self.attempts, self.recipes)

    def _make_replicator(self, host: HostDaemon) -> Replicator:
        config = self.config.replication
        rules = FetchRules(joins_uploads=host.joins_uploads, catch_up_limit=config.catch_up_limit)
        wanted = self.swarms.want_metafile
        fetches = ReplicaFetches(self.runtime, self.links, self.intake, self.attempts, rules, wanted)
        records = ReplicaRecords(self.id, self.runtime.store.id, self._zookeeper)
        replicas = Replicas(fetches, self.attempts, records)
        return Replicator(self.runtime, self.mirror, self.leadership, replicas, config)

    async def failed(self) -> None:
        assert self._host is not None
        await self._host.background.failed()

    async def stop(self) -> None:
        host = self._host
        if host is None:
            return
        await self._hand_over()
        await host.agent.leave()
        await host.background.stop()
        await closing(self.history, GOODBYE_SECS)
        if self._registration is not None:
            await self._say_goodbye(self._registration)
        await self.mirror.close()
        await host.close()
        log.info("master stopped")

    async def _hand_over(self) -> None:
        """Hands the leadership of a stopping leader to a standby that can lead at once."""
        if self._registration is None or not self.leadership.is_leader():
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_SECS):
                await self.leadership.leave("stopped", successor(self.snapshot().election, await self.roles.all()))

    async def _say_goodbye(self, registration: Registration) -> None:
        """Tells the others at once, so that they need not wait for the session to end. Without
        ZooKeeper it gives up after GOODBYE_SECS."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_SECS):
                await self.leadership.leave("stopped")
                await self.records.save()
                await registration.close()

    async def _join_cluster(self, background: Background) -> None:
        """Connects, checks the ACLs, mirrors the records, waits for a cluster, registers and queues
        for leadership, in this order."""
        await enter(self._zookeeper)
        if self._repair_acls:
            mended = await answered(self._zookeeper, lambda: acl.repair_tree(self._zookeeper))
            log.info("ACLs repaired", znodes=mended)
        else:
            await answered(self._zookeeper, lambda: acl.check_tree(self._zookeeper))
        await answered(self._zookeeper, lambda: self.mirror.start(CONNECT_SECS))
        gc.freeze()  # Most bundles and records stay, so the collector need not scan them with every change.
        asyncio.get_running_loop().call_later(FIRST_PASSES_SECS, gc.freeze)  # what the loops below derive stays too
        background.spawn("absences", self.lost.watch())
        background.spawn("history", self.history.run())
        background.spawn("replication", self.replicator.run())
        await until_founded(self.mirror)
        self._registration = Registration(self._zookeeper, self._record())
        await self._registration.start()
        background.spawn("jobs", self.job_loop.run())
        background.spawn("policies", self.policies.run())
        if self.config.zookeeper.identities:
            session = MasterSession(self.id, self._zookeeper, self.mirror)
            background.spawn("grants", GrantLoop(session, self.leadership).run())
            background.spawn("places", PlaceRemoval(session, self.leadership).run())
        await self.leadership.run()

    # what the host asks

    def masters(self) -> list[str]:
        return [m.url for m in self.snapshot().masters.values()] or [self.url()]

    def other_masters(self) -> list[str]:
        return [m.url for id_, m in self.snapshot().masters.items() if id_ != self.id]

    def swarm_entries(self) -> list[SwarmEntry]:
        return self.swarms.own_entries()

    def hear_picture(self, picture: SwarmPicture) -> None:
        """Does nothing: a master's records and directory contain all that the picture does."""

    def peers_at_hand(self, digest: Digest) -> list[PeerAddress]:
        return self.swarms.peers_at_hand(digest)

    def claims(self, digest: Digest) -> Collection[KeepReason]:
        """A master keeps every bundle."""
        return claim_everything(digest)

    def make_room(self, size: int, usage: StoreUsage) -> None:
        """Does nothing: a master holds no data that can be recreated."""

    def on_damage(self) -> None:
        self.attempts.poke()

    async def holders(self, bundle: BundleId) -> list[Holder]:
        snapshot = self.mirror.snapshot
        return [Holder(id_, snapshot.masters[id_].url) for id_ in sorted(snapshot.holders(bundle))]

    async def metafile_for_plugin(self, bundle: BundleId) -> bytes:
        return await self.raw_metafiles.of_bundle(bundle)

    # what others know of this master

    def address(self) -> str:
        return self.config.master.host or self.config.api.listen

    def url(self) -> str:
        assert self._host is not None
        return self._host.guard.url(self.address(), self._port)

    def _record(self) -> MasterRecord:
        return MasterRecord(
            id=self.id,
            host=self.address(),
            port=self._port,
            url=self.url(),
            swarm_port=self.runtime.engine.port,
            store=self.runtime.store.id,
            version=__version__,
            started_at=self.started_at,
            speaks=SCHEMA,
        )

    def _samples(self) -> Iterable[Sample]:
        assert self._host is not None
        return master_samples(self._host, self.mirror, self.leadership, self.heartbeats, self.swarms)

    def _is_registered(self) -> bool:
        return self._registration is not None and self._registration.registered

    async def _backup(self) -> bytes:
        return await asyncio.to_thread(encode_backup, await make_backup(self._zookeeper))

    # what its parts ask

    def snapshot(self) -> ClusterSnapshot:
        """Returns the records that answers are made from. Changes are decided on the mirror
        alone."""
        return self.records.snapshot()

    def _now(self) -> float:
        """Returns the time by ZooKeeper's clock, because hosts' clocks differ; by this host's clock
        while ZooKeeper's is unknown."""
        return self._zookeeper.server_now() or time.time()


def run(config: Config, *, repair_acls: bool = False) -> None:
    configure_logs(config.log, role="master", id=id_of(config))
    log.info("starting", pid=os.getpid(), version=__version__)
    run_daemon(lambda: Master(config, repair_acls=repair_acls), shutdown_secs=config.api.shutdown_secs)
