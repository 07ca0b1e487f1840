"""Serves bundles over the loopback gateway: files and archives, also while they still arrive.

Always: what is sent comes from bundle_reader.py. Java, which shows nothing but the URL that failed,
finds the reason in that URL.
Never: decide how long anything is kept.
"""

import time
from collections.abc import AsyncIterator
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from torrentdist.host.http.declared_routes import DeclaredRoutes, operation
from torrentdist.host.http.file_answers import path_response, select
from torrentdist.host.http.http_conditions import Representation
from torrentdist.host.http.operation import FILE
from torrentdist.host.http.web import StreamedAnswer, json_response, on_torrentdist_error
from torrentdist.host.process.heavy_work import in_heavy_thread
from torrentdist.host.runtime import HostRuntime
from torrentdist.model import ids
from torrentdist.model.errors import ERRORS, TorrentdistError, required
from torrentdist.model.ids import BundleId
from torrentdist.model.wire.fleet_messages import HostBundleView, HostState
from torrentdist.security.authorization import Role
from torrentdist.supervisor.bundles.keeper import Keeper
from torrentdist.supervisor.gateway.archive_cache import ArchiveCache
from torrentdist.supervisor.gateway.archives import ArchiveFormat, archive, lost_by_spark, size_of
from torrentdist.supervisor.gateway.bundle_reader import BundleReader, streamed

TICK_SECS = 5.0
"""Seconds between two blanks of an answer that waits for its bundle."""
IMPORTED = ".py.zip"
"""The ending of a name under which a zip is imported from and not unpacked."""
_READABLE = "_'():,;.+-="


class BundleServer(DeclaredRoutes):
    def __init__(self, runtime: HostRuntime, keeper: Keeper, reader: BundleReader, archives: ArchiveCache) -> None:
        self._runtime = runtime
        self._keeper = keeper
        self._reader = reader
        self._archives = archives

    @operation("GET", "/bundles/{id}/files/{path:any_path}", None, Role.JOB, statuses=FILE)
    async def file(self, request: Request) -> Response:
        """One file; a bundle that is not here is fetched."""
        return await self._reader.file(request, ids.bundle_id(request.path_params["id"]), request.path_params["path"])

    @operation("GET", "/bundles/{id}/local/{name}", HostBundleView, Role.JOB)
    async def ticket(self, request: Request) -> Response:
        """Where the bundle lies on this host, once it does.

        Until then it sends blanks, which JSON allows, so that the client does not give up.
        """
        bundle, began = ids.bundle_id(request.path_params["id"]), time.monotonic()
        await self._reader.content(bundle)
        return StreamedAnswer(self._await_bundle(bundle, began), media_type="application/json")

    @operation("GET", "/bundles/{id}/{name}", None, Role.JOB, statuses=FILE)
    async def archive(self, request: Request) -> Response:
        """The bundle as one archive: .tar, .tar.gz or .zip.

        The archive may have any name, because Spark wants a name for each bundle.
        """
        bundle, kind = ids.bundle_id(request.path_params["id"]), _kind_of(request)
        content = await self._reader.content(bundle)
        meta, stored = content.meta, self._runtime.store.get(content.meta.digest)
        if _is_java(request):
            unpacked = not request.path_params["name"].endswith(IMPORTED)
            if lost := lost_by_spark(meta, kind, unpacked=unpacked):
                raise TorrentdistError("archive_unsuitable", id=bundle, kind=kind, detail=lost)
        if stored is not None:
            await self._runtime.store.touch(meta.digest)
        shown = Representation(f"{meta.digest}.{kind}", modified=None if stored is None else int(stored.published_at))
        chosen = select(request, shown, meta.digest)
        if isinstance(chosen, Response):
            return chosen
        growing = None if request.method == "HEAD" else await self._archives.get(content, kind)
        if growing is not None and growing.whole and growing.path.exists():
            shown = msgspec.structs.replace(shown, size=growing.written)
            return path_response(request, growing.path, shown, meta.digest, kind.media_type)
        size = await in_heavy_thread(size_of, meta, kind) if growing is None else growing.size
        if size is not None:
            chosen.headers["content-length"] = str(size)
        body = archive(meta, kind, content.read_all) if growing is None else growing.follow()
        return await streamed(request, body, chosen, kind.media_type)

    @operation("GET", "/error/{code}/{sentence:any_path}", None, Role.JOB)
    async def told_error(self, request: Request) -> Response:
        """An error in words, where a Java client is sent to.

        on_bundle_error redirects to its URL.
        """
        kind = required(ERRORS.get(request.path_params["code"]), "not_found", what=request.url.path)
        sentence = request.path_params["sentence"].replace("_", " ")
        return json_response({"error": request.path_params["code"], "message": sentence}, status=kind.http_status)

    async def _await_bundle(self, bundle: BundleId, began: float) -> AsyncIterator[bytes]:
        await self._keeper.checked(bundle)
        while (view := await self._keeper.wait(bundle, TICK_SECS, began)).state is not HostState.DONE:
            if (error := self._reader.failure(bundle, began)) is not None:
                raise error
            yield b" "
        yield bytes(json_response(view).body)


def _kind_of(request: Request) -> ArchiveFormat:
    name = request.path_params["name"]
    kind = next((kind for kind in ArchiveFormat if name.endswith(f".{kind}")), None)
    if kind is None:
        raise TorrentdistError("not_found", what=f"{request.url.path}: only .tar, .tar.gz and .zip are made; it")
    return kind


def _is_java(request: Request) -> bool:
    """Whether Java asks, and so Spark, which unpacks an archive by its own means."""
    return request.headers.get("user-agent", "").startswith("Java/")


# errors, for a reader that shows nothing but the URL


async def on_bundle_error(request: Request, exc: Exception) -> Response:
    """Redirects Java, and so Spark, to a URL that contains the error.

    Java shows its user only the URL that failed, and nothing of the answer.
    """
    assert isinstance(exc, TorrentdistError)
    if not request.url.path.startswith("/bundles/") or not _is_java(request):
        return await on_torrentdist_error(request, exc)
    sentence = quote(f"{exc.message}. {exc.hint}".replace(" ", "_"), safe=_READABLE)
    return RedirectResponse(f"/error/{exc.code}/{sentence}", status_code=302)
