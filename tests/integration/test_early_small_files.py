"""Small files that a host writes while their packs arrive, with a real engine, store and plug-in:
they are there before the last piece, and nothing is written once the fetch has ended."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from engines_in_process import address, engines, published, run, some
from zookeeper_fixtures import eventually

from torrentdist.bundle.file_tree import FileEntry
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.packs.arriving_files import ArrivingFiles
from torrentdist.bundle.packs.small_file_writer import SmallFileWriter
from torrentdist.bundle.store.store import Store
from torrentdist.distributor.torrent import TorrentCodeDistributor
from torrentdist.host.fetches import Fetches
from torrentdist.host.host_parts import HostParts
from torrentdist.host.host_store import HostStore
from torrentdist.host.known_swarms import KnownSwarms
from torrentdist.host.plugin_services import BundleSources, LoopServices
from torrentdist.host.runtime import HostRuntime
from torrentdist.host.swarm_transfers import SwarmTransfers
from torrentdist.host.telemetry.event_log import EventLog
from torrentdist.model.configuration.config import EventsConfig
from torrentdist.model.events import Writer
from torrentdist.model.ids import BundleId
from torrentdist.model.wire.transfer_messages import TransferPhase
from torrentdist.swarm.engine.engine import Engine, Transfer
from torrentdist.testing.sample_trees import some_bytes

BUNDLE = BundleId("small")
TREE = {f"d{number % 7}/f{number:04}": some_bytes(4000 + number, number) for number in range(1000)}
RATE = 1_500_000
"""In bytes per second, so that the fetch takes about three seconds."""


class LateEngine(Engine):
    """An engine that at first does not know which pieces are here."""

    def fetch(self, *args: Any, **kwargs: Any) -> Transfer:
        transfer = super().fetch(*args, **kwargs)
        have, until = transfer.have, time.monotonic() + 0.7

        def later() -> Sequence[bool]:
            return [] if time.monotonic() < until else have()

        transfer.have = later  # type: ignore[method-assign]
        return transfer


class SlowDisk:
    """Makes each small file take a while, and knows whether one is being written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        self.working = 0
        self.written = 0
        self._lock = threading.Lock()
        write = SmallFileWriter.write

        def slowly(writer: SmallFileWriter, file: FileEntry, data: bytes) -> None:
            with self._lock:
                self.working += 1
            try:
                time.sleep(seconds)
                write(writer, file, data)
                self.written += 1
            finally:
                with self._lock:
                    self.working -= 1

        monkeypatch.setattr(SmallFileWriter, "write", slowly)


class Taker:
    """A host that fetches from `giver`, without masters."""

    def __init__(self, engine: Engine, giver: Engine, top: Path) -> None:
        store = HostStore(Store.open(top / "store"))
        writer = Writer(node="taker", role="supervisor", rack="", run="0" * 12)
        events = EventLog(top / "events", EventsConfig(enabled=False), writer, lambda: None)
        parts = HostParts(store, engine, events, lambda within: None)
        known = KnownSwarms(engine)
        self.transfers = SwarmTransfers(parts, known, lambda digest: [address(giver, complete=True)])
        loop, guard = asyncio.get_running_loop(), SimpleNamespace(own_token=None, tls=None, only_https=False)
        services = LoopServices(self.transfers, BundleSources(_nobody, _nothing), loop, guard, list)  # type: ignore[arg-type]
        plugin = TorrentCodeDistributor()
        plugin.prepare({"host": services, "data_dir": top / "plugin", "options": {}})
        (top / "plugin").mkdir()
        self.fetches = Fetches(parts, self.transfers, plugin, _nothing)
        self.runtime = HostRuntime(parts, known, self.transfers, self.fetches)
        self.store = store


async def _nobody(_: BundleId) -> Any:
    return []


async def _nothing(_: BundleId) -> Any:
    return None


@asynccontextmanager
async def fetching(
    top: Path, engine: type[Engine] = Engine, *, rate: int = RATE, beside_plugin: bool = False
) -> AsyncIterator[tuple[Taker, Metafile, asyncio.Task[Any]]]:
    async with engines(*some(1)) as (giver,):
        meta = published(top / "given", TREE)
        giver.seed(meta, top / "given")
        taking = engine(some(1)[0])
        await taking.start()
        taker = Taker(taking, giver, top)
        taker.transfers.share_limit([meta.digest], rate)
        if beside_plugin:
            task: asyncio.Task[Any] = asyncio.create_task(taker.transfers.fetch(meta, await taker.store.begin(meta)))
        else:
            task = asyncio.create_task(taker.fetches.fetch(BUNDLE, meta))
        try:
            yield taker, meta, task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await taker.runtime.stop()


def written(taker: Taker, meta: Metafile) -> int:
    content = taker.store.object_dir(meta.digest) / "content"
    return sum(1 for path in content.rglob("*") if path.is_file()) if content.exists() else 0


@pytest.mark.case("N1")
def test_small_files_are_there_before_the_last_piece(tmp_path: Path) -> None:
    """If this fails, all files are written after the last piece, because at the first look the
    engine did not know yet what is here. It takes three seconds since the fetch is slowed down."""

    async def scenario() -> None:
        async with fetching(tmp_path, LateEngine) as (taker, meta, task):
            await eventually(lambda: written(taker, meta) > len(TREE) / 4, timeout=20.0)
            view = taker.runtime.transfer_view(meta.digest)
            early = view is not None and view.phase is TransferPhase.FETCHING
            await task
            assert early
            assert len(TREE) == written(taker, meta)

    run(scenario())


@pytest.mark.case("N2")
def test_a_bundle_is_removed_after_its_last_small_file_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, a thread writes files into a bundle that is being deleted, and they stay on
    the disk, or the removal fails."""
    disk = SlowDisk(monkeypatch, 0.02)

    async def scenario() -> None:
        async with fetching(tmp_path) as (taker, meta, task):
            await eventually(lambda: disk.working and disk.written > 20, timeout=20.0)
            await taker.runtime.drop(meta.digest)
            still, count = disk.working, disk.written
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await asyncio.sleep(0.1)
            assert (0, count) == (still, disk.written)
            assert not taker.store.object_dir(meta.digest).exists()
            assert set() == set(taker.store.arriving())

    run(scenario())


def test_a_bundle_that_is_held_by_now_stays_and_is_seeded(tmp_path: Path) -> None:
    """If this fails, a bundle is deleted from under a program, or it leaves its swarm: then no
    master calls it removed any more, and it stays for good."""

    async def scenario() -> None:
        async with fetching(tmp_path, rate=0) as (taker, meta, task):
            stored = await task
            before = taker.runtime.engine.transfer(meta.digest)
            kept = not await taker.runtime.drop(meta.digest, lambda: True)
            view = taker.runtime.transfer_view(meta.digest)
            assert kept
            assert stored.content.exists()
            assert view is not None
            assert TransferPhase.SEEDING is view.phase
            assert before is taker.runtime.engine.transfer(meta.digest)
            assert await taker.runtime.drop(meta.digest, lambda: False)
            assert not stored.content.exists()

    run(scenario())


@pytest.mark.case("N2")
def test_a_fetch_that_is_cancelled_twice_writes_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that shuts down while a bundle is removed cancels twice. If this fails, its threads
    write into a store that another process has by then."""
    disk = SlowDisk(monkeypatch, 0.02)

    async def scenario() -> None:
        async with fetching(tmp_path, beside_plugin=True) as (_, _, task):
            await eventually(lambda: disk.working and disk.written > 20, timeout=20.0)
            for _ in range(4):
                task.cancel()
                await asyncio.sleep(0.01)
            await asyncio.gather(task, return_exceptions=True)
            assert 0 == disk.working

    run(scenario())


def test_a_failure_of_early_writing_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If this fails, nobody learns why hosts wait for their disks after the last piece."""

    def fail(*_: Any) -> int:
        raise IndexError("early")

    monkeypatch.setattr(ArrivingFiles, "write", fail)

    async def scenario() -> None:
        async with fetching(tmp_path) as (taker, meta, task):
            await task
            assert len(TREE) == written(taker, meta)

    run(scenario())

    assert "at the end only" in "".join(capsys.readouterr())
