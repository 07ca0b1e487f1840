"""Real ZooKeeper servers for tests, their clients, and a TCP proxy that a test can cut.

All tests of a worker share one server, each in a chroot of its own. A test that stops or pauses a
server asks for its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from patience import patient

from torrentdist.cluster.session.founding import found_cluster
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.dev.embedded_zookeeper import EmbeddedZooKeeper, ZooKeeperServer
from torrentdist.model.configuration.config import ZooKeeperConfig

SESSION_SECS = 2.0
START_SECS = 120.0
"""A bound that only means: not for ever."""

# Sessions last longer than a busy machine makes clients wait. A test in which a session must expire
# asks for a shorter one.
PATIENT: dict[str, Any] = {"session_timeout_secs": 10.0, "operation_timeout_secs": 10.0}
SHORT: dict[str, Any] = {"session_timeout_secs": SESSION_SECS, "operation_timeout_secs": 1.0}

Connect = Callable[..., Awaitable[ZooKeeper]]


def write_auth(path: Path, line: str) -> str:
    """Writes a file for `zookeeper.auth_file`, and returns its path."""
    path.write_text(line + "\n")
    path.chmod(0o600)
    return str(path)


@contextlib.contextmanager
def records_client(root: str) -> Iterator[KazooClient]:
    """Yields a connected client of the tree at `root`, such as 127.0.0.1:2181/torrentdist."""
    client = KazooClient(hosts=root)
    client.start(10)
    try:
        yield client
    finally:
        client.stop()
        client.close()


_at_end = contextlib.ExitStack()


def pytest_sessionfinish() -> None:
    _at_end.close()


@functools.cache
def shared_zookeeper() -> EmbeddedZooKeeper:
    """One server per worker. Do not stop, pause or wipe it, and use a root of your own."""
    directory = tempfile.mkdtemp(prefix="torrentdist-zookeeper-")
    _at_end.callback(shutil.rmtree, directory, ignore_errors=True)
    embedded = EmbeddedZooKeeper(Path(directory))
    _at_end.callback(embedded.kill)
    embedded.start(START_SECS)
    return embedded


def new_root() -> str:
    return f"/test-{secrets.token_hex(6)}"


@pytest.fixture
def zookeeper() -> EmbeddedZooKeeper:
    return shared_zookeeper()


@pytest.fixture
def own_zookeeper(tmp_path: Path) -> Iterator[EmbeddedZooKeeper]:
    """A server of the test's own, which it may stop, pause and wipe."""
    embedded = EmbeddedZooKeeper(tmp_path / "zookeeper")
    embedded.start(START_SECS)
    yield embedded
    embedded.kill()


@pytest.fixture
def chroot() -> str:
    return new_root()


@pytest.fixture
async def connect(zookeeper: EmbeddedZooKeeper, chroot: str) -> AsyncIterator[Connect]:
    """Makes connected clients of the shared server, or of `servers=`, and closes them after the
    test."""
    clients: list[ZooKeeper] = []

    async def make(*, founded: bool = True, **settings: object) -> ZooKeeper:
        """`founded`: creates the records of a cluster first, as `ha init` does."""
        defaults = {"servers": zookeeper.addresses, "chroot": chroot, **PATIENT}
        client = ZooKeeper(ZooKeeperConfig(**{**defaults, **settings}))
        clients.append(client)
        await client.start(10.0)
        if founded:
            await found_cluster(client)
        return client

    yield make
    await asyncio.gather(*(client.close() for client in clients))


@pytest.fixture
async def proxy(zookeeper: EmbeddedZooKeeper) -> AsyncIterator[TcpProxy]:
    """A proxy between a client and the shared server."""
    between = TcpProxy(zookeeper.servers[0])
    await between.start()
    yield between
    await between.close()


class TcpProxy:
    """Forwards a port to a server until the test breaks the connection in one of several ways."""

    def __init__(self, server: ZooKeeperServer) -> None:
        self._server = server
        self._listener: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._cut = False
        self._answers = asyncio.Event()
        self._answers.set()
        self._swallow: bytes | None = None
        self.address = ""
        self.accepted = 0

    async def start(self) -> None:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._listener.sockets[0].getsockname()
        self.address = f"{host}:{port}"

    def cut(self) -> None:
        """Breaks open connections and refuses new ones."""
        self._cut = True
        self.drop()

    def mend(self) -> None:
        self._cut = False
        self._answers.set()

    def hold_answers(self) -> None:
        """Delivers requests, but holds back all answers."""
        self._answers.clear()

    @property
    def answering(self) -> bool:
        return self._answers.is_set()

    def swallow_answer_to(self, request: bytes) -> None:
        """Delivers the next request that contains these bytes, and swallows all answers from then
        on."""
        self._swallow = request

    def drop(self) -> None:
        """Breaks every open connection; new ones are accepted."""
        for writer in list(self._open):
            writer.transport.abort()

    async def dropped_and_back(self) -> None:
        """Breaks every open connection, and waits for the next one."""
        before = self.accepted
        self.drop()
        await eventually(lambda: self.accepted > before)

    async def close(self) -> None:
        self.cut()
        if self._listener is not None:
            self._listener.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._cut:
            writer.transport.abort()
            return
        self.accepted += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        there: asyncio.StreamWriter | None = None
        with contextlib.suppress(OSError, asyncio.CancelledError):
            back, there = await asyncio.open_connection("127.0.0.1", self._server.port)
            self._open |= {writer, there}
            await asyncio.gather(self._copy(reader, there, held=False), self._copy(back, writer, held=True))
        for end in (writer, there):
            if end is not None:
                self._open.discard(end)
                end.transport.abort()
                with contextlib.suppress(OSError, asyncio.CancelledError):
                    await end.wait_closed()

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, held: bool) -> None:
        while data := await source.read(65536):
            if held:
                await self._answers.wait()
            elif self._swallow is not None and self._swallow in data:
                self._swallow = None
                self.hold_answers()
            sink.write(data)
            await sink.drain()
        raise ConnectionResetError


async def expire(client: ZooKeeper, servers: Sequence[str] = ()) -> None:
    """Ends the client's session without its knowledge: another connection takes the session over
    and closes it."""
    driver = client._driver
    assert driver is not None
    session = (client.session_id, driver._client._session_passwd)
    thief = KazooClient(hosts=",".join(servers or client._config.servers), client_id=session)
    try:
        await asyncio.to_thread(thief.start, 10)
    finally:
        await asyncio.to_thread(thief.stop)
        await asyncio.to_thread(thief.close)


async def eventually(condition: Callable[[], object], timeout: float = 30.0) -> None:
    """Wait until `condition` holds. Looks ever less often: some conditions read many files."""
    began = time.monotonic()
    async with asyncio.timeout(patient(timeout)):
        while not condition():  # noqa: ASYNC110  # the condition is any state of anything
            await asyncio.sleep(min(0.05, 0.005 + (time.monotonic() - began) / 50))


async def eventually_async(condition: Callable[[], Awaitable[object]], timeout: float = 30.0) -> None:
    began = time.monotonic()
    while not await condition():
        waited = time.monotonic() - began
        assert waited < patient(timeout), "the condition never held"
        await asyncio.sleep(min(0.05, 0.01 + waited / 50))
