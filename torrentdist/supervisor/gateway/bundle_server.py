"""Serves bundles over the loopback gateway: files and archives, also while they still arrive.

Always: what is sent is verified, confined to its bundle, and signed where [trust] wants that. A
bundle that is not here is fetched once, however many clients ask. An answer that cannot be finished
is cut off, never ended.
Never: decide how long anything is kept.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Iterator
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from torrentdist.bundle.metafile import Metafile
from torrentdist.host.http.file_answers import FILE_TYPE, Selection, file_response, no_body, path_response, select
from torrentdist.host.http.http_conditions import Representation
from torrentdist.host.http.operation import FILE, Operation
from torrentdist.host.http.web import json_response, on_torrentdist_error
from torrentdist.host.parsed_metafiles import ParsedMetafiles
from torrentdist.host.process.heavy_work import in_heavy_thread
from torrentdist.host.runtime import HostRuntime
from torrentdist.model import ids
from torrentdist.model.errors import ERRORS, TorrentdistError
from torrentdist.model.events import ReadStalled
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.wire.fleet_messages import HostBundleView, HostState
from torrentdist.security.principal import Role
from torrentdist.supervisor.bundles.host_content import HostContent
from torrentdist.supervisor.bundles.keeper import Keeper
from torrentdist.supervisor.gateway.archive_cache import ArchiveCache
from torrentdist.supervisor.gateway.archives import ArchiveFormat, archive, size_of

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
TICK_SECS = 5.0
"""Seconds between two blanks of an answer that waits for its bundle."""
_READABLE = "_'():,;.+-="


class BundleServer:
    def __init__(self, runtime: HostRuntime, keeper: Keeper, archives: ArchiveCache, stall_secs: float) -> None:
        self._stall_secs = stall_secs
        self._stalls: dict[Digest, float] = {}
        """When each stall was last told to the log of events. Many readers stall at once."""
        self._runtime = runtime
        self._keeper = keeper
        self._archives = archives
        self._metafiles = ParsedMetafiles(runtime.store.metafile)

    def operations(self) -> Iterator[Operation]:
        bundle = "/bundles/{id}"
        summary = "one file; a bundle that is not here is fetched"
        yield Operation("GET", f"{bundle}/files/{{path:any_path}}", self.file, None, summary, Role.JOB, statuses=FILE)
        summary = "where the bundle lies on this host, once it does"
        yield Operation("GET", f"{bundle}/local/{{name}}", self.ticket, HostBundleView, summary, Role.JOB)
        summary = "the bundle as one archive: .tar, .tar.gz or .zip"
        yield Operation("GET", f"{bundle}/{{name}}", self.archive, None, summary, Role.JOB, statuses=FILE)
        summary = "an error in words, where a Java client is sent to"
        yield Operation("GET", "/error/{code}/{sentence:any_path}", told_error, None, summary, Role.JOB)

    async def file(self, request: Request) -> Response:
        bundle, relative = ids.bundle_id(request.path_params["id"]), request.path_params["path"]
        store = self._runtime.store
        if (digest := self._published(bundle)) is None:
            digest = (await self._content(bundle)).meta.digest
        await self._keeper.verify(bundle, digest)
        path = await self._keeper.checked_file(bundle, digest, relative)
        stored = store.get(digest)
        if path is None or stored is None:
            content = await self._content(bundle)
            return await _arriving_file(request, content, relative)
        await store.touch(digest)
        return await asyncio.to_thread(file_response, request, stored.content, path, digest, stored.published_at)

    async def archive(self, request: Request) -> Response:
        """Answers with the bundle as one archive, under any name: Spark wants a name for each
        bundle.
        """
        bundle, kind = ids.bundle_id(request.path_params["id"]), _kind_of(request)
        content = await self._content(bundle)
        meta, stored = content.meta, self._runtime.store.get(content.meta.digest)
        if stored is not None:
            await self._runtime.store.touch(meta.digest)
        shown = Representation(f"{meta.digest}.{kind}", modified=None if stored is None else int(stored.published_at))
        chosen = select(request, shown, meta.digest)
        if isinstance(chosen, Response):
            return chosen
        growing = None if request.method == "HEAD" else await self._archives.get(content, kind)
        if growing is not None and growing.whole and growing.path.exists():
            shown = dataclasses.replace(shown, size=growing.written)
            return path_response(request, growing.path, shown, meta.digest, kind.media_type)
        size = await in_heavy_thread(size_of, meta, kind) if growing is None else growing.size
        if size is not None:
            chosen.headers["content-length"] = str(size)
        body = archive(meta, kind, content.read_all) if growing is None else growing.follow()
        return await _streamed(request, body, chosen, kind.media_type)

    async def ticket(self, request: Request) -> Response:
        """Answers with the place of the bundle on this host, once it is here.

        Until then it sends blanks, which JSON allows, so that the client does not give up.
        """
        bundle = ids.bundle_id(request.path_params["id"])
        await self._content(bundle)
        return StreamingResponse(self._await_bundle(bundle), media_type="application/json")

    async def _await_bundle(self, bundle: BundleId) -> AsyncIterator[bytes]:
        await self._keeper.checked(bundle)
        while (view := await self._keeper.wait(bundle, TICK_SECS)).state is not HostState.DONE:
            if (error := self._failure(bundle)) is not None:
                raise error
            yield b" "
        yield bytes(json_response(view).body)

    async def _content(self, bundle: BundleId) -> HostContent:
        """Returns the content as soon as its files are known; the fetch may still be under way."""
        if self._published(bundle) is None:
            self._keeper.request(bundle)
        store, deadline = self._runtime.store, time.monotonic() + BEGIN_SECS
        while True:
            digest = store.lookup(bundle)
            fetching = self._runtime.fetches.under_way()
            begun = digest is not None and (store.get(digest) is not None or digest in fetching)
            if begun and digest is not None:
                meta = await self._metafiles.get(digest)
                if meta is not None:  # else its directory is about to be made
                    await self._keeper.verify(bundle, digest)
                    return self._content_of(bundle, meta)
            if (error := self._failure(bundle)) is not None:
                raise error
            if time.monotonic() > deadline:
                raise TorrentdistError("timed_out", what=f"asking for {bundle}", seconds=BEGIN_SECS)
            await asyncio.sleep(LOOK_SECS)

    def _content_of(self, bundle: BundleId, meta: Metafile) -> HostContent:
        runtime = self._runtime
        return HostContent(
            meta=meta,
            directory=runtime.store.object_dir(meta.digest) / "content",
            published=lambda: runtime.store.get(meta.digest) is not None,
            failure=lambda: self._failure(bundle),
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

    def _failure(self, bundle: BundleId) -> TorrentdistError | None:
        return None if self._keeper.fetching(bundle) else self._keeper.error(bundle)


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
    return await _streamed(request, content.read_part(file, chosen.start, chosen.end), chosen, FILE_TYPE)


def _kind_of(request: Request) -> ArchiveFormat:
    name = request.path_params["name"]
    kind = next((kind for kind in ArchiveFormat if name.endswith(f".{kind}")), None)
    if kind is None:
        raise TorrentdistError("not_found", what=f"{request.url.path}: only .tar, .tar.gz and .zip are made; it")
    return kind


async def _streamed(request: Request, body: AsyncIterator[bytes], chosen: Selection, media_type: str) -> Response:
    """Returns the answer once its first bytes are there.

    An earlier failure is an error of its own.
    """
    status, headers = chosen.status, chosen.headers
    if request.method == "HEAD":
        return StreamingResponse(no_body(), status_code=status, headers=headers, media_type=media_type)
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

    return StreamingResponse(whole(), status_code=status, headers=headers, media_type=media_type)


# errors, for a reader that shows nothing but the URL


async def on_bundle_error(request: Request, exc: Exception) -> Response:
    """Redirects Java, and so Spark, to a URL that contains the error.

    Java shows its user only the URL that failed, and nothing of the answer.
    """
    assert isinstance(exc, TorrentdistError)
    if not request.url.path.startswith("/bundles/") or not request.headers.get("user-agent", "").startswith("Java/"):
        return await on_torrentdist_error(request, exc)
    sentence = quote(f"{exc.message}. {exc.hint}".replace(" ", "_"), safe=_READABLE)
    return RedirectResponse(f"/error/{exc.code}/{sentence}", status_code=302)


async def told_error(request: Request) -> Response:
    """Answers at the URL that on_bundle_error redirects to."""
    kind = ERRORS.get(request.path_params["code"])
    if kind is None:
        raise TorrentdistError("not_found", what=request.url.path)
    sentence = request.path_params["sentence"].replace("_", " ")
    return json_response({"error": request.path_params["code"], "message": sentence}, status=kind.http_status)
