"""The parts that a master and a supervisor share, opened at the start and closed at the end.

A daemon binds its ports, opens a `HostDaemon`, creates its own parts, and then lets the host seed,
serve and announce.
Always: the store is locked before anything else is opened. Everything is closed in the opposite
order, even if the start fails midway.
Never: decide. Where the two daemons differ, the `DaemonRole` decides.
Longer than most files: opening and closing mirror each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec
from starlette.types import ASGIApp

from torrentdist import __version__
from torrentdist.bundle.files.durability import remove_begun
from torrentdist.bundle.store.retention import StoreMarks
from torrentdist.bundle.store.store import KeepReason, Store, StoreUsage
from torrentdist.bundle.store.store_readers import OWNER, admit_readers
from torrentdist.cluster.session.znode_operations import SessionId
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.distributor.loader import joins_uploads, keeps_limits, load_distributor
from torrentdist.distributor.plugin_files import PLUGIN_DIR
from torrentdist.distributor.protocol import CodeDistributor, Holder, HostServices
from torrentdist.host.certificates.certificate_renewal import follow_certificates
from torrentdist.host.certificates.swarm_memberships import SwarmMemberships
from torrentdist.host.fetches import Fetches
from torrentdist.host.hand_outs import HandOuts
from torrentdist.host.host_parts import HostParts
from torrentdist.host.host_store import HostStore
from torrentdist.host.http.authentication import ErrorAnswer, as_json
from torrentdist.host.http.own_site import OwnSite, names_of
from torrentdist.host.http.uvicorn_adapter import WebServer
from torrentdist.host.known_swarms import KnownSwarms
from torrentdist.host.master_links import MasterLinks, http_client
from torrentdist.host.plugin_services import BundleSources, LoopServices
from torrentdist.host.process.background_loops import Background
from torrentdist.host.process.daemon_address import DaemonAddress, announced, withdraw_address
from torrentdist.host.process.host_condition import ConditionWatch
from torrentdist.host.process.port_guard import PortGuard, open_guard
from torrentdist.host.runtime import HostRuntime
from torrentdist.host.scrub import scrub
from torrentdist.host.swarm_transfers import SwarmTransfers
from torrentdist.host.telemetry.answer_counts import AnswerCounts
from torrentdist.host.telemetry.audit_log import Audit
from torrentdist.host.telemetry.event_counts import EventCounts
from torrentdist.host.telemetry.event_log import EventLog
from torrentdist.host.telemetry.event_traces import EventTraces
from torrentdist.host.telemetry.metrics import Metrics
from torrentdist.http.access import to_known_masters
from torrentdist.model.configuration.config import Config
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.events import DaemonStarted, Writer
from torrentdist.model.ids import BundleId, Digest, PeerId
from torrentdist.model.wire.swarm_messages import (
    PeerAddress,
    PeerRole,
    SwarmAnnounce,
    SwarmAnswer,
    SwarmEntry,
)
from torrentdist.security.live_tls import LiveTls
from torrentdist.swarm.agent import LocalPeer, MasterAccess, SwarmAgent
from torrentdist.swarm.engine.engine import Engine
from torrentdist.swarm.engine.session_settings import engine_config
from torrentdist.swarm.swarm_picture import SwarmPicture

BLOCKED_SPACING_SECS = 0.5
"""Shortest interval between announces caused by unknown addresses that connect to this host."""
MEASURE_SECS = 5.0
"""Interval between measurements of the free disk space."""


class HostIdentity(msgspec.Struct, frozen=True):
    role: PeerRole
    id: str
    address: str
    """The name or address at which other hosts reach this one."""
    data_dir: Path


class DaemonRole(Protocol):
    """The questions that a host asks its daemon, a master or a supervisor."""

    metrics: Metrics

    def masters(self) -> Sequence[str]:
        """Returns the URLs of all masters to announce to."""
        ...

    def other_masters(self) -> Sequence[str]:
        """Returns the URLs of the masters to ask, without this daemon."""
        ...

    def swarm_entries(self) -> list[SwarmEntry]:
        """Returns what to announce about this host's swarms."""
        ...

    def hear_own(self, url: str, announce: SwarmAnnounce) -> SwarmAnswer | None:
        """Answers this host's own announce if it is the master at `url`."""
        ...

    def hear_picture(self, picture: SwarmPicture) -> None:
        """Called with each new picture of the swarms, after the engine has received it."""
        ...

    def peers_at_hand(self, digest: Digest) -> list[PeerAddress]:
        """Returns the peers of a swarm that are known already."""
        ...

    def claims(self, digest: Digest) -> Collection[KeepReason]:
        """Returns the reasons why a bundle must stay when room is needed, besides the store's own.
        Called in threads."""
        ...

    def make_room(self, size: int, usage: StoreUsage) -> None:
        """Removes data that can be recreated, to make room for a bundle of this size. Called in
        threads."""
        ...

    def on_damage(self) -> None:
        """Called after a damaged bundle was set aside."""
        ...

    async def holders(self, bundle: BundleId) -> list[Holder]:
        """Returns the live masters that hold a bundle."""
        ...

    async def metafile_for_plugin(self, bundle: BundleId) -> bytes:
        """Returns the metafile of a bundle, for the plug-in."""
        ...


class Taken(msgspec.Struct, frozen=True):
    """The resources that a host acquires before its parts are created."""

    sockets: Sequence[socket.socket]
    """The listening sockets, in the order of `bind`."""
    store: Store
    zookeeper: ZooKeeper
    """The ZooKeeper client, not connected yet."""
    guard: PortGuard
    """What the daemon demands of others, and how it proves itself to them."""


def no_session(_: Path) -> SessionId | None:
    """Returns None: there is no ZooKeeper session to resume."""
    return None


class HostDaemon:
    """The shared parts of a running daemon. Create it with `HostDaemon.open`."""

    def __init__(self, config: Config, identity: HostIdentity, role: DaemonRole, taken: Taken) -> None:
        self.config = config
        self.identity = identity
        self.metrics = role.metrics
        self.metrics.cluster = config.cluster_label
        self._role = role
        self._blocked_at = float("-inf")
        self._closing = contextlib.AsyncExitStack()
        self.background = Background()
        self.sockets = taken.sockets
        self.zookeeper = taken.zookeeper
        self.guard = taken.guard
        access = to_known_masters(taken.guard.access, taken.guard.own_token, role.masters)
        self.http = http_client(access, only_https=taken.guard.only_https)
        self.links = MasterLinks(self.http, role.other_masters, identity.id)
        events = _open_events(config, identity, taken)
        self.marks = StoreMarks(config.store.high, config.store.low)
        self.event_counts = EventCounts(self.metrics)
        events.subscribe(self.event_counts.hear)
        self.traces = EventTraces(config.traces, identity.role, identity.id, taken.zookeeper.server_now)
        self.traces.follow(events)
        self.metrics.has("http_answers_total")
        tls, plain_too = config.swarm_has_tls, config.swarm_has_both
        settings = engine_config(config.swarm, config.api.listen, tls=tls, plain_too=plain_too)
        engine = Engine(settings, tell=events.emit, on_blocked=self._on_blocked)
        self._memberships = SwarmMemberships(config, self.http, role.masters, engine.join, engine.digests)
        peer = LocalPeer(
            id=PeerId(identity.id),
            role=identity.role,
            host=identity.address,
            ports=lambda: (engine.port, engine.tls_port),
            swarms=role.swarm_entries,
            stored=lambda named: self.runtime.stored_beside(named) if identity.role is PeerRole.SUPERVISOR else [],
            condition=lambda: self._condition.last,
        )
        access_here = MasterAccess(http=self.http, masters=role.masters, here=role.hear_own)
        self.agent = SwarmAgent(peer, access_here, self._on_picture)
        store = HostStore(taken.store, role.claims, role.make_room)
        self._condition = _open_condition(store, taken, self.marks, identity.role)
        parts = HostParts(store, engine, events, self.agent.poke)
        known = KnownSwarms(engine)
        transfers = SwarmTransfers(parts, known, role.peers_at_hand)
        sources = BundleSources(role.holders, role.metafile_for_plugin)
        self._services = LoopServices(transfers, sources, asyncio.get_running_loop(), taken.guard, role.masters)
        self._plugin = _open_plugin(config, taken.store.data_dir, self._services)
        self.joins_uploads = joins_uploads(self._plugin)
        self.keeps_limits = keeps_limits(self._plugin)
        fetches = Fetches(parts, transfers, self._plugin, self.links.recipe)
        self.runtime = HostRuntime(parts, known, transfers, fetches)
        self.hand_outs = HandOuts(self.runtime, role.on_damage)

    @classmethod
    async def open(
        cls,
        config: Config,
        identity: HostIdentity,
        role: DaemonRole,
        bind: Callable[[], Sequence[socket.socket]],
        resume: Callable[[Path], SessionId | None] = no_session,
    ) -> HostDaemon:
        """Binds the ports (`bind`), locks the store, and starts the engine without accepting any
        peer yet.

        `resume` reads the ZooKeeper session of the previous process from the data directory. It
        runs in a thread.
        """
        # This refuses an insecure configuration before a port is open.
        guard = await asyncio.to_thread(open_guard, config, identity.role, identity.id, identity.address)
        async with contextlib.AsyncExitStack() as closing:
            sockets = tuple(bind())
            for sock in sockets:
                closing.callback(sock.close)
            store = await asyncio.to_thread(_open_store, config, identity)
            closing.push_async_callback(asyncio.to_thread, store.close)
            session = await asyncio.to_thread(resume, store.data_dir)
            taken = Taken(sockets, store, ZooKeeper(config.zookeeper, session), guard)
            host = cls(config, identity, role, taken)
            host._close_parts_in(closing)
            await host.runtime.engine.start()
            if config.swarm_has_tls:
                await host._memberships.start(must_issue=identity.role is PeerRole.MASTER)
            host.runtime.engine.allow(())  # No peer is known yet.
            host._closing = closing.pop_all()
        return host

    def _close_parts_in(self, closing: contextlib.AsyncExitStack) -> None:
        closing.push_async_callback(self.traces.close)
        closing.callback(self.runtime.events.close)
        closing.push_async_callback(self.runtime.stop)
        closing.push_async_callback(self.hand_outs.close)
        closing.push_async_callback(self.http.aclose)
        closing.callback(self._services.close)
        closing.callback(self._plugin.close)

    def close_later(self, close: Callable[[], Awaitable[None]]) -> None:
        """Calls `close` at the end, before everything opened so far is closed."""
        self._closing.push_async_callback(close)

    async def serve(
        self,
        app: ASGIApp,
        sock: socket.socket,
        audit: Audit,
        tls: LiveTls | None = None,
        told: ErrorAnswer = as_json,
    ) -> WebServer:
        """Answers requests on this socket until the daemon closes. `told` makes the answers to
        those that pages of other sites send."""
        names = names_of([self.identity.address, *self.config.api.hosts])
        return await self.serve_anywhere(OwnSite(app, names, audit, told), sock, tls, plain_too=self.guard.plain_too)

    async def serve_anywhere(
        self, app: ASGIApp, sock: socket.socket, tls: LiveTls | None, *, plain_too: bool = False
    ) -> WebServer:
        """Answers requests that call this host by any name, such as that of a Service. `app` may
        trust nobody for where a request comes from."""
        web = WebServer(AnswerCounts(app, self.metrics), sock, tls=tls, plain_too=plain_too)
        await web.start()
        self.close_later(web.stop)
        return web

    def announce(self, url: str) -> None:
        """Starts the host's own loops, and writes the daemon's address, `url`, to its file."""
        identity, data_dir, runtime = self.identity, self.runtime.store.data_dir, self.runtime
        self._closing.callback(withdraw_address, data_dir)
        runtime.events.emit(DaemonStarted(host=identity.address, port=self.swarm_port, version=__version__))
        address = DaemonAddress(role=identity.role.value, id=identity.id, url=url, swarm_port=self.swarm_port)
        self.background.once("address", announced(data_dir, address))
        self.background.repeat("events", runtime.events.run)
        self.background.repeat("agent", self.agent.run)
        self.background.repeat("disk", self._measure)
        self.background.once("index of files", runtime.store.catch_up())
        if self.guard.tls is not None:
            self.background.repeat("certificates", partial(follow_certificates, self.guard.tls, self._role.masters))
        if self.config.swarm_has_tls:
            self.runtime.engine.on_entered.append(self._memberships.poke)
            self.background.repeat("swarm certificates", self._memberships.follow)
        period = self.config.store.scrub_secs
        self.background.repeat("scrub", partial(scrub, runtime, period, self._role.on_damage))

    async def close(self, *, keep_session: bool = False) -> None:
        """Closes everything. A kept session lives until its timeout, for the next process."""
        await self._closing.aclose()
        await (self.zookeeper.abandon() if keep_session else self.zookeeper.close())

    @property
    def swarm_port(self) -> int:
        return self.runtime.engine.port

    async def _measure(self) -> None:
        while True:
            with contextlib.suppress(TorrentdistError):  # Keep the last value.
                await self.runtime.store.measure()
                await self._note_condition()
            await asyncio.sleep(MEASURE_SECS)

    async def _note_condition(self) -> None:
        before, now = self._condition.last, await self._condition.look()
        if msgspec.structs.replace(before, free=now.free, fills_in=now.fills_in) != now:
            self.agent.poke()

    def _on_blocked(self, _: str) -> None:
        """Announces again when an unknown address connects: it may be a new peer that the masters
        know."""
        now = time.monotonic()
        if now - self._blocked_at > BLOCKED_SPACING_SECS:
            self._blocked_at = now
            self.agent.poke()

    def _on_picture(self, picture: SwarmPicture) -> None:
        self.runtime.known.apply(picture)
        self._role.hear_picture(picture)


def _open_condition(store: HostStore, taken: Taken, marks: StoreMarks, role: PeerRole) -> ConditionWatch:
    watched = marks if role is PeerRole.SUPERVISOR else StoreMarks()  # only supervisors keep their store below its mark
    return ConditionWatch(store, taken.store.data_dir, taken.zookeeper, watched, taken.guard.tls)


def _open_store(config: Config, identity: HostIdentity) -> Store:
    """Opens the store, for its readers. At a master, anybody may declare bundles that never
    come."""
    is_master = identity.role is PeerRole.MASTER
    store = Store.open(
        identity.data_dir,
        limit_bytes=config.store.limit_bytes,
        reserve_bytes=config.store.reserve_bytes,
        as_bytes_come=is_master,
    )
    try:
        admit_readers(store.data_dir, OWNER if is_master else config.store.readable_by)
    except TorrentdistError:
        store.close()
        raise
    with contextlib.suppress(OSError):  # The next start tries again.
        remove_begun(store.data_dir)
    return store


def _open_events(config: Config, identity: HostIdentity, taken: Taken) -> EventLog:
    rack = config.events.rack or config.supervisor.labels.get("rack", "")
    run = secrets.token_hex(6)
    writer = Writer(node=identity.id, role=identity.role.value, rack=rack, run=run)
    return EventLog(taken.store.data_dir / "events", config.events, writer, taken.zookeeper.server_now)


def _open_plugin(config: Config, data_dir: Path, services: HostServices) -> CodeDistributor:
    """Loads and prepares the plug-in that the configuration names."""
    plugin_dir = data_dir / PLUGIN_DIR
    plugin_dir.mkdir(mode=0o700, exist_ok=True)
    with contextlib.suppress(OSError):  # The next start tries again.
        remove_begun(plugin_dir)
    conf = {"options": config.codedistributor.options, "data_dir": str(plugin_dir), "host": services}
    return load_distributor(config.codedistributor.class_, conf)
