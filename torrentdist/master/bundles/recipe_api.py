"""Recipes of bundles, and what the masters have already of one that is to be uploaded.

Always: a recipe is a hint, so nothing here depends on one.
Never: read content in order to answer.
"""

from __future__ import annotations

from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from torrentdist.bundle.metafile import parse_metafile
from torrentdist.bundle.reuse.recipe import parse_recipe, recipe_hash, split_recipe
from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.operation import Operation, body_of
from torrentdist.host.http.web import json_response
from torrentdist.host.process.heavy_work import in_heavy_thread
from torrentdist.host.runtime import HostRuntime
from torrentdist.master.bundles.metafile_api import ARRIVES_SECS
from torrentdist.master.bundles.recipes import Recipes, no_recipe
from torrentdist.master.http.mutation_requests import bundle_of, bundle_target, digest_of
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.reads.saved_records import Records
from torrentdist.master.swarm.swarms import Swarms
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.wire.bundle_messages import ReuseView, UploadOffset
from torrentdist.model.wire.headers import DIGEST
from torrentdist.security.authorization import may_read, may_read_content
from torrentdist.security.passes import PARAMETER
from torrentdist.security.principal import Role


class RecipeApi:
    """`max_body`: bytes of the largest metafile."""

    def __init__(
        self,
        records: Records,
        runtime: HostRuntime,
        swarms: Swarms,
        recipes: Recipes,
        leadership: Leadership,
        max_body: int,
    ) -> None:
        self._records = records
        self._runtime = runtime
        self._swarms = swarms
        self._recipes = recipes
        self._leadership = leadership
        self._max_body = max_body

    def operations(self) -> Iterator[Operation]:
        of_bundle = "/v1/bundles/{id}/recipe"
        yield Operation(
            "PUT",
            of_bundle,
            self.offer_recipe,
            UploadOffset,
            "the recipe of an upload that is opened next",
            Role.UPLOADER,
            max_body=self._max_body,
            target=bundle_target,
        )
        summary = "how the large files of a bundle were cut into chunks"
        yield Operation(
            "GET", of_bundle, self.recipe, None, summary, Role.READER, statuses=(200, 307), hands_out=bundle_target
        )
        summary = "the recipe of a digest that this master has"
        of_digest, names = "/v1/recipes/{digest}", self._names_of_digest
        yield Operation("GET", of_digest, self.recipe_by_digest, None, summary, Role.READER, hands_out=names)
        summary = "what this master has already of a bundle; the body is its metafile, or that and its recipe"
        yield Operation(
            "POST",
            "/v1/reuse",
            self.reuse,
            ReuseView,
            summary,
            Role.READER,
            max_body=self._max_body,
            hands_out=_any_bundle,
        )

    async def _names_of_digest(self, request: Request) -> list[BundleId]:
        return self._swarms.names(digest_of(request))

    async def offer_recipe(self, request: Request) -> Response:
        self._leadership.fence()
        raw = await body_of(request)
        self._recipes.offer(raw)
        return json_response(UploadOffset(len(raw)))

    async def recipe(self, request: Request) -> Response:
        bundle = bundle_of(request)
        if not may_read(principal_of(request), bundle):
            raise no_recipe(bundle)
        raw = await self._recipes.of_bundle(bundle)
        headers = {DIGEST: recipe_hash(raw)}
        asker = request.query_params.get("for", "")
        # Its hash, like a digest, stands for nothing else that goes round.
        if asker and (giver := self._swarms.giver(Digest(recipe_hash(raw)), len(raw), asker)) is not None:
            path = f"/v1/recipes/{self._records.snapshot().bundles[bundle].record.digest}"
            admission = self._records.secrets.new_pass(giver.id, path)
            where = f"{giver.url}{path}?wait={ARRIVES_SECS}&{PARAMETER}={admission}"
            return RedirectResponse(where, headers=headers)
        return Response(raw, media_type="application/octet-stream", headers=headers)

    async def recipe_by_digest(self, request: Request) -> Response:
        digest = digest_of(request)
        is_readable = may_read_content(principal_of(request), self._swarms.names(digest))
        raw = await self._runtime.store.raw_recipe(digest) if is_readable else None
        if raw is None:
            raise TorrentdistError("not_found", what=f"a recipe of {digest} on this master")
        return Response(raw, media_type="application/octet-stream", headers={DIGEST: recipe_hash(raw)})

    async def reuse(self, request: Request) -> Response:
        """Tells how much an upload would move. It reads the index of files and recipes, and changes
        nothing."""
        raw, raw_recipe = split_recipe(await body_of(request))
        meta = await in_heavy_thread(parse_metafile, raw)
        recipe = await in_heavy_thread(parse_recipe, raw_recipe)
        store = self._runtime.store
        found = await store.reused(meta, recipe)
        named = [name for digest in found.counts for name in sorted(store.names(digest))[:1]]
        new = meta.size - found.total
        return json_response(ReuseView(size=meta.size, new_bytes=new, reused_bytes=found.total, reused_from=named))


async def _any_bundle(_: Request) -> tuple[BundleId, ...]:
    """Which bundles have content in common with the body is known only afterwards, so a host that
    may not have every bundle is told of none."""
    return ()
