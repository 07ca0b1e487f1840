"""How a bundle's bytes enter the cluster: from the uploader's swarm, or over HTTP from a client without BitTorrent.

Always holds: the metafile is on this disk, with room reserved, before the record says `uploading`; bytes that came
over HTTP are all read and verified before they are published. Must not do: both ways for one digest at a time.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from torrentdist.bundle.metafile import Metafile
from torrentdist.cluster.records.mirror import Mirror
from torrentdist.cluster.records.record_index import RecordIndex
from torrentdist.host.runtime import HostRuntime
from torrentdist.master.bundles.bundle_operations import BundleOperations
from torrentdist.master.bundles.bundle_views import other_content
from torrentdist.master.changes.answered_requests import Mutation
from torrentdist.master.changes.commit import LeaderChanges
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.events import BundleFiles, FileFact
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.records import BundleState

FILES_A_LINE = 200
MOST_FILES = 20_000
"""More files of one bundle are not told to the log of events."""


@dataclass
class _Append:
    """One upload over HTTP: how many bytes of the files' concatenation are on disk."""

    meta: Metafile
    home: Path
    offset: int
    heard: float = field(default_factory=time.monotonic)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Intake:
    def __init__(
        self, runtime: HostRuntime, mirror: Mirror, operations: BundleOperations, changes: LeaderChanges
    ) -> None:
        self._runtime = runtime
        self._mirror = mirror
        self._index = RecordIndex()
        self._operations = operations
        self._changes = changes
        self._appends: dict[Digest, _Append] = {}
        self.on_published: Callable[[], None] = lambda: None
        self.on_begun: Callable[[Digest], None] = lambda _: None
        """Somebody has to write the replica record of what came over HTTP."""
        self.no_room_for: Callable[[Digest], TorrentdistError | None] = lambda _: None
        """What this host's disk said when its last fetch failed."""

    def over_http(self) -> frozenset[Digest]:
        """What arrives over HTTP: the replicator leaves it alone. What the leader has forgotten arrives no more."""
        return frozenset(digest for digest in self._appends if self._bundles_of(digest))

    def is_active(self, digest: Digest, within: float) -> bool:
        """Whether its uploader was heard in the last `within` seconds."""
        append = self._appends.get(digest)
        return append is not None and append.heard >= time.monotonic() - within

    def _bundles_of(self, digest: Digest) -> list[BundleId]:
        self._index.follow(self._mirror.snapshot)
        return self._index.bundles_of(digest)

    async def open(
        self, mutation: Mutation | None, bundle: BundleId, meta: Metafile, min_replicas: int | None
    ) -> bytes:
        before = await self._changes.recall(mutation)
        entry = self._mirror.snapshot.bundles.get(bundle)
        if entry is not None and entry.record.digest != meta.digest:
            raise other_content(entry.record)
        if entry is None:
            self._appends.pop(meta.digest, None)  # of an upload that was forgotten: its bytes may be gone
        # The leader that opened it may be gone, and this one's disk be without the metafile.
        if before is None or (entry is not None and entry.record.state is not BundleState.REMOVED):
            home = await self._runtime.store.begin(meta)
            await asyncio.to_thread(os.utime, home / "metafile")  # not abandoned, however long ago it was begun
            failure = self.no_room_for(meta.digest)
            self.on_begun(meta.digest)
            if entry is None:
                self._tell_files(bundle, meta)
            if failure is not None and entry is not None and not self._mirror.snapshot.holders(bundle):
                raise failure  # the uploader asks because nothing moves: this is why
        return before or await self._operations.open_upload(mutation, bundle, meta, min_replicas)

    def _tell_files(self, bundle: BundleId, meta: Metafile) -> None:
        files = [FileFact(root=file.root.hex(), size=file.size) for file in meta.files[:MOST_FILES] if file.size]
        for start in range(0, len(files), FILES_A_LINE):
            part = files[start : start + FILES_A_LINE]
            self._runtime.events.emit(BundleFiles(bundle=bundle, digest=meta.digest, files=part))

    # over HTTP

    async def offset(self, digest: Digest) -> int:
        return (await self._append_of(digest)).offset

    async def append(self, digest: Digest, offset: int, data: bytes) -> int:
        append = await self._append_of(digest)
        async with append.lock:
            if offset != append.offset:
                raise TorrentdistError(
                    "invalid_request",
                    extra={"offset": append.offset},
                    detail=f"bytes at {offset} do not follow those at {append.offset}",
                )
            if offset + len(data) > append.meta.size:
                raise TorrentdistError(
                    "too_large", what="the upload, in bytes,", size=offset + len(data), limit=append.meta.size
                )
            await asyncio.to_thread(_write_at, append.meta, append.home / "content", offset, data)
            append.offset += len(data)
            return append.offset

    async def finish(self, mutation: Mutation | None, digest: Digest) -> bytes:
        before = await self._changes.recall(mutation)
        if before is not None:
            return before
        bundle = self._bundle_of(digest)
        held = self._runtime.store.get(digest) is not None
        if not held and digest not in self._appends:  # the leader that got the bytes may be gone, and its copy not
            held = bool(self._mirror.snapshot.holders(bundle))
        if not held:
            append = await self._append_of(digest)
            async with append.lock:
                if append.offset != append.meta.size:
                    raise TorrentdistError(
                        "invalid_request",
                        extra={"offset": append.offset},
                        detail=f"{append.offset} of {append.meta.size} bytes have arrived",
                    )
                try:
                    if self._runtime.store.get(digest) is None:  # this may be asked again while it is done
                        await self._runtime.fetches.publish(append.meta)
                finally:
                    self._appends.pop(digest, None)
                    self.on_published()
        await self._mirror.wait_for(lambda s: bundle in s.bundles and bool(s.holders(bundle)), 10.0)
        return await self._operations.finish_upload(mutation, bundle)

    def _bundle_of(self, digest: Digest) -> BundleId:
        for bundle in self._bundles_of(digest):
            if self._mirror.snapshot.bundles[bundle].record.state is not BundleState.REMOVED:
                return bundle
        raise TorrentdistError("not_found", what=f"an opened upload of {digest}")

    async def _append_of(self, digest: Digest) -> _Append:
        append = self._appends.get(digest)
        if append is not None:
            append.heard = time.monotonic()
            return append
        self._bundle_of(digest)
        meta = await self._runtime.store.metafile(digest)
        if meta is None or self._runtime.store.get(digest) is not None:
            raise TorrentdistError("not_found", what=f"an unfinished upload of {digest}")
        self._appends[digest] = append = _Append(meta, self._runtime.store.object_dir(digest), 0)
        # The swarm's half-filled files are of no use for bytes that come in order.
        await self._runtime.fetches.stop(digest)
        await asyncio.to_thread(shutil.rmtree, append.home / "content", ignore_errors=True)
        return append


def _spans(meta: Metafile, offset: int, length: int) -> Iterator[tuple[str, int, int, int]]:
    """(path, offset in the file, start in the data, length) of the pieces that `length` bytes at `offset` fall into."""
    start = 0
    for entry in meta.files:
        end = start + entry.size
        low, high = max(start, offset), min(end, offset + length)
        if low < high:
            yield entry.path, low - start, low - offset, high - low
        start = end


def _write_at(meta: Metafile, content: Path, offset: int, data: bytes) -> None:
    view = memoryview(data)
    try:
        for path, at, begin, length in _spans(meta, offset, len(data)):
            target = content / path
            target.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            try:
                os.pwrite(fd, view[begin : begin + length], at)
            finally:
                os.close(fd)
    except OSError as exc:
        raise TorrentdistError("disk_error", path=str(content), detail=exc.strerror or str(exc)) from exc
