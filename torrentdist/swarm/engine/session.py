"""Owns libtorrent's session, and brings its alerts from its threads to the event loop.

Always: handlers run in the event loop, and a handler that fails does not affect other alerts.
Opening and closing end within seconds, whatever the disk does.
Never: poll, or use an alert after its handler has returned: libtorrent frees it at the next pop.
"""

import asyncio
import ctypes
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import libtorrent as lt

from torrentdist.model.access.swarm_membership import SwarmMembership
from torrentdist.model.errors import TorrentdistError
from torrentdist.swarm import native_process
from torrentdist.swarm.engine import session_settings
from torrentdist.swarm.engine.connections import resolve
from torrentdist.swarm.engine.session_settings import EngineConfig
from torrentdist.swarm.membership import wire_torrent

LISTEN_SECS: Final = 5.0
"""How long libtorrent may take to listen on its port."""

_PLAIN: Final = int(lt.socket_type_t.tcp)
_TLS: Final = int(lt.socket_type_t.tcp_ssl)

Handlers = Mapping[type[lt.alert], Callable[[Any], None]]


class AlertPump:
    """Passes each alert of a session to the handler of its type. A socket becomes readable, and
    then the alerts are popped."""

    def __init__(self, session: lt.session, handlers: Handlers) -> None:
        self._session = session
        self._handlers = handlers
        self._loop = asyncio.get_running_loop()
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._theirs.setblocking(False)
        self._loop.add_reader(self._ours.fileno(), self._readable)
        session.set_alert_fd(self._theirs.fileno())

    def stop(self) -> None:
        """Stops calling handlers. None runs after this."""
        self._loop.remove_reader(self._ours.fileno())

    def close(self) -> None:
        """Releases the session, and then closes the sockets.

        A session that outlived its sockets would write to whichever file reuses a socket's number.
        """
        del self._session
        self._ours.close()
        self._theirs.close()

    def _readable(self) -> None:
        # Drain the socket before popping: an alert posted in between wakes us again.
        try:
            self._ours.recv(4096)
        except BlockingIOError:
            return
        for alert in self._session.pop_alerts():
            handler = self._handlers.get(type(alert))
            if handler is not None:
                self._handle(handler, alert)

    def _handle(self, handler: Callable[[Any], None], alert: lt.alert) -> None:
        try:
            handler(alert)
        except Exception as exc:
            self._loop.call_exception_handler({"message": f"handling {alert.what()} failed", "exception": exc})


class LibtorrentSession:
    """One session, opened once and closed once. Calls that only forward something do nothing unless
    it is open."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.host = config.listen_host
        """The address on which the session listens."""
        self.port = 0
        """The port on which the session listens; 0 until it is open."""
        self.tls_port = 0
        """The port for peers with TLS: `port`, a second one, or 0 if there is none."""
        self._raw: lt.session | None = None
        self._pump: AlertPump | None = None
        self._ports: dict[int, int] = {}
        """The port of each kind of connection on which libtorrent listens."""
        self._listening: asyncio.Future[None] | None = None
        self._is_closing = False

    async def open(self, handlers: Handlers) -> None:
        """Returns once the session listens. Raises `port_in_use` if it cannot; close it then."""
        self._listening = asyncio.get_running_loop().create_future()
        try:
            self.host = await resolve(self.config.listen_host)
        except OSError as exc:
            raise session_settings.port_in_use(self.config, str(exc)) from None
        native_process.share_one_heap()
        with native_process.low_priority_threads(self.config.nice):
            self._raw = session_settings.new_session(session_settings.session_pack(self.config, self.host))
        session_settings.limit_everybody(self._raw)
        self._pump = AlertPump(self._raw, {**handlers, **self._handlers()})
        try:
            async with asyncio.timeout(LISTEN_SECS):
                await self._listening
        except TimeoutError:
            raise session_settings.port_in_use(self.config, "no answer") from None
        self.tls_port = self._ports.get(_TLS, 0)
        self.port = self._ports.get(_PLAIN, self.tls_port)
        if self.config.sends_at_once:
            native_process.send_at_once(self._ports.values())
        self.apply({"user_agent": session_settings.user_agent(self.port)})

    @property
    def is_open(self) -> bool:
        return self._raw is not None

    @property
    def is_closing(self) -> bool:
        return self._is_closing

    def check_open(self) -> lt.session:
        """Returns the session. Raises `closing` if it is not open or is closing."""
        if self._raw is None or self._is_closing:
            raise TorrentdistError("closing", what="the engine")
        return self._raw

    def add(self, params: lt.add_torrent_params, membership: SwarmMembership | None = None) -> lt.torrent_handle:
        """Adds a torrent, in a swarm with TLS as the member that `membership` proves."""
        if membership is None or not membership.ca:
            return self.check_open().add_torrent(params)
        # A torrent that runs without its certificate would fail its first connections.
        params.flags |= lt.torrent_flags.paused
        handle = self.check_open().add_torrent(params)
        wire_torrent.show(handle, membership)
        handle.resume()
        return handle

    def remove(self, handle: lt.torrent_handle) -> None:
        """Removes a torrent and leaves its files. torrent_removed_alert reports when they are
        closed."""
        if self._raw is not None:
            self._raw.remove_torrent(handle)

    def set_filter(self, rules: lt.ip_filter) -> None:
        self.check_open().set_ip_filter(rules)

    def apply(self, settings: Mapping[str, int | str]) -> None:
        if self._raw is not None:
            self._raw.apply_settings(cast(Any, dict(settings)))

    def setting(self, key: str) -> int | str | bool | float:
        """Returns the value that libtorrent uses now."""
        value: int | str | bool | float = cast(Any, self.check_open().get_settings())[key]
        return value

    def ask_for_news(self) -> None:
        """Asks libtorrent to post alerts with its counters and the state of changed torrents."""
        if self._raw is not None:
            self._raw.post_torrent_updates(0)
            self._raw.post_session_stats()

    def begin_closing(self) -> bool:
        """Refuses new work from now on. Returns False if the session was closing already."""
        was_closing, self._is_closing = self._is_closing, True
        return not was_closing

    def close(self, *, disk_hangs: bool) -> None:
        """Ends the session. With `disk_hangs` it stays in memory, with its sockets, until the
        process ends.

        Destroying it would wait for the disk and block the whole interpreter.
        """
        pump, self._pump, self._raw = self._pump, None, None
        if pump is None:
            return
        pump.stop()
        if disk_hangs:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(pump))
        else:
            pump.close()

    def _handlers(self) -> Handlers:
        return {lt.listen_succeeded_alert: self._on_listening, lt.listen_failed_alert: self._on_listen_failed}

    def _on_listening(self, alert: lt.listen_succeeded_alert) -> None:
        if alert.socket_type in (_PLAIN, _TLS):
            self._ports.setdefault(int(alert.socket_type), alert.port)
        wanted = 2 if self.config.plain_too else 1
        if self._listening is not None and not self._listening.done() and len(self._ports) == wanted:
            self._listening.set_result(None)

    def _on_listen_failed(self, alert: lt.listen_failed_alert) -> None:
        if self._listening is not None and not self._listening.done():
            self._listening.set_exception(session_settings.port_in_use(self.config, alert.error.message()))
