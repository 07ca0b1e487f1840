"""Reads bundles for the gateway's doors: finds one, or has it fetched, and answers with its files.

Always: what is sent is verified, confined to its bundle, and signed where [trust] wants that. A
bundle that is not here is fetched once, however many clients ask. An answer that cannot be finished
is cut off, never ended.
Never: decide how long anything is kept.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.bundle.bundle_tree import BundleTree
from torrentdist.bundle.metafile import FileEntry, Metafile
from torrentdist.host.http.file_answers import FILE_TYPE, Selection, file_response, no_body, part_response, select
from torrentdist.host.http.http_conditions import Representation
from torrentdist.host.http.web import StreamedAnswer
from torrentdist.host.process.heavy_work import in_heavy_thread
from torrentdist.host.recent_results import RecentResults
from torrentdist.host.runtime import HostRuntime
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.events import ReadStalled
from torrentdist.model.ids import BundleId, Digest
from torrentdist.supervisor.bundles.host_content import HostContent
from torrentdist.supervisor.bundles.keeper import Keeper

BEGIN_SECS = 40.0
"""Seconds until a fetch must have begun.

It is less than the 60 s for which Spark waits for an answer.
"""
FIRST_SECS = 20.0
"""Seconds for which the head of an answer waits for the first bytes.

A failure in this time is answered in words.
"""
LOOK_SECS = 0.02
"""Seconds between two looks whether a fetch has begun."""


class BundleReader:
    def __init__(self, runtime: HostRuntime, keeper: Keeper, stall_secs: float) -> None:
        self._stall_secs = stall_secs
        self._stalls: dict[Digest, float] = {}
        """When each stall was last told to the log of events. Many readers stall at once."""
        self._runtime = runtime
        self._keeper = keeper
        self._metafiles: RecentResults[Metafile | None] = RecentResults()
        self._trees: RecentResults[BundleTree] = RecentResults()

    async def file(self, request: Request, bundle: BundleId, relative: str) -> Response:
        """Answers with one file, whose symlinks are followed within the bundle."""
        store = self._runtime.store
        if (digest := self._published(bundle)) is None:
            digest = (await self.content(bundle)).meta.digest
        await self._keeper.verify(bundle, digest)
        path = await self._keeper.checked_file(bundle, digest, relative)
        stored = store.get(digest)
        if path is not None and stored is not None:
            await store.touch(digest)
            shown = (stored.content, path, digest, stored.published_at)
            answer = await asyncio.to_thread(file_response, request, *shown)
            if answer is not None:
                return answer
        # It is still on its way, or was dropped to make room.
        return await _arriving_file(request, await self.content(bundle), relative)

    async def content(self, bundle: BundleId) -> HostContent:
        """Returns the content as soon as its files are known; the fetch may still be under way."""
        if self._published(bundle) is None:
            self._keeper.request(bundle)
        store, began = self._runtime.store, time.monotonic()
        while True:
            digest = store.lookup(bundle)
            fetching = self._runtime.fetches.under_way()
            begun = digest is not None and (store.get(digest) is not None or digest in fetching)
            if begun and digest is not None:
                meta = await self._metafiles.get(digest, partial(store.metafile, digest))
                if meta is not None:  # else its directory is about to be made
                    await self._keeper.verify(bundle, digest)
                    return self._content_of(bundle, meta)
            if (error := self.failure(bundle, began)) is not None:
                raise error
            if self.failure(bundle) is not None:
                self._keeper.request(bundle)  # That was asked for by others, and may be over.
            if time.monotonic() > began + BEGIN_SECS:
                raise TorrentdistError("timed_out", what=f"asking for {bundle}", seconds=BEGIN_SECS)
            await asyncio.sleep(LOOK_SECS)

    async def tree(self, content: HostContent) -> BundleTree:
        """Returns the content's files and directories by path."""
        return await self._trees.get(content.meta.digest, lambda: in_heavy_thread(BundleTree, content.meta))

    def failure(self, bundle: BundleId, since: float = -math.inf) -> TorrentdistError | None:
        """Returns why the bundle does not arrive. None if it does, or if masters were last asked
        before this time (monotonic)."""
        return None if self._keeper.fetching(bundle) else self._keeper.error(bundle, since)

    def _content_of(self, bundle: BundleId, meta: Metafile) -> HostContent:
        runtime = self._runtime
        return HostContent(
            meta=meta,
            directory=runtime.store.object_dir(meta.digest) / "content",
            published=lambda: runtime.store.get(meta.digest) is not None,
            failure=lambda: self.failure(bundle),
            pieces=lambda: runtime.engine.transfer(meta.digest),
            checked=lambda path: self._checked(bundle, [path]),
            stall_secs=self._stall_secs,
            stalled=lambda: self._stalled(bundle, meta.digest),
        )

    def _stalled(self, bundle: BundleId, digest: Digest) -> TorrentdistError:
        """Makes the error of a reader that has received nothing for too long.

        The log of events is told once for all readers of a bundle.
        """
        problems = {entry.digest: entry.problem for entry in self._runtime.swarm_entries()}
        reason, now = problems.get(digest) or "its peers send nothing", time.monotonic()
        if now - self._stalls.get(digest, float("-inf")) >= self._stall_secs:
            self._stalls[digest] = now
            fact = ReadStalled(bundle=bundle, digest=digest, seconds=self._stall_secs, reason=reason)
            self._runtime.events.emit(fact)
        return TorrentdistError("read_stalled", id=bundle, seconds=self._stall_secs, reason=reason)

    async def _checked(self, bundle: BundleId, paths: list[str]) -> bool:
        return await self._keeper.checked(bundle, paths) is not None

    def _published(self, bundle: BundleId) -> Digest | None:
        store = self._runtime.store
        digest = store.lookup(bundle)
        return digest if digest is not None and store.get(digest) is not None else None


async def _arriving_file(request: Request, content: HostContent, relative: str) -> Response:
    file = next((f for f in content.meta.files if f.path == relative), None)
    if file is None:
        if any(link.path == relative for link in content.meta.symlinks):
            raise TorrentdistError("not_ready", detail=f"{relative} is a symlink of a bundle that still arrives")
        raise TorrentdistError("not_found", what=f"{relative!r} in this bundle")
    digest = content.meta.digest
    chosen = select(request, Representation(digest, file.size), digest)
    if isinstance(chosen, Response):
        return chosen
    return await sent(request, content, file, chosen)


async def sent(request: Request, content: HostContent, file: FileEntry, chosen: Selection) -> Response:
    """Answers with a part of a file, which may still arrive."""
    if chosen.is_long and content.published() and await content.checked(file.path):
        return part_response(request, content.directory / file.path, chosen, FILE_TYPE)
    return await streamed(request, content.read_part(file, chosen.start, chosen.end), chosen, FILE_TYPE)


async def streamed(request: Request, body: AsyncIterator[bytes], chosen: Selection, media_type: str) -> Response:
    """Returns the answer once its first bytes are there.

    An earlier failure is an error of its own.
    """
    status, headers = chosen.status, chosen.headers
    if request.method == "HEAD":
        return StreamedAnswer(no_body(), status_code=status, headers=headers, media_type=media_type)
    first = asyncio.ensure_future(anext(body, b""))
    await asyncio.wait({first}, timeout=FIRST_SECS)
    if first.done():
        first.result()

    async def whole() -> AsyncIterator[bytes]:
        try:
            yield await first
            async for data in body:
                yield data
        finally:
            first.cancel()

    return StreamedAnswer(whole(), status_code=status, headers=headers, media_type=media_type)
