"""Reports a download as events: its start, its progress, and its end with the duration of each
phase.

Always: a download that was reported as started is also reported as ended, however it ends.
Never: change anything about the download.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

from msgspec.structs import replace

from torrentdist.bundle.metafile import Metafile
from torrentdist.host.telemetry.event_log import EventLog
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.events import (
    BundlePublished,
    DownloadFailed,
    DownloadFinished,
    DownloadProgress,
    DownloadStarted,
    Fact,
    Source,
)
from torrentdist.model.ids import BundleId
from torrentdist.model.wire.transfer_messages import Sources, TransferPhase, TransferView
from torrentdist.model.wording import cause_text
from torrentdist.swarm.engine.engine import Transfer

LOOK_SECS = 0.5
STEADY_LOOK_SECS = 1.0
"""Interval between readings of the transfer once bytes have arrived."""
MOST_SOURCES = 256
NOTHING = Sources()
Tell = Callable[[Fact], None]


class Download:
    """When each phase of a download began, and the latest state of its transfer."""

    def __init__(self, bundle: BundleId, meta: Metafile, find: Callable[[], Transfer | None]) -> None:
        self.bundle = bundle
        self.meta = meta
        self._find = find
        self._began = time.monotonic()
        self._prepared: float | None = None
        self._first_byte: float | None = None
        self._fetched: float | None = None
        self._most_peers = 0
        self._last = TransferView(digest=meta.digest, phase=TransferPhase.FETCHING, size=meta.size, done=0)
        self._sources: list[Source] = []
        self._brought = NOTHING

    @property
    def moving(self) -> bool:
        return self._first_byte is not None

    def prepared(self, filled: int = 0, brought: Sources = NOTHING) -> None:
        """Notes that the fetch may begin. `filled` bytes are here already, with those that were
        `brought` beside the swarm."""
        self._prepared = time.monotonic()
        self._brought = brought
        self._last = replace(self._last, done=filled, sources=Sources(local=filled).with_brought(brought))

    def fetched(self) -> None:
        self._fetched = time.monotonic()
        self.look()

    def look(self) -> TransferView:
        transfer = self._find()
        if transfer is not None:
            view = transfer.view()
            self._last = replace(view, sources=view.sources.with_brought(self._brought))
            self._most_peers = max(self._most_peers, view.peers)
            if self._first_byte is None and view.sources.masters + view.sources.peers > 0:
                self._first_byte = time.monotonic()
            origins = sorted(transfer.origins().items(), key=lambda item: -item[1])[:MOST_SOURCES]
            self._sources = [Source(host=host, port=port, bytes=count) for (host, port), count in origins]
        return self._last

    def figures(self) -> dict[str, object]:
        """Returns the fields of a DownloadEnd event."""
        now = time.monotonic()
        fetched = self._fetched or now
        prepared = self._prepared or fetched
        first = self._first_byte or fetched
        sources = self._last.sources
        return {
            "bundle": self.bundle,
            "digest": self.meta.digest,
            "size": self.meta.size,
            "seconds": now - self._began,
            "prepare_secs": prepared - self._began,
            "wait_secs": max(0.0, first - prepared),
            "fetch_secs": max(0.0, fetched - first),
            "publish_secs": now - fetched,
            "from_masters": sources.masters,
            "from_peers": sources.peers,
            "local": sources.local,
            "peers": self._most_peers,
            "hash_failures": self._last.hash_failures,
            "sources": self._sources,
            "outside": sources.outside,
        }

    def progress(self) -> DownloadProgress:
        view = self.look()
        return DownloadProgress(
            bundle=self.bundle,
            digest=self.meta.digest,
            size=self.meta.size,
            done=view.done,
            rate=view.rate,
            peers=view.peers,
            from_masters=view.sources.masters,
            from_peers=view.sources.peers,
            local=view.sources.local,
        )


@contextlib.asynccontextmanager
async def reported_download(
    events: EventLog, bundle: BundleId, meta: Metafile, find: Callable[[], Transfer | None]
) -> AsyncIterator[Download]:
    download, tell = Download(bundle, meta, find), events.emit
    tell(DownloadStarted(bundle=bundle, digest=meta.digest, size=meta.size))
    watching = asyncio.create_task(_watch(tell, download, events.progress_secs), name=f"story of {bundle}")
    try:
        yield download
    except BaseException as exc:
        download.look()
        code, reason = _why(exc)
        tell(DownloadFailed(**download.figures(), code=code, reason=reason))  # type: ignore[arg-type]
        raise
    else:
        tell(DownloadFinished(**download.figures()))  # type: ignore[arg-type]
        tell(BundlePublished(bundle=bundle, digest=meta.digest, size=meta.size))
    finally:
        watching.cancel()


async def _watch(tell: Tell, download: Download, progress_secs: float) -> None:
    due = time.monotonic() + progress_secs
    while True:
        await asyncio.sleep(min(STEADY_LOOK_SECS if download.moving else LOOK_SECS, progress_secs))
        if time.monotonic() < due:
            download.look()
        else:
            due += progress_secs
            tell(download.progress())


def _why(exc: BaseException) -> tuple[str, str]:
    if isinstance(exc, TorrentdistError):
        return exc.code, exc.message
    if isinstance(exc, asyncio.CancelledError):
        return "stopped", "it is no longer wanted"
    return "internal", cause_text(exc) or type(exc).__name__
