"""Takes the bytes of uploads: from the uploader's swarm, or over HTTP from a client without
BitTorrent.

Always: before a record says `uploading`, the metafile is on this disk and there is room for it.
Bytes that came over HTTP, and what this host had of the bundle, are read again and verified before
they are published. One sender at a time sends a digest over HTTP.
Never: take one digest from the swarm and over HTTP at the same time.
Longer than most files: both ways to take bytes share what is open.
"""

import asyncio
import os
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from torrentdist.bundle.files.durability import disk_failures
from torrentdist.bundle.files.joined_files import write_at
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.reuse.missing_spans import MissingSpan, missing_spans, next_span
from torrentdist.bundle.reuse.recipe import parse_recipe
from torrentdist.cluster.records.mirror import Mirror
from torrentdist.cluster.records.record_index import RecordIndex
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.host.process.heavy_work import in_heavy_thread
from torrentdist.host.runtime import HostRuntime
from torrentdist.host.telemetry.upload_opening import tell_files, tell_opened
from torrentdist.master.bundles.bundle_operations import ANYBODY, BundleOperations, Uploader, check_can_read
from torrentdist.master.bundles.bundle_views import other_content
from torrentdist.master.bundles.recipes import Recipes
from torrentdist.master.changes.answered_requests import Mutation
from torrentdist.master.changes.commit import LeaderChanges
from torrentdist.master.replication.fetch_attempts import FetchAttempts
from torrentdist.master.replication.replication_plan import awaits_bytes, may_go_on, was_never_complete
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.records import BundleState
from torrentdist.security.authorization import ALL_BUNDLES, Principal, may_change

FILL_ANSWER_SECS = 5.0
"""How long an uploader waits for an answer while the leader copies content that it has already."""
GIVE_WAY_SECS = 30.0
"""How long after its last request another sender may send the same content."""
SEEN_SECS = 5.0
"""How long the opening of an upload waits until this master sees its record."""


@dataclass
class _Append:
    """One upload over HTTP.

    `offset`: number of bytes on disk, counted through the files one after another. `missing`: the
    spans that have to be sent, once `filling` is done.
    """

    meta: Metafile
    home: Path
    sender: str
    filling: asyncio.Task[None] | None = None
    offset: int = 0
    missing: list[MissingSpan] = field(default_factory=list)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def is_busy(self) -> bool:
        """Whether something writes into the content, or publishes it."""
        return self.lock.locked() or (self.filling is not None and not self.filling.done())


class Intake:
    def __init__(
        self,
        runtime: HostRuntime,
        mirror: Mirror,
        operations: BundleOperations,
        changes: LeaderChanges,
        attempts: FetchAttempts,
        recipes: Recipes,
    ) -> None:
        self._runtime = runtime
        self._mirror = mirror
        self._index = RecordIndex()
        self._operations = operations
        self._changes = changes
        self._appends: dict[Digest, _Append] = {}
        self._heard: dict[Digest, float] = {}
        """time.monotonic() of the last request that brought bytes or asked for the offset."""
        self._attempts = attempts
        self._recipes = recipes

    def over_http(self) -> frozenset[Digest]:
        """Returns the digests that arrive over HTTP, which the replicator leaves alone.

        Forgets uploads that will not go on here, so that their content is fetched.
        """
        for digest, append in list(self._appends.items()):
            silent, bundles = time.monotonic() - self._heard[digest], self.bundles_of(digest)
            if not append.is_busy() and not may_go_on(self._mirror.snapshot, bundles, self._changes.me, silent):
                self._forget(append)
        self._heard = {d: at for d, at in self._heard.items() if d in self._appends or self.bundles_of(d)}
        return frozenset(self._appends)

    def is_active(self, digest: Digest, within: float) -> bool:
        """Whether its uploader was heard in the last `within` seconds."""
        return digest in self._heard and self._heard[digest] >= time.monotonic() - within

    def _is_arriving(self, digest: Digest) -> bool:
        return digest in self._appends or digest in self._runtime.fetches.under_way()

    def awaits(self, digest: Digest) -> bool:
        """Whether the swarm may bring this content from its uploader."""
        return digest not in self.over_http() and awaits_bytes(self._mirror.snapshot, self.bundles_of(digest))

    def bundles_of(self, digest: Digest) -> list[BundleId]:
        """Returns the ids under which this content was uploaded, removed ones too."""
        self._index.follow(self._mirror.snapshot)
        return self._index.bundles_of(digest)

    async def open(
        self,
        mutation: Mutation | None,
        bundle: BundleId,
        meta: Metafile,
        min_replicas: int | None,
        recipe: str = "",
        uploader: Uploader = ANYBODY,
        traceparent: str = "",
    ) -> bytes:
        """`recipe`: the hash of the recipe that was offered before. `traceparent`: names the
        client's span."""
        before = await self._changes.recall(mutation)
        async with self._runtime.turn(meta.digest):  # the replicator does not drop this content meanwhile
            entry = self._mirror.snapshot.bundles.get(bundle)
            if entry is not None and entry.record.digest != meta.digest:
                raise other_content(entry.record)
            if before is None:
                self._operations.check_may_open(self._mirror.snapshot, bundle, meta, uploader)
            if entry is None:
                check_can_read(self._mirror.snapshot, meta)  # before room is taken for nothing
            if not any(_is_live(self._mirror.snapshot, other) for other in self.bundles_of(meta.digest)):
                self._appends.pop(meta.digest, None)  # of an earlier upload: its bytes may be gone
            # Another leader may have opened it, so that this disk lacks the metafile.
            if before is None or (entry is not None and entry.record.state is not BundleState.REMOVED):
                among = None if ALL_BUNDLES in uploader.reads else ()
                home = await self._runtime.store.begin(meta, among, at_work=self._is_arriving(meta.digest))
                await asyncio.to_thread(_renew, home / "metafile")  # it is not abandoned
                recipe = await self._recipes.accept(meta.digest, recipe)
                failure = self._attempts.disk_error(meta.digest)
                self._attempts.retry(meta.digest)
                if before is None:
                    tell_opened(self._runtime.events, bundle, meta, traceparent)
                if entry is None:
                    await tell_files(self._runtime.events, bundle, meta)
                if failure is not None and entry is not None and not self._mirror.snapshot.holders(bundle):
                    raise failure  # the uploader asks because nothing moves, and this is the reason
            if before is None:
                before = await self._operations.open_upload(mutation, bundle, meta, min_replicas, recipe, uploader)
                with suppress(TorrentdistError):  # the replicator decides by what this master has seen
                    await self._mirror.wait_for(lambda s: _is_live(s, bundle), SEEN_SECS)
            return before

    # over HTTP

    async def next_span(self, digest: Digest, sender: Principal) -> MissingSpan:
        """Returns the span to send next. It is empty if the leader needs longer than a moment to
        copy the content that it has already."""
        append = await self._append_of(digest, sender)
        if not await self._is_filled(append, FILL_ANSWER_SECS):
            return MissingSpan(0, 0)
        return next_span(append.missing, append.offset, append.meta.size)

    async def append(self, digest: Digest, offset: int, data: bytes, sender: Principal) -> MissingSpan:
        """Writes these bytes at `offset`. Returns the span to send next."""
        append = await self._append_of(digest, sender)
        await self._is_filled(append)
        async with append.lock:
            self._require_current(append)
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
            await self._runtime.store.check_room(append.meta.size - offset)
            await asyncio.to_thread(write_at, append.meta, append.home / "content", offset, data)
            span = next_span(append.missing, offset + len(data), append.meta.size)
            append.offset, self._heard[digest] = span.start, time.monotonic()
            return span

    async def finish(self, mutation: Mutation | None, digest: Digest, sender: Principal) -> bytes:
        before = await self._changes.recall(mutation)
        if before is not None:
            return before
        bundle = self._bundle_of(digest, sender)
        held = self._runtime.store.get(digest) is not None
        if not held and digest not in self._appends:  # another leader may have taken the bytes
            held = bool(self._mirror.snapshot.holders(bundle))
        if not held:
            append = await self._append_of(digest, sender)
            await self._is_filled(append)
            async with append.lock:
                self._require_current(append)
                if append.offset != append.meta.size:
                    raise TorrentdistError(
                        "invalid_request",
                        extra={"offset": append.offset},
                        detail=f"{append.offset} of {append.meta.size} bytes have arrived",
                    )
                try:
                    if self._runtime.store.get(digest) is None:  # a retry may find it published
                        await self._runtime.fetches.publish_sent(bundle, append.meta)
                finally:
                    self._forget(append)
                    self._attempts.poke()
        await self._mirror.wait_for(lambda s: bundle in s.bundles and bool(s.holders(bundle)), 10.0)
        return await self._operations.finish_upload(mutation, bundle)

    def _bundle_of(self, digest: Digest, sender: Principal) -> BundleId:
        """Returns the id under which this sender uploads the content, which others may upload under
        other ids."""
        snapshot = self._mirror.snapshot
        live = [bundle for bundle in self.bundles_of(digest) if _is_live(snapshot, bundle)]
        own = [bundle for bundle in live if snapshot.bundles[bundle].record.owner == sender.name]
        for bundle in own or [bundle for bundle in live if may_change(sender, [bundle])]:
            return bundle
        raise TorrentdistError("not_found", what=f"an opened upload of {digest}")

    async def _append_of(self, digest: Digest, sender: Principal) -> _Append:
        append = self._appends.get(digest)
        if append is not None and append.sender != sender.name:
            if append.is_busy() or time.monotonic() - self._heard[digest] < GIVE_WAY_SECS:
                raise TorrentdistError("uploading_already")
            self._forget(append)  # nobody knows what its sender has sent
            append = None
        if append is not None:
            self._heard[digest] = time.monotonic()
            return append
        bundle = self._bundle_of(digest, sender)
        meta = await self._runtime.store.metafile(digest)
        is_wanted = awaits_bytes(self._mirror.snapshot, self.bundles_of(digest))
        if meta is None or not is_wanted or self._runtime.store.get(digest) is not None:
            raise TorrentdistError("not_found", what=f"an unfinished upload of {digest}")
        self._heard[digest] = time.monotonic()
        append = self._appends.get(digest)  # another request may have been quicker
        if append is not None and append.sender != sender.name:
            raise TorrentdistError("uploading_already")
        if append is None:
            self._appends[digest] = append = _Append(meta, self._runtime.store.object_dir(digest), sender.name)
            append.filling = asyncio.create_task(self._take_known(bundle, append), name=f"fill {bundle}")
        return append

    async def _is_filled(self, append: _Append, within: float | None = None) -> bool:
        """Waits until this host has taken what it has. After a failure, the next one retries."""
        if append.filling is None:
            return True
        done, _ = await asyncio.wait({append.filling}, timeout=within)
        if done and (failure := append.filling.exception()) is not None:
            self._forget(append)
            raise failure
        return bool(done)

    def _forget(self, append: _Append) -> None:
        if self._appends.get(append.meta.digest) is append:
            del self._appends[append.meta.digest]

    def _require_current(self, append: _Append) -> None:
        """Raises an error if the upload was given up, or begun again, while this request waited."""
        if self._appends.get(append.meta.digest) is not append:
            raise TorrentdistError("invalid_request", extra={"offset": 0}, detail="the upload begins again")

    async def _take_known(self, bundle: BundleId, append: _Append) -> None:
        """Takes what this host has already, so that it need not be sent."""
        meta = append.meta
        await self._runtime.fetches.stop(meta.digest)
        arrival = await self._runtime.store.arrival(meta.digest)
        was_complete = arrival is None or arrival.set_aside is not None
        if not was_complete and was_never_complete(self._mirror.snapshot, self.bundles_of(meta.digest)):
            # Files that the swarm has half filled are of no use for bytes that come in order.
            await asyncio.to_thread(_empty, append.home)
        recipe = await in_heavy_thread(parse_recipe, await self._runtime.store.raw_recipe(meta.digest))
        sources = self._runtime.fetches.sources_of(bundle)
        filling = await self._runtime.store.fill(meta, recipe, lambda done: None, sources)
        for digest in filling.suspects:
            self._runtime.fetches.suspect(digest, meta.digest)
        whole = [MissingSpan(0, meta.size)] if meta.size else []
        have = filling.have
        append.missing = whole if have is None else missing_spans(meta.wire_files, meta.piece_length, have)
        append.offset = next_span(append.missing, 0, meta.size).start


def _is_live(snapshot: ClusterSnapshot, bundle: BundleId) -> bool:
    entry = snapshot.bundles.get(bundle)
    return entry is not None and entry.record.state is not BundleState.REMOVED


def _empty(home: Path) -> None:
    shutil.rmtree(home / "packs", ignore_errors=True)
    shutil.rmtree(home / "content", ignore_errors=True)
    with disk_failures(home):
        (home / "content").mkdir(exist_ok=True)


def _renew(path: Path) -> None:
    with disk_failures(path):
        os.utime(path)
