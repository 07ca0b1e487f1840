"""What the events of a host tell of a download: its phases, its sources and its end."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.host.telemetry import download_story
from torrentdist.host.telemetry.download_story import MOST_SOURCES, Download, reported_download
from torrentdist.host.telemetry.event_log import EventLog
from torrentdist.model.configuration.config import EventsConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.events import DownloadFailed, DownloadProgress, DownloadStarted, Fact, Source, Writer
from torrentdist.model.ids import BundleId
from torrentdist.model.wire.transfer_messages import Sources, TransferPhase, TransferView
from torrentdist.swarm.engine.transfer import Transfer

ID = BundleId("etl-1")


class Engine:
    """What a transfer needs from its engine."""

    def is_own(self, endpoint: tuple[str, int]) -> bool:
        return False

    def refresh(self) -> None: ...


class Arriving(Transfer):
    """A transfer without a swarm: a test moves it on."""

    def __init__(self, meta: Metafile) -> None:
        super().__init__(meta, Path("/none"), Engine(), phase=TransferPhase.FETCHING)
        self.sent: dict[tuple[str, int], int] = {}

    def now(self, view: TransferView) -> None:
        self._view = view

    def origins(self) -> dict[tuple[str, int], int]:
        return self.sent


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(download_story, "time", made)
    return made


@pytest.fixture
def meta(tmp_path: Path) -> Metafile:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "data").write_bytes(b"x" * 1000)
    return make_metafile(tmp_path / "source")


def view(meta: Metafile, sources: Sources, *, done: int, peers: int = 0, failures: int = 0) -> TransferView:
    return TransferView(
        digest=meta.digest, phase=TransferPhase.FETCHING, size=meta.size, done=done, peers=peers, rate=5.0,
        hash_failures=failures, sources=sources,
    )  # fmt: skip


PHASES = ("seconds", "prepare_secs", "wait_secs", "fetch_secs", "publish_secs")


def phases(download: Download) -> list[object]:
    figures = download.figures()
    return [figures[name] for name in PHASES]


def test_each_phase_has_its_time(clock: Clock, meta: Metafile) -> None:
    """An operator looks for a slow disk where the network is slow."""
    transfer = Arriving(meta)
    download = Download(ID, meta, lambda: transfer)
    clock.now += 1
    download.prepared()
    clock.now += 2
    transfer.now(view(meta, Sources(local=100), done=100))
    download.look()
    before = download.moving
    transfer.now(view(meta, Sources(local=100, masters=1), done=101))
    clock.now += 3
    download.look()
    clock.now += 10
    download.look()
    download.fetched()
    clock.now += 20

    assert (False, True) == (before, download.moving)
    assert [36.0, 1.0, 5.0, 10.0, 20.0] == phases(download)


def test_bytes_of_peers_are_first_bytes_too(clock: Clock, meta: Metafile) -> None:
    """A download from other hosts alone is said to have waited until its end."""
    transfer = Arriving(meta)
    download = Download(ID, meta, lambda: transfer)
    download.prepared()
    clock.now += 4
    transfer.now(view(meta, Sources(peers=1), done=1))
    download.look()
    clock.now += 5
    download.fetched()

    assert [9.0, 0.0, 4.0, 5.0, 0.0] == phases(download)


def test_a_phase_that_never_came_took_no_time(clock: Clock, meta: Metafile) -> None:
    """A download that failed before its first byte shows times that no clock can show."""
    unprepared, unmoved = Download(ID, meta, lambda: None), Download(ID, meta, lambda: None)
    clock.now += 3
    unmoved.prepared()
    clock.now += 4

    assert [7.0, 7.0, 0.0, 0.0, 0.0] == phases(unprepared)
    assert [7.0, 3.0, 4.0, 0.0, 0.0] == phases(unmoved)


def test_a_bundle_that_was_here_waits_and_fetches_nothing(clock: Clock, meta: Metafile) -> None:
    """The time to publish a bundle is counted as a wait for its first byte."""
    transfer = Arriving(meta)
    download = Download(ID, meta, lambda: transfer)
    clock.now += 1
    download.prepared()
    clock.now += 2
    transfer.now(view(meta, Sources(local=1000), done=1000))
    download.fetched()
    clock.now += 4

    assert [7.0, 1.0, 2.0, 0.0, 4.0] == phases(download)
    assert 1000 == download.figures()["local"]


def test_bytes_that_came_before_all_was_prepared_make_no_wait(clock: Clock, meta: Metafile) -> None:
    """A transfer that goes on is said to have waited for less than no time."""
    transfer = Arriving(meta)
    transfer.now(view(meta, Sources(masters=1), done=1))
    download = Download(ID, meta, lambda: transfer)
    download.look()
    clock.now += 3
    download.prepared()

    assert [3.0, 3.0, 0.0, 3.0, 0.0] == phases(download)


def test_what_was_brought_beside_the_swarm_counts_where_it_came_from(clock: Clock, meta: Metafile) -> None:
    """Bytes that a master sent in one answer are said to have been here before."""
    transfer = Arriving(meta)
    download = Download(ID, meta, lambda: transfer)
    download.prepared(filled=300, brought=Sources(masters=100))
    early = download.figures()
    transfer.now(view(meta, Sources(local=300, masters=150, outside=40), done=450, peers=2, failures=3))
    download.look()
    late = download.figures()

    assert (100, 200) == (early["from_masters"], early["local"])
    assert (250, 0, 200, 40, 3) == tuple(
        late[name] for name in ("from_masters", "from_peers", "local", "outside", "hash_failures")
    )


def test_the_peers_that_sent_most_are_named(clock: Clock, meta: Metafile) -> None:
    """A line of a large swarm names a thousand peers, or the wrong ones."""
    transfer = Arriving(meta)
    download = Download(ID, meta, lambda: transfer)
    transfer.sent = {(f"h{number}", 7): number for number in range(MOST_SOURCES + 1)}
    for peers in (3, 9, 2):
        transfer.now(view(meta, Sources(), done=0, peers=peers))
        download.look()
    figures = download.figures()
    sources = figures["sources"]
    assert isinstance(sources, list)

    assert (9, MOST_SOURCES) == (figures["peers"], len(sources))
    assert Source(host=f"h{MOST_SOURCES}", port=7, bytes=MOST_SOURCES) == sources[0]
    assert Source(host="h1", port=7, bytes=1) == sources[-1]


def test_the_last_state_outlives_the_transfer(clock: Clock, meta: Metafile) -> None:
    """The end of a download that was stopped tells nothing of what had come."""
    transfer: Arriving | None = Arriving(meta)
    download = Download(ID, meta, lambda: transfer)
    assert transfer is not None
    transfer.now(view(meta, Sources(masters=500), done=500))
    download.look()
    transfer = None
    download.look()

    assert 500 == download.figures()["from_masters"]


def events_of(tmp_path: Path, progress_secs: float = 60.0) -> tuple[EventLog, list[Fact]]:
    heard: list[Fact] = []
    writer = Writer(node="host-1", role="supervisor", rack="", run="0" * 12)
    config = EventsConfig(enabled=False, progress_secs=progress_secs)
    events = EventLog(tmp_path / "events", config, writer, lambda: None)
    events.subscribe(heard.append)
    return events, heard


def told(tmp_path: Path, meta: Metafile, failure: BaseException | None) -> list[Fact]:
    """Returns the events of a download that ends so."""
    events, heard = events_of(tmp_path)

    async def play() -> None:
        async with reported_download(events, ID, meta, lambda: None):
            if failure is not None:
                raise failure

    with contextlib.suppress(TorrentdistError, ValueError, asyncio.CancelledError):
        asyncio.run(play())
    return heard


def test_a_download_that_began_also_ends(tmp_path: Path, meta: Metafile) -> None:
    """A report shows a download that has no end, or none that was published."""
    facts = told(tmp_path, meta, None)

    assert DownloadStarted(bundle=ID, digest=meta.digest, size=meta.size) == facts[0]
    assert ["DownloadStarted", "DownloadFinished", "BundlePublished"] == [type(fact).__name__ for fact in facts]


@pytest.mark.parametrize(
    ("failure", "code", "reason"),
    [
        (TorrentdistError("closing", what="x"), "closing", TorrentdistError("closing", what="x").message),
        (asyncio.CancelledError(), "stopped", "it is no longer wanted"),
        (ValueError("odd"), "internal", "odd"),
        (ValueError(), "internal", "ValueError"),
    ],
)
def test_a_download_that_failed_says_why(
    tmp_path: Path, meta: Metafile, failure: BaseException, code: str, reason: str
) -> None:
    """An operator takes a fetch that was called off for a failure, or learns no reason."""
    *_, last = told(tmp_path, meta, failure)

    assert isinstance(last, DownloadFailed)
    assert (code, reason) == (last.code, last.reason)


def test_a_long_download_tells_of_its_progress(tmp_path: Path, meta: Metafile) -> None:
    """Nobody sees from outside whether a download of an hour moves."""
    events, heard = events_of(tmp_path, progress_secs=0.01)
    told_of = asyncio.Event()
    events.subscribe(lambda fact: told_of.set() if isinstance(fact, DownloadProgress) else None)
    transfer = Arriving(meta)
    transfer.now(view(meta, Sources(masters=100, local=200), done=300, peers=2))

    async def play() -> None:
        async with asyncio.timeout(10), reported_download(events, ID, meta, lambda: transfer):
            await told_of.wait()

    asyncio.run(play())
    news = next(fact for fact in heard if isinstance(fact, DownloadProgress))

    assert (300, 5.0, 2, 100, 0, 200) == (
        news.done, news.rate, news.peers, news.from_masters, news.from_peers, news.local
    )  # fmt: skip
