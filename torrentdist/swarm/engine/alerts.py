"""The door through which libtorrent's threads reach the event loop: a socket becomes readable, alerts are popped.

Always holds: handlers run in the event loop, and one that fails does not keep the other alerts from being handled.
Must not do: poll, or keep an alert beyond its handler (libtorrent frees it at the next pop).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from typing import Any

import libtorrent as lt

Handlers = Mapping[type[lt.alert], Callable[[Any], None]]


class AlertPump:
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
        """No handler runs after this."""
        self._loop.remove_reader(self._ours.fileno())

    def close_sockets(self) -> None:
        """Only when the session is gone: it would write to whatever gets the socket's number next."""
        self._ours.close()
        self._theirs.close()

    def _readable(self) -> None:
        # Emptied before popping: what is posted in between wakes us again.
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
