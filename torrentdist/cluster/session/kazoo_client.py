"""Wraps one kazoo client for asyncio. No other file imports kazoo, which is untyped and full of
traps.

Always: answers and watches reach the loop in the order in which ZooKeeper sent them. Values and
errors are those of znode_operations.py, or CutOff.
Never: use kazoo's recipes or retries, enforce deadlines (zookeeper_session.py does), or block the
loop.
Longer than most files, since only one file may know kazoo.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import PURESASL_AVAILABLE, ConnectionHandler
from kazoo.protocol.serialization import Connect
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import ACL, Id

from torrentdist.cluster.session.acl_table import Acl
from torrentdist.cluster.session.znode_operations import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    Result,
    SessionExpired,
    SessionId,
    Set,
    Stat,
    TransactionFailed,
    ZNodeError,
)
from torrentdist.model.access.zookeeper_identity import Credentials
from torrentdist.model.configuration.config import ZooKeeperConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wording import cause_text

SASL_AVAILABLE: bool = PURESASL_AVAILABLE

_NODE_ERRORS: dict[type[Exception], type[ZNodeError]] = {
    kazoo_errors.NoNodeError: NoNode,
    kazoo_errors.NodeExistsError: NodeExists,
    kazoo_errors.BadVersionError: BadVersion,
    kazoo_errors.NotEmptyError: NotEmpty,
}
_REFUSED = (kazoo_errors.NoAuthError, kazoo_errors.AuthFailedError, kazoo_errors.InvalidACLError)
_CUT_OFF = (kazoo_errors.ConnectionLoss, kazoo_errors.ConnectionClosedError, kazoo_errors.SessionMovedError)
_ROLLED_BACK = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)
_ABANDON_SECS = 2.0
_RECONNECT: dict[str, Any] = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_jitter": 0.4, "max_delay": 0.4}
"""Quick reconnects: after an outage a host has 3 s to take its barriers again before its workers
have to end."""
_HANDSHAKE_SHARE = 1 / 8


class CutOff(Exception):
    """The connection was lost. Whether the request was executed is unknown."""


class Connected(msgspec.Struct, frozen=True):
    session: SessionId
    negotiated_timeout: float


class Suspended(msgspec.Struct, frozen=True):
    pass


class Lost(msgspec.Struct, frozen=True):
    """The session is over. With `ended` the client has stopped too; otherwise it opens a new
    session by itself."""

    ended: bool


class ClientEnded(msgspec.Struct, frozen=True):
    """The client has stopped before it was connected. A session that it was to take over may live
    on."""


SessionEvent = Connected | Suspended | Lost | ClientEnded
AclOf = Callable[[str, bytes], Sequence[Acl]]
"""Returns the ACL of a znode that is created at this path with this data."""


class _InOrder(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo is untyped
    """Runs completions and watches on kazoo's connection thread, so that neither overtakes the
    other.

    kazoo's own handler uses separate threads, and an answer could then overtake an earlier change.
    """

    def __init__(self, connect_timeout: float, tls: Callable[[], ssl.SSLContext | None]) -> None:
        """`tls` reads the files of TLS, which change while the daemon runs."""
        super().__init__()
        self._connect_timeout = connect_timeout
        self._tls = tls

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)

    def create_connection(self, address: tuple[str, int], hostname: str, timeout: float, **_: Any) -> Any:
        # kazoo would spend the whole session timeout on one dead host, and so lose the session.
        sock = super().create_connection(address, timeout=min(timeout, self._connect_timeout))
        try:
            tls = self._tls()
            if tls is None:
                return sock
            sock.settimeout(self._connect_timeout)
            return tls.wrap_socket(sock, server_hostname=hostname)
        except TorrentdistError as exc:
            sock.close()
            raise OSError(exc.message) from exc
        except BaseException:
            sock.close()
            raise


class _Connection(ConnectionHandler):  # type: ignore[misc]  # kazoo is untyped
    """A connection that numbers its requests per session, and leaves a silent server.

    kazoo restarts numbering on each connection. A server matches commits by session and number, so
    a late commit of the previous connection could pass for the answer to a new request. kazoo also
    detects silence only while it has nothing to send, so that a client that asks every second would
    wait for a frozen server forever. A starting server accepts connections and never answers; kazoo
    would wait for a whole session timeout. kazoo's thread ends by an unforeseen error, and tells
    nobody if it was never connected.
    """

    on_end: Callable[[], None]
    """Called on kazoo's thread when that ends."""
    granted = 0.0
    """The session timeout that the server granted at the last handshake, in seconds."""
    _patience = _HANDSHAKE_SHARE
    """The share of the session timeout that the next handshake may take."""
    _count = 0
    _heard = 0.0
    """When the server last sent anything."""

    @property
    def _xid(self) -> int:
        return self._count

    @_xid.setter
    def _xid(self, number: int | None) -> None:
        self._count = number or self._count

    def zk_loop(self) -> None:
        try:
            super().zk_loop()
        finally:
            self.on_end()

    def _expand_client_hosts(self) -> Any:
        try:
            return super()._expand_client_hosts()
        except OSError:  # such as no free descriptor; kazoo tries again if no name is resolved
            return []

    def _connect(self, host: Any, hostip: Any, port: Any) -> Any:
        timeouts = super()._connect(host, hostip, port)
        self._heard = time.monotonic()
        return timeouts

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        if not isinstance(request, Connect):
            return super()._invoke(timeout, request, xid)
        try:
            answer = super()._invoke(min(timeout, self._patience * request.time_out / 1000), request, xid)
        except self.handler.timeout_exception:
            self._patience *= 2  # The server may only be slow.
            raise
        self._patience, self.granted = _HANDSHAKE_SHARE, answer[0].time_out / 1000
        return answer

    def _read_socket(self, read_timeout: float) -> Any:
        self._heard = time.monotonic()
        return super()._read_socket(read_timeout)

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        waits = bool(self.client._pending) or self.ping_outstanding.is_set()
        if waits and time.monotonic() - self._heard > read_timeout:
            raise kazoo_errors.ConnectionDropped("nothing has come from the server")
        super()._send_request(read_timeout, connect_timeout)

    def _read_response(self, header: Any, buffer: Any, offset: Any) -> Any:
        """Drops an answer to no pending request. It would end kazoo's thread, and with it the
        session."""
        waiting = self.client._pending
        if not waiting or waiting[0][2] != header.xid:
            raise kazoo_errors.ConnectionDropped("an answer to another request")
        return super()._read_response(header, buffer, offset)


class AsyncKazoo:
    """One kazoo client. `on_event` is called on the loop. Paths include the chroot. `resume` is a
    session to take over."""

    def __init__(
        self,
        config: ZooKeeperConfig,
        credentials: Sequence[Credentials],
        acl_of: AclOf,
        on_event: Callable[[AsyncKazoo, SessionEvent], None],
        resume: SessionId | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_event = on_event
        self._acl_of = acl_of
        self._client: Any = _kazoo_client(config, credentials, resume)
        self._client.add_listener(self._on_state)
        self._client._connection.on_end = self._on_end
        self._has_told_end = False
        self.last_zxid = 0
        """zxid of the last answer that reached the loop."""

    def start(self) -> None:
        """Starts to connect on a thread of its own. Events report the progress."""
        self._client.start_async()

    def end(self) -> None:
        """Ends the session. Blocks for up to a session timeout if no server answers: call it in a
        thread."""
        with contextlib.suppress(Exception):  # kazoo raises if its thread ends slowly.
            self._client.stop()
            self._client.close()

    def abandon(self) -> None:
        """Closes the connection but keeps the session, so that another process can take it over."""
        self._client._stopped.set()
        with contextlib.suppress(Exception):  # kazoo closes its socket on its own thread.
            self._client._connection._socket.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(Exception):
            self._client._connection.stop(_ABANDON_SECS)
            self._client.close()

    def forget_zxid(self) -> None:
        """Forgets the newest zxid. A wiped ensemble refuses clients that have seen a later zxid
        than its own."""
        self._client.last_zxid = 0

    async def get(self, path: str, watch: Callable[[], None] | None) -> tuple[bytes, Stat]:
        data, stat = await self._answer(path, self._client.get_async(path, self._watcher(watch)))
        return data, _stat(stat)

    async def exists(self, path: str, watch: Callable[[], None] | None) -> Stat | None:
        stat = await self._answer(path, self._client.exists_async(path, self._watcher(watch)))
        return None if stat is None else _stat(stat)

    async def children(self, path: str, watch: Callable[[], None] | None) -> list[str]:
        names: list[str] = await self._answer(path, self._client.get_children_async(path, self._watcher(watch)))
        return names

    async def sync(self, path: str) -> None:
        await self._answer(path, self._client.sync_async(path))

    async def acls(self, path: str) -> list[Acl]:
        found, _ = await self._answer(path, self._client.get_acls_async(path))
        return [Acl(acl.id.scheme, acl.id.id, acl.perms) for acl in found]

    async def set_acl(self, path: str, acls: Sequence[Acl]) -> None:
        await self._answer(path, self._client.set_acls_async(path, list(map(_kazoo_acl, acls))))

    async def create(self, path: str, data: bytes, ephemeral: bool, sequential: bool) -> str:
        acl = self._new_acl(path, data)
        made: str = await self._answer(
            path, self._client.create_async(path, data, acl, ephemeral=ephemeral, sequence=sequential)
        )
        return made

    def _new_acl(self, path: str, data: bytes) -> list[Any]:
        return list(map(_kazoo_acl, self._acl_of(path, data)))

    async def set(self, path: str, data: bytes, version: int) -> Stat:
        return _stat(await self._answer(path, self._client.set_async(path, data, version)))

    async def delete(self, path: str, version: int) -> None:
        await self._answer(path, self._client.delete_async(path, version))

    async def commit(self, ops: Sequence[Op]) -> list[Result]:
        transaction = self._client.transaction()
        for op in ops:
            match op:
                case Create(path, data, ephemeral, sequential):
                    transaction.create(path, data, self._new_acl(path, data), ephemeral, sequential)
                case Set(path, data, version):
                    transaction.set_data(path, data, version)
                case Delete(path, version):
                    transaction.delete(path, version)
                case Check(path, version):
                    transaction.check(path, version)
        return _results(ops, await self._answer(ops[0].path, transaction.commit_async()))

    async def _answer(self, path: str, request: Any) -> Any:
        answer: asyncio.Future[Any] = self._loop.create_future()
        request.rawlink(lambda done: self._post(self._settle, answer, done, self._client.last_zxid))
        try:
            return await answer
        except _CUT_OFF as exc:
            raise CutOff(str(exc)) from None
        except kazoo_errors.KazooException as exc:
            raise _translated(exc, path) from None

    def _settle(self, answer: asyncio.Future[Any], done: Any, zxid: int) -> None:
        failed = done.exception
        if failed is None or isinstance(failed, tuple(_NODE_ERRORS)):
            self.last_zxid = zxid
        if answer.done():  # The caller has given up.
            return
        if failed is None:
            answer.set_result(done.value)
        else:
            answer.set_exception(failed)

    def _watcher(self, watch: Callable[[], None] | None) -> Callable[[Any], None] | None:
        return None if watch is None else lambda _event: self._post(watch)

    def _post(self, call: Callable[..., None], *args: Any) -> None:
        """Calls `call` on the loop, from any thread. Does nothing once the loop is closed."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, *args)

    def _on_state(self, state: str) -> None:
        """Runs on kazoo's thread, so it only posts to the loop."""
        event: SessionEvent
        if state == KazooState.CONNECTED:
            event = Connected(SessionId(*self._client.client_id), self._client._connection.granted)
        elif state == KazooState.SUSPENDED:
            event = Suspended()
        else:
            self._has_told_end = self._client.client_state in (KeeperState.CLOSED, KeeperState.AUTH_FAILED)
            event = Lost(ended=self._has_told_end)
        self._post(self._on_event, self, event)

    def _on_end(self) -> None:
        if not self._has_told_end:
            self._post(self._on_event, self, ClientEnded())


def _kazoo_client(config: ZooKeeperConfig, credentials: Sequence[Credentials], resume: SessionId | None) -> Any:
    quiet = logging.getLogger("torrentdist.kazoo")
    quiet.setLevel(logging.ERROR)  # a line per attempt while ZooKeeper is away; the facade logs the session's states
    options: dict[str, Any] = {}
    if credentials and config.sasl:
        own = credentials[0]
        options["sasl_options"] = {"mechanism": "DIGEST-MD5", "username": own.user, "password": own.password}
    elif credentials:
        options["auth_data"] = [("digest", each.line) for each in credentials]
    _tls_context(config)  # A file that cannot be used is told at the start.
    connect_timeout = config.session_timeout_secs / max(1, len(config.servers))
    handler = _InOrder(connect_timeout, lambda: _tls_context(config))
    client: Any = KazooClient(
        hosts=",".join(config.servers),
        timeout=config.session_timeout_secs,
        handler=handler,
        connection_retry=KazooRetry(sleep_func=handler.sleep_func, **_RECONNECT),
        logger=quiet,
        client_id=None if resume is None else (resume.id, resume.password),
        **options,
    )
    client._connection.__class__ = _Connection  # kazoo creates the connection and accepts no other.
    if resume is not None:  # The previous process numbered requests too, and some may still be in progress.
        client._connection._xid = 1 + secrets.randbelow(2**30)
    return client


def _tls_context(config: ZooKeeperConfig) -> ssl.SSLContext | None:
    """Trusts only tls_ca if it is set. kazoo would add the system's authorities."""
    if not (config.tls_ca or config.tls_cert):
        return None
    try:
        context = ssl.create_default_context(cafile=config.tls_ca or None)
        if config.tls_cert:
            context.load_cert_chain(config.tls_cert, config.tls_key or None)
    except OSError as exc:
        raise TorrentdistError("config_invalid", origin="zookeeper.tls_*", detail=cause_text(exc)) from exc
    return context


def _results(ops: Sequence[Op], answers: Sequence[Any]) -> list[Result]:
    """Raises the error of a transaction, which kazoo returns among the results."""
    for op, answer, index in zip(ops, answers, range(len(ops)), strict=False):
        if isinstance(answer, Exception) and not isinstance(answer, _ROLLED_BACK):
            refusal = _translated(answer, op.path)
            raise TransactionFailed(ops, index, refusal) if isinstance(refusal, ZNodeError) else refusal
    if len(answers) != len(ops) or any(isinstance(answer, Exception) for answer in answers):
        raise CutOff(f"{len(ops)} operations were answered by {answers!r}")
    return [_result(op, answer) for op, answer in zip(ops, answers, strict=True)]


def _result(op: Op, answer: Any) -> Result:
    match op:
        case Create():
            return str(answer)
        case Set():
            return _stat(answer)
        case _:
            return None


def _kazoo_acl(acl: Acl) -> Any:
    return ACL(acl.permissions, Id(acl.scheme, acl.identity))


def _stat(stat: Any) -> Stat:
    return Stat(stat.version, stat.ephemeralOwner, stat.mtime / 1000, stat.czxid, stat.mzxid, stat.pzxid)


def _translated(exc: Exception, path: str) -> Exception:
    kind = _NODE_ERRORS.get(type(exc))
    if kind is not None:
        return kind(path)
    if isinstance(exc, kazoo_errors.SessionExpiredError):
        return SessionExpired()
    if isinstance(exc, _REFUSED):
        detail = f"ZooKeeper refuses {path}: see zookeeper.auth_file and its ACL"
        return TorrentdistError("forbidden", detail=detail, extra={"znode": path})
    return TorrentdistError("zookeeper_unavailable", detail=f"{type(exc).__name__} at {path}")
