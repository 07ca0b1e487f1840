"""What leads to the content of a bundle, over HTTP: metafiles (of a bundle, of a digest, what a
plug-in made, and one that the masters have lost), and recipes, which tell how large files were
cut into chunks.

Always: a metafile is accepted only under the digest that it has. A recipe is a hint, so nothing
here depends on one. Only registered supervisors are sent to each other, under their own ids.
"""

import asyncio
import gzip
import hashlib
from collections.abc import Callable

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from torrentdist.bundle.metafile import parse_metafile, with_trackers
from torrentdist.bundle.packs.pack_update import MOST_WHOLE_BYTES
from torrentdist.bundle.reuse.recipe import recipe_hash
from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.file_answers import FILE_TYPE, path_response
from torrentdist.host.http.http_conditions import Representation
from torrentdist.host.http.operation import FILE, body_of, heavy_turn
from torrentdist.host.http.web import flag_parameter, json_response
from torrentdist.host.process.heavy_work import in_heavy_thread
from torrentdist.host.received_updates import MOST_BASES
from torrentdist.host.recent_results import RecentResults
from torrentdist.master.bundles import bundle_views
from torrentdist.master.bundles.recipes import RawMetafiles, Recipes, no_recipe
from torrentdist.master.http.routes import Routes, bundle_of, bundle_target, digest_of, operation, records_for
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.master_core import MasterCore
from torrentdist.master.swarm.swarms import Swarms
from torrentdist.model import ids
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.records import BundleRecord
from torrentdist.model.wire.bundle_messages import UploadOffset
from torrentdist.model.wire.headers import DIGEST, UPDATE_TYPE
from torrentdist.security.authorization import Role, may_read, may_read_content
from torrentdist.security.passes import PARAMETER

METAFILE_TYPE = "application/x-bittorrent"
UPDATES_KEPT = 8
ARRIVES_SECS = 2
"""Seconds for which a host waits for a metafile at the host that it was sent to."""


class MetafileApi(Routes, msgspec.Struct, frozen=True):
    core: MasterCore
    swarms: Swarms
    metafiles: RawMetafiles
    retry: Callable[[Digest], None]
    """Fetches a bundle again whose metafile has come back."""
    max_body: int
    """Bytes of the largest metafile."""
    updates: RecentResults[bytes | None] = msgspec.field(default_factory=lambda: RecentResults(UPDATES_KEPT))

    async def _names_of_digest(self, request: Request) -> list[BundleId]:
        return self.swarms.names(digest_of(request))

    def _may_read(self, request: Request) -> bool:
        return may_read_content(principal_of(request), self.swarms.names(digest_of(request)))

    @operation("GET", "/v1/bundles/{id}/metafile", None, Role.JOB, statuses=(200, 307), hands_out=bundle_target)
    async def metafile(self, request: Request) -> Response:
        """The BitTorrent v2 metafile."""
        entry = bundle_views.entry_of(records_for(request, self.core.records), bundle_of(request), *bundle_views.LISTED)
        digest = entry.record.digest
        if update := await self._update(request, entry.record):
            raw, what, kind = update, Digest(hashlib.sha256(update).hexdigest()), UPDATE_TYPE
            path = f"/v1/updates/{what}"
        else:
            raw, what, kind = await self.metafiles.of(digest), digest, METAFILE_TYPE
            path = f"/v1/metafiles/{digest}"
        if (where := giver_of(self.core, self.swarms, request, what, len(raw), path)) is not None:
            return RedirectResponse(where, headers={DIGEST: digest})
        if flag_parameter(request, "tracker"):
            raw = await in_heavy_thread(with_trackers, raw, self.swarms.tracker_urls(digest))
        return await _metafile_response(request, raw, digest, kind)

    async def _update(self, request: Request, record: BundleRecord) -> bytes:
        """Returns an update from a version that the sender has and may have, or all of a small
        bundle; nothing: the metafile alone is sent."""
        digest, store = record.digest, self.core.host.runtime.store
        names = request.query_params.get("have", "").split(",")[:MOST_BASES]
        bases = [ids.digest(name) for name in names if name]
        mine = [base for base in bases if may_read_content(principal_of(request), self.swarms.names(base))]

        async def compute() -> bytes:
            async with heavy_turn(request):
                return await store.update_to(digest, mine)

        if mine:
            key = Digest(hashlib.sha256("".join([digest, *mine]).encode()).hexdigest())
            if update := await self.updates.get(key, compute):
                return update
        if flag_parameter(request, "whole") and record.size <= MOST_WHOLE_BYTES:
            return await self.updates.get(digest, lambda: store.whole(digest)) or b""
        return b""

    @operation("GET", "/v1/metafiles/{digest}", None, Role.READER, hands_out="_names_of_digest")
    async def metafile_by_digest(self, request: Request) -> Response:
        """The metafile of a digest."""
        digest = digest_of(request)
        raw = await self.core.host.runtime.store.raw_metafile(digest) if self._may_read(request) else None
        if raw is None:
            raise TorrentdistError("not_found", what=f"a metafile of {digest} on this master")
        return await _metafile_response(request, raw, digest)

    @operation("PUT", "/v1/metafiles/{digest}", None, Role.READER, max_body="max_body", statuses=(204,))
    async def restore_metafile(self, request: Request) -> Response:
        """A metafile that the masters have lost.

        A peer of the swarm gives it back. The digest proves that it is the right one.
        """
        digest = digest_of(request)
        entries = records_for(request, self.core.records).bundles.values()
        if not any(e.record.digest == digest and e.record.state in bundle_views.ALIVE for e in entries):
            raise TorrentdistError("not_found", what=f"a bundle with digest {digest}")
        raw = await body_of(request)
        async with heavy_turn(request):
            meta = await in_heavy_thread(parse_metafile, raw)
        if meta.digest != digest:
            raise TorrentdistError("corrupt", path=f"the metafile of {digest}", detail=f"it belongs to {meta.digest}")
        await self.core.host.runtime.store.begin(meta)
        self.swarms.got_metafile(digest)
        self.retry(digest)
        return Response(status_code=204)

    @operation("GET", "/v1/metafiles/{digest}/plugin", None, Role.READER, statuses=FILE, hands_out="_names_of_digest")
    async def plugin_metafile(self, request: Request) -> Response:
        """What the plug-in's upload() made."""
        digest = digest_of(request)
        path = self.core.host.runtime.store.object_dir(digest) / "distributor-metafile"
        if not self._may_read(request) or not await asyncio.to_thread(path.is_file):
            raise TorrentdistError("not_found", what=f"a plug-in's metafile of {digest} on this master")
        shown = await asyncio.to_thread(lambda: Representation(f"{digest}.plugin", path.stat().st_size))
        return path_response(request, path, shown, digest, FILE_TYPE)


def giver_of(core: MasterCore, swarms: Swarms, request: Request, digest: Digest, size: int, path: str) -> str | None:
    """Returns the URL of a host that gives the sender what goes round among hosts; None: this
    master does."""
    asker, sender = request.query_params.get("for", ""), principal_of(request)
    is_asker = sender.is_host and (sender.certificate is None or sender.certificate.id == asker)
    is_known = is_asker and asker in core.records.snapshot().supervisors
    giver = swarms.giver(digest, size, asker) if is_known else None
    if giver is None:
        return None
    return f"{giver.url}{path}?wait={ARRIVES_SECS}&{PARAMETER}={core.records.secrets.new_pass(giver.id, path)}"


async def _metafile_response(request: Request, raw: bytes, digest: str, kind: str = METAFILE_TYPE) -> Response:
    headers = {DIGEST: digest, "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        raw = await in_heavy_thread(gzip.compress, raw, 3)
        headers["Content-Encoding"] = "gzip"
    return Response(raw, media_type=kind, headers=headers)


class RecipeApi(Routes, msgspec.Struct, frozen=True):
    core: MasterCore
    swarms: Swarms
    recipes: Recipes
    leadership: Leadership
    max_body: int
    """Bytes of the largest metafile."""

    async def _names_of_digest(self, request: Request) -> list[BundleId]:
        return self.swarms.names(digest_of(request))

    @operation("PUT", "/v1/bundles/{id}/recipe", UploadOffset, Role.UPLOADER, max_body="max_body", target=bundle_target)
    async def offer_recipe(self, request: Request) -> Response:
        """The recipe of an upload that is opened next."""
        self.leadership.fence()
        raw = await body_of(request)
        self.recipes.offer(raw)
        return json_response(UploadOffset(len(raw)))

    @operation("GET", "/v1/bundles/{id}/recipe", None, Role.READER, statuses=(200, 307), hands_out=bundle_target)
    async def recipe(self, request: Request) -> Response:
        """How the large files of a bundle were cut into chunks."""
        bundle = bundle_of(request)
        if not may_read(principal_of(request), bundle):
            raise no_recipe(bundle)
        raw = await self.recipes.of_bundle(bundle)
        headers = {DIGEST: recipe_hash(raw)}
        path = f"/v1/recipes/{self.core.records.snapshot().bundles[bundle].record.digest}"
        # Its hash, like a digest, stands for nothing else that goes round.
        what = Digest(recipe_hash(raw))
        if (where := giver_of(self.core, self.swarms, request, what, len(raw), path)) is not None:
            return RedirectResponse(where, headers=headers)
        return Response(raw, media_type="application/octet-stream", headers=headers)

    @operation("GET", "/v1/recipes/{digest}", None, Role.READER, hands_out="_names_of_digest")
    async def recipe_by_digest(self, request: Request) -> Response:
        """The recipe of a digest that this master has."""
        digest = digest_of(request)
        is_readable = may_read_content(principal_of(request), self.swarms.names(digest))
        raw = await self.core.host.runtime.store.raw_recipe(digest) if is_readable else None
        if raw is None:
            raise TorrentdistError("not_found", what=f"a recipe of {digest} on this master")
        return Response(raw, media_type="application/octet-stream", headers={DIGEST: recipe_hash(raw)})
