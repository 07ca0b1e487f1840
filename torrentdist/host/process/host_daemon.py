"""What a master and a supervisor have in common: the parts that they open at start and close at the
end.

A daemon binds its ports, opens a `HostDaemon`, makes its own parts, and then lets the host seed,
serve and announce. Always: the store is locked before anything else is opened, and everything is
closed in the opposite order, also when the start fails in the middle. Never: decide. What differs
between the two daemons is asked of the `DaemonRole`.
Longer than most files: opening and closing mirror each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from starlette.types import ASGIApp

from torrentdist import __version__
from torrentdist.bundle.store.store import KeepReason, Store, StoreUsage
from torrentdist.cluster.session.znode_operations import SessionId
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.distributor.loader import joins_uploads, load_distributor
from torrentdist.distributor.protocol import CodeDistributor, Holder, HostServices
from torrentdist.host.fetches import Fetches
from torrentdist.host.hand_outs import HandOuts
from torrentdist.host.host_parts import HostParts
from torrentdist.host.host_store import HostStore
from torrentdist.host.http.uvicorn_adapter import WebServer
from torrentdist.host.http.web import is_loopback
from torrentdist.host.known_swarms import KnownSwarms
from torrentdist.host.master_links import MasterLinks, http_client
from torrentdist.host.plugin_services import BundleSources, LoopServices
from torrentdist.host.process.background_loops import Background
from torrentdist.host.process.daemon_address import DaemonAddress, announced, withdraw_address
from torrentdist.host.runtime import HostRuntime
from torrentdist.host.scrub import scrub
from torrentdist.host.swarm_transfers import SwarmTransfers
from torrentdist.host.telemetry.event_log import EventLog
from torrentdist.model.configuration.config import Config
from torrentdist.model.configuration.settings import read_secret
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.events import DaemonStarted, Writer
from torrentdist.model.ids import BundleId, Digest, PeerId
from torrentdist.model.wire.swarm_messages import PeerAddress, PeerRole, SwarmEntry
from torrentdist.swarm.agent import LocalPeer, MasterAccess, SwarmAgent
from torrentdist.swarm.engine.engine import Engine
from torrentdist.swarm.engine.session_settings import engine_config
from torrentdist.swarm.swarm_picture import SwarmPicture

BLOCKED_SPACING_SECS = 0.5
"""Shortest time between two announces that unknown addresses cause by dialling this host."""
MEASURE_SECS = 5.0
"""How often the free room of the disk is measured."""


@dataclass(frozen=True, slots=True)
class HostIdentity:
    role: PeerRole
    id: str
    address: str
    """The name or address at which other hosts reach this one."""
    data_dir: Path


class DaemonRole(Protocol):
    """What a host asks the daemon that runs on it."""

    def masters(self) -> Sequence[str]:
        """The URLs of all masters to announce to."""
        ...

    def other_masters(self) -> Sequence[str]:
        """The URLs of the masters to ask, without this daemon."""
        ...

    def swarm_entries(self) -> list[SwarmEntry]:
        """What to announce about this host's swarms."""
        ...

    def hear_picture(self, picture: SwarmPicture) -> None:
        """Called with each new picture of the swarms, after the engine has got it."""
        ...

    def peers_at_hand(self, digest: Digest) -> list[PeerAddress]:
        """The peers of a swarm that are known without asking anybody."""
        ...

    def claims(self, digest: Digest) -> Collection[KeepReason]:
        """Why a bundle must stay when room is needed, besides what the store knows. Called in
        threads."""
        ...

    def make_room(self, size: int, usage: StoreUsage) -> None:
        """Removes what can be made anew, for a bundle of this size. Called in threads."""
        ...

    def on_damage(self) -> None:
        """Called when a damaged bundle was set aside."""
        ...

    async def holders(self, bundle: BundleId) -> list[Holder]:
        """The live masters that hold a bundle."""
        ...

    async def metafile_for_plugin(self, bundle: BundleId) -> bytes:
        """The metafile of a bundle, for the plug-in."""
        ...


def token_of(config: Config) -> str | None:
    """The cluster's bearer token; refuses to listen beyond loopback without one."""
    if config.api.token_file:
        return read_secret(config.api.token_file)
    if not is_loopback(config.api.listen):
        raise TorrentdistError("insecure_listen", address=config.api.listen)
    return None


@dataclass(frozen=True, slots=True)
class Taken:
    """What a host has to itself before its parts are made."""

    sockets: Sequence[socket.socket]
    """The listening sockets, in the order of `bind`."""
    store: Store
    zookeeper: ZooKeeper
    """The session, which is not connected yet."""
    token: str | None
    """The cluster's bearer token."""


def no_session(_: Path) -> SessionId | None:
    """There is no ZooKeeper session to resume."""
    return None


class HostDaemon:
    """Use `HostDaemon.open`."""

    def __init__(self, config: Config, identity: HostIdentity, role: DaemonRole, taken: Taken) -> None:
        self._config = config
        self._identity = identity
        self._role = role
        self._blocked_at = float("-inf")
        self._closing = contextlib.AsyncExitStack()
        self.background = Background()
        self.sockets = taken.sockets
        self.zookeeper = taken.zookeeper
        self.token = taken.token
        self.http = http_client(taken.token)
        self.links = MasterLinks(self.http, role.other_masters, identity.id)
        events = _open_events(config, identity, taken)
        engine = Engine(engine_config(config.swarm, config.api.listen), tell=events.emit, on_blocked=self._on_blocked)
        peer = LocalPeer(
            id=PeerId(identity.id),
            role=identity.role,
            host=identity.address,
            port=lambda: engine.port,
            swarms=role.swarm_entries,
        )
        self.agent = SwarmAgent(peer, MasterAccess(http=self.http, masters=role.masters), self._on_picture)
        parts = HostParts(HostStore(taken.store, role.claims, role.make_room), engine, events, self.agent.poke)
        known = KnownSwarms(engine)
        transfers = SwarmTransfers(parts, known, role.peers_at_hand)
        sources = BundleSources(role.holders, role.metafile_for_plugin)
        self._services = LoopServices(transfers, sources, asyncio.get_running_loop(), taken.token)
        self._plugin = _open_plugin(config, taken.store.data_dir, self._services)
        self.joins_uploads = joins_uploads(self._plugin)
        self.runtime = HostRuntime(parts, known, transfers, Fetches(parts, transfers, self._plugin))
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
        """Takes the ports (`bind`) and the store, starts the engine, and lets nobody in yet.

        `resume` reads the ZooKeeper session that the process before left in the data directory, in
        a thread.
        """
        token = token_of(config)  # refuses a dangerous configuration before a port is open
        async with contextlib.AsyncExitStack() as closing:
            sockets = tuple(bind())
            for sock in sockets:
                closing.callback(sock.close)
            store = await asyncio.to_thread(_open_store, config, identity.data_dir)
            closing.push_async_callback(asyncio.to_thread, store.close)
            session = await asyncio.to_thread(resume, store.data_dir)
            taken = Taken(sockets, store, ZooKeeper(config.zookeeper, session), token)
            host = cls(config, identity, role, taken)
            host._close_parts_in(closing)
            await host.runtime.engine.start()
            host.runtime.engine.allow(())  # nobody is known yet
            host._closing = closing.pop_all()
        return host

    def _close_parts_in(self, closing: contextlib.AsyncExitStack) -> None:
        closing.callback(self.runtime.events.close)
        closing.push_async_callback(self.runtime.stop)
        closing.push_async_callback(self.hand_outs.close)
        closing.push_async_callback(self.http.aclose)
        closing.callback(self._services.close)
        closing.callback(self._plugin.close)

    def close_later(self, close: Callable[[], Awaitable[None]]) -> None:
        """Calls `close` at the end, before everything that is open now is closed."""
        self._closing.push_async_callback(close)

    async def serve(self, app: ASGIApp, sock: socket.socket) -> WebServer:
        """Answers requests on this socket until the daemon closes."""
        web = WebServer(app, sock)
        await web.start()
        self.close_later(web.stop)
        return web

    def announce(self, url: str) -> None:
        """Starts the host's own loops, and tells where the daemon answers: `url`, for the file in
        its directory."""
        identity, data_dir, runtime = self._identity, self.runtime.store.data_dir, self.runtime
        self._closing.callback(withdraw_address, data_dir)
        runtime.events.emit(DaemonStarted(host=identity.address, port=self.swarm_port, version=__version__))
        address = DaemonAddress(role=identity.role.value, id=identity.id, url=url, swarm_port=self.swarm_port)
        self.background.once("address", announced(data_dir, address))
        self.background.spawn("events", runtime.events.run())
        self.background.spawn("agent", self.agent.run())
        self.background.spawn("disk", self._measure())
        period = self._config.store.scrub_secs
        self.background.spawn("scrub", scrub(runtime, period, self._role.on_damage))

    async def close(self, *, keep_session: bool = False) -> None:
        """Closes everything that is open. A session that is kept lasts until its timeout, for the
        next process."""
        await self._closing.aclose()
        await (self.zookeeper.abandon() if keep_session else self.zookeeper.close())

    @property
    def swarm_port(self) -> int:
        return self.runtime.engine.port

    async def _measure(self) -> None:
        while True:
            with contextlib.suppress(TorrentdistError):  # the last figure stands
                await self.runtime.store.measure()
            await asyncio.sleep(MEASURE_SECS)

    def _on_blocked(self, _: str) -> None:
        """An unknown address dialled this host. It may be new, so the masters are asked."""
        now = time.monotonic()
        if now - self._blocked_at > BLOCKED_SPACING_SECS:
            self._blocked_at = now
            self.agent.poke()

    def _on_picture(self, picture: SwarmPicture) -> None:
        self.runtime.known.apply(picture)
        self._role.hear_picture(picture)


def _open_store(config: Config, data_dir: Path) -> Store:
    return Store.open(data_dir, limit_bytes=config.store.limit_bytes, reserve_bytes=config.store.reserve_bytes)


def _open_events(config: Config, identity: HostIdentity, taken: Taken) -> EventLog:
    rack = config.events.rack or config.supervisor.labels.get("rack", "")
    run = secrets.token_hex(6)
    writer = Writer(node=identity.id, role=identity.role.value, rack=rack, run=run)
    return EventLog(taken.store.data_dir / "events", config.events, writer, taken.zookeeper.server_now)


def _open_plugin(config: Config, data_dir: Path, services: HostServices) -> CodeDistributor:
    """The plug-in that the configuration names, prepared."""
    plugin_dir = data_dir / "distributor"
    plugin_dir.mkdir(exist_ok=True)
    conf = {"options": config.codedistributor.options, "data_dir": str(plugin_dir), "host": services}
    return load_distributor(config.codedistributor.class_, conf)
