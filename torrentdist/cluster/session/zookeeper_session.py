"""ZooKeeper for asyncio: one session after another with an ensemble, below the configured chroot.

Always: no call outlives its deadline, connected or not. No write is repeated, or sent in a
different session from the one in which it was decided. Nothing is created or set in a tree without
a cluster, except by the code that founds or restores one.
Never: know kazoo (kazoo_client.py does), or guess that a session has expired.
Longer than most files: every call shares the session's state and deadlines.
"""

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar, cast

import msgspec

from torrentdist.cluster import paths
from torrentdist.cluster.records.record_schema import spoken
from torrentdist.cluster.session.acl import read_identity
from torrentdist.cluster.session.acl_table import Acl
from torrentdist.cluster.session.kazoo_client import (
    SASL_AVAILABLE,
    AsyncKazoo,
    ClientEnded,
    Connected,
    CutOff,
    Lost,
    SessionEvent,
    Suspended,
)
from torrentdist.cluster.session.znode_operations import (
    ANY_VERSION,
    Check,
    Create,
    NodeExists,
    NoNode,
    Op,
    Result,
    SessionExpired,
    SessionId,
    SessionState,
    Set,
    Stat,
    TransactionFailed,
    check_size,
    within,
)
from torrentdist.log import get_logger
from torrentdist.model import records
from torrentdist.model.backoff import Retry, kind_of
from torrentdist.model.configuration.config import ZooKeeperConfig
from torrentdist.model.errors import TorrentdistError

__all__ = ["Create", "Op", "SessionId", "SessionState", "Set", "Stat", "TransactionFailed", "ZooKeeper"]

log = get_logger()
T = TypeVar("T")

Watch = Callable[[], None]
"""Called once on the loop when the value has changed or the connection was lost: read the value
again."""

_FIRST_REVIVAL_SECS = 1.0
_LONGEST_REVIVAL_SECS = 30.0
_CUT_OFF_SECS = 0.05
"""How long a read waits that fails again at once, as it does while a connection is closed."""


class ZooKeeper:
    def __init__(self, config: ZooKeeperConfig, resume: SessionId | None = None) -> None:
        """`resume` is a session of an earlier process to take over, with its ephemeral znodes, if
        it is still alive."""
        self._config = config
        self._resume = resume
        self._root = _checked_chroot(config.chroot)
        _check_sasl(config)
        self.identity = read_identity(config)
        self.state = SessionState.CONNECTING
        self.generation = 0
        """Increases with each new session."""
        self.session: SessionId | None = resume
        """Our session as far as we know. Before the first connection, the session to take over."""
        self.negotiated_timeout = config.session_timeout_secs
        self.last_write_acknowledged: float | None = None
        """When the last acknowledged write of this session was sent (monotonic)."""
        self.write_secs: float | None = None
        """How long the last acknowledged write took; None: there was none."""
        self.on_state: list[Callable[[SessionState], None]] = []
        self.on_schema: list[Callable[[], None]] = []
        self._schema = records.OLDEST_READABLE
        """The schema in which records are written; the oldest readable one until the cluster's is
        known."""
        self._guards: tuple[Op, ...] = (Check(paths.CLUSTER),)
        self._clock: tuple[float, float, float] | None = None
        """ZooKeeper's time of our last acknowledged Set, when that was sent and acknowledged
        (monotonic)."""
        self._clock_session: int | None = None
        """The session of that Set."""
        self._driver: AsyncKazoo | None = None
        self._changed = asyncio.Event()
        self._revival = Retry(_FIRST_REVIVAL_SECS, _LONGEST_REVIVAL_SECS)
        self._connected_at = math.inf
        """When the present client connected last (monotonic); infinity: it has not connected."""

    @property
    def chroot(self) -> str:
        return self._root

    # session

    @property
    def asked_timeout(self) -> float:
        """The session timeout that the configuration requests, in seconds."""
        return self._config.session_timeout_secs

    @property
    def session_id(self) -> int | None:
        return None if self.session is None else self.session.id

    async def start(self, timeout: float) -> None:
        """Connects. Raises `zookeeper_unavailable` after `timeout`, and keeps trying to connect;
        call it again."""
        deadline = asyncio.get_running_loop().time() + timeout
        if self._driver is None and self.state is not SessionState.CLOSED:
            self._launch()
        await self._until_connected(deadline)

    async def close(self) -> None:
        """Ends the session, which removes its ephemeral znodes. Takes a bounded time even if no
        server answers."""
        driver, self._driver = self._driver, None
        connected = self.state is SessionState.CONNECTED
        self._enter(SessionState.CLOSED)
        if driver is None:
            return
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        threading.Thread(target=_end, args=(driver, loop, ended), daemon=True).start()
        if connected:  # Otherwise the thread ends by itself.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._config.operation_timeout_secs):
                    await ended.wait()

    async def abandon(self) -> None:
        """Disconnects without ending the session. A process that takes it over in time keeps its
        ephemeral znodes."""
        driver, self._driver = self._driver, None
        self._enter(SessionState.CLOSED)
        if driver is not None:
            await asyncio.to_thread(driver.abandon)

    async def wait_connected(self, timeout: float) -> None:
        await self._until_connected(asyncio.get_running_loop().time() + timeout)

    async def pause(self, seconds: float) -> None:
        """Waits before a retry. A change of the session's state, or `end_pauses`, ends the wait,
        since a retry may succeed now."""
        changed = self._changed
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await changed.wait()

    def end_pauses(self) -> None:
        """Lets all callers of `pause` retry at once."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    @property
    def last_zxid(self) -> int:
        """zxid of the last answer. We have seen everything up to it, including watches."""
        return self._driver.last_zxid if self._driver else 0

    def server_now(self) -> float | None:
        """Returns the time by ZooKeeper's clock, as our last Set told it; None before the first.

        It is behind by as long as the answer took, and never ahead: no lease ends early by it.
        """
        return None if self._clock is None else self._clock[0] + time.monotonic() - self._clock[2]

    def clock_age(self) -> float:
        """Returns the seconds since an answer told us ZooKeeper's time; infinity: none did in this
        session."""
        if self._clock is None or self._clock_session != self.session_id:
            return math.inf
        return time.monotonic() - self._clock[2]

    def clock_error(self) -> float:
        """Returns the seconds by which this host's clock is ahead of ZooKeeper's; 0 if the
        difference may come from the time that the answer took, or is unknown."""
        if self._clock is None:
            return 0.0
        written, sent, acknowledged = self._clock
        ahead = time.time() - (written + time.monotonic() - sent)
        return 0.0 if abs(ahead) <= acknowledged - sent else ahead

    # reading

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat] | None:
        """Returns data and stat. Returns None, and sets no watch, if the znode does not exist."""
        try:
            return await self._read(path, lambda d, p: d.get(p, watch))
        except NoNode:
            return None

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Returns the stat, or None. A watch on a missing znode fires when it is created."""
        return await self._read(path, lambda d, p: d.exists(p, watch))

    async def children(self, path: str, watch: Watch | None = None) -> list[str] | None:
        """Returns the names of children. Returns None, and sets no watch, if the znode does not
        exist.

        The watch also fires when the znode is deleted.
        """
        try:
            return await self._read(path, lambda d, p: d.children(p, watch))
        except NoNode:
            return None

    async def sync(self) -> int:
        """Makes later reads at least as new as everything acknowledged to any client so far.
        Returns the zxid."""
        await self._read(paths.ROOT, lambda d, p: d.sync(p))
        return self.last_zxid

    async def acls(self, path: str) -> list[Acl] | None:
        try:
            return await self._read(path, lambda d, p: d.acls(p))
        except NoNode:
            return None

    # writing

    def write_in(self, schema: int) -> None:
        """Sets the schema in which records are written."""
        if schema != self._schema:
            self._schema = schema
            for callback in list(self.on_schema):
                callback()

    def spoken(self, path: str, data: bytes) -> bytes:
        """Returns a record in the schema in which records are written."""
        return spoken(path, data, self._schema)

    @contextlib.contextmanager
    def without_cluster(self) -> Iterator[None]:
        """Allows writes in a tree without a cluster, in order to found or restore one."""
        guards, self._guards = self._guards, ()
        try:
            yield
        finally:
            self._guards = guards

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        return cast(str, await self._commit_one(Create(path, data, ephemeral=ephemeral, sequential=sequential)))

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        return cast(Stat, await self._commit_one(Set(path, data, version)))

    async def _commit_one(self, op: Op) -> Result:
        try:
            return (await self.commit([op]))[0]
        except TransactionFailed as exc:
            raise exc.reason from None

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._write(path, lambda d, p: d.delete(p, version))

    async def ensure(self, path: str) -> None:
        """Creates a znode and its missing parents below the chroot."""
        if await self.exists(path) is not None:
            return
        for end in range(2, len(path) + 1):
            if end == len(path) or path[end] == "/":
                with contextlib.suppress(NodeExists):
                    await self.create(path[:end])

    async def make_chroot(self) -> None:
        """Creates the chroot itself. Daemons never do this."""
        for end in range(2, len(self._root) + 1):
            if end == len(self._root) or self._root[end] == "/":
                await self._make_above(self._root[:end])

    async def _make_above(self, full: str) -> None:
        with contextlib.suppress(NodeExists):
            await self._write(full, lambda d, _: d.create(full, b"", False, False))

    async def commit(self, ops: Sequence[Op]) -> list[Result]:
        """Commits all operations or none.

        Raises TransactionFailed with the operation that was refused, or `no_cluster` in a tree
        without a cluster.
        """
        if not ops:
            return []
        whole, ahead = [self._whole(op) for op in (*self._guards, *ops)], len(self._guards)
        check_size([*self._guards, *ops])
        sent = time.monotonic()
        try:
            results = await self._write(ops[0].path, lambda d, _: d.commit(whole))
        except TransactionFailed as exc:
            if exc.index < ahead:
                raise TorrentdistError("no_cluster", chroot=self._root) from None
            raise within(exc, ops, ahead) from None
        except TorrentdistError as error:
            if (refused := error.extra.get("znode")) is not None:
                error.extra["znode"] = self._inner(refused)
            raise
        for written in (result for result in results if isinstance(result, Stat)):
            self._clock, self._clock_session = (written.mtime, sent, time.monotonic()), self.session_id
        return [self._inner(result) if isinstance(result, str) else result for result in results[ahead:]]

    async def secure(self, path: str, acls: Sequence[Acl]) -> None:
        """Sets the ACL of an existing znode."""
        with contextlib.suppress(NoNode):
            await self._write(path, lambda d, p: d.set_acl(p, acls))

    # sending one request

    async def _read(self, path: str, ask: Callable[[AsyncKazoo, str], Awaitable[T]]) -> T:
        """Reads, and repeats the read after a lost connection, until the deadline."""
        deadline, pause = self._deadline(), 0.0
        while True:
            driver = await self._until_connected(deadline)
            try:
                async with asyncio.timeout_at(deadline):
                    return await ask(driver, self._full(path))
            except CutOff:
                await asyncio.sleep(pause)  # Let the matching state change arrive first.
                pause = _CUT_OFF_SECS
            except TimeoutError:
                raise _unavailable(f"no answer about {path}") from None

    async def _write(self, path: str, ask: Callable[[AsyncKazoo, str], Awaitable[T]]) -> T:
        """Writes once, and only in the session in which the caller decided to write."""
        deadline, session = self._deadline(), self.session_id
        driver = await self._until_connected(deadline)
        if session is not None and session != self.session_id:
            raise SessionExpired
        sent, session = time.monotonic(), self.session_id
        try:
            async with asyncio.timeout_at(deadline):
                answer = await ask(driver, self._full(path))
        except (TimeoutError, CutOff) as exc:
            raise TorrentdistError("outcome_unknown", detail=f"writing {path} to ZooKeeper") from exc
        self.write_secs = time.monotonic() - sent
        if session == self.session_id:
            self.last_write_acknowledged = max(sent, self.last_write_acknowledged or sent)
        return answer

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._config.operation_timeout_secs

    async def _until_connected(self, deadline: float) -> AsyncKazoo:
        while self.state is not SessionState.CONNECTED or self._driver is None:
            if self.state is SessionState.CLOSED:
                raise TorrentdistError("closing", what="the connection to ZooKeeper")
            changed = self._changed
            try:
                async with asyncio.timeout_at(deadline):
                    await changed.wait()
            except TimeoutError:
                raise _unavailable("no connection to " + ",".join(self._config.servers)) from None
        return self._driver

    def _whole(self, op: Op) -> Op:
        if isinstance(op, Create | Set):
            return msgspec.structs.replace(op, path=self._full(op.path), data=self.spoken(op.path, op.data))
        return msgspec.structs.replace(op, path=self._full(op.path))

    def _full(self, path: str) -> str:
        return self._root if path == paths.ROOT else self._root + path

    def _inner(self, full: str) -> str:
        return full[len(self._root) :] or paths.ROOT

    # the client's events

    def _launch(self) -> None:
        # Report it only once: a caller that starts the client again has seen the reason.
        resume, self._resume = self._resume, None
        driver = AsyncKazoo(self._config, self.identity.credentials, self._acl_of, self._on_event, resume)
        driver.start()
        self._driver = driver

    def _acl_of(self, full: str, data: bytes) -> Sequence[Acl]:
        is_ours = full == self._root or full.startswith(f"{self._root}/")
        return self.identity.table.of(self._inner(full) if is_ours else full, data)

    def _on_event(self, driver: AsyncKazoo, event: SessionEvent) -> None:
        if driver is not self._driver:
            return
        loop = asyncio.get_running_loop()
        match event:
            case Connected(session, negotiated_timeout):
                if session.id != self.session_id:
                    self.generation += 1
                    self.last_write_acknowledged = None
                self.session = session
                self.negotiated_timeout = negotiated_timeout
                self._connected_at = time.monotonic()
                self._enter(SessionState.CONNECTED)
            case Suspended():
                self._enter(SessionState.SUSPENDED)
                loop.call_later(self.negotiated_timeout, self._try_any_ensemble, driver, self._changed)
            case Lost(ended):
                self.session, self.last_write_acknowledged = None, None
                self._enter(SessionState.LOST)
                if ended:  # The session was refused, or the client has a bug: its thread has ended.
                    self._revive_later(driver)
            case ClientEnded():
                self._revive_later(driver)

    def _try_any_ensemble(self, driver: AsyncKazoo, since: asyncio.Event) -> None:
        """Forgets the zxid after a whole session timeout without a server: the ensemble may have
        been wiped."""
        if driver is self._driver and since is self._changed:
            driver.forget_zxid()

    def _revive_later(self, driver: AsyncKazoo) -> None:
        if time.monotonic() - self._connected_at > _LONGEST_REVIVAL_SECS:
            self._revival.succeeded()
        self._connected_at = math.inf
        if self._revival.failed("ended"):
            log.error("the ZooKeeper client ended, starting another one")
        asyncio.get_running_loop().call_later(self._revival.pause_secs, self._revive, driver)

    def _revive(self, driver: AsyncKazoo) -> None:
        if driver is not self._driver:
            return
        try:
            threading.Thread(target=driver.end, daemon=True).start()
            self._resume = self.session  # that of a client which was never connected may live on
            self._launch()
        except Exception as exc:  # such as no free descriptor or thread, or files of TLS that are being replaced
            if self._revival.failed(kind_of(exc)):
                log.error("no other ZooKeeper client can be started yet, trying again", reason=str(exc))
            asyncio.get_running_loop().call_later(self._revival.pause_secs, self._revive, driver)

    def _enter(self, state: SessionState) -> None:
        if state is not self.state:
            log.info("ZooKeeper session", state=state.value, session=self.session_id, generation=self.generation)
        self.state = state
        self.end_pauses()
        for callback in list(self.on_state):
            callback(state)


def _end(driver: AsyncKazoo, loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    driver.end()
    with contextlib.suppress(RuntimeError):  # The loop is closed.
        loop.call_soon_threadsafe(ended.set)


def _checked_chroot(chroot: str) -> str:
    """Returns a chroot like `/name` or `/name/name`. Refuses the ensemble's root, which others
    share."""
    names = chroot.split("/")[1:]
    if not chroot.startswith("/") or not all(paths.is_name(name) for name in names):
        raise TorrentdistError(
            "config_invalid", origin="zookeeper.chroot", detail=f"{chroot!r} is not like /torrentdist"
        )
    return chroot


def _check_sasl(config: ZooKeeperConfig) -> None:
    if config.sasl and not config.auth_file:
        raise TorrentdistError("config_missing", detail="zookeeper.sasl needs zookeeper.auth_file")
    if config.sasl and not SASL_AVAILABLE:
        raise TorrentdistError("missing_dependency", detail="zookeeper.sasl needs pure-sasl", package="pure-sasl")


def _unavailable(detail: str) -> TorrentdistError:
    return TorrentdistError("zookeeper_unavailable", detail=detail)
