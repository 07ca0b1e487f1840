"""Recipes of bundles: how their large files were cut into chunks.

Always: a recipe is a hint, so nothing here depends on one.
"""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from torrentdist.bundle.reuse.recipe import recipe_hash
from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.operation import body_of
from torrentdist.host.http.web import json_response
from torrentdist.master.bundles.metafile_api import giver_of
from torrentdist.master.bundles.recipes import Recipes, no_recipe
from torrentdist.master.http.mutation_requests import bundle_of, bundle_target, digest_of
from torrentdist.master.http.routes import Routes, operation
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.master_core import MasterCore
from torrentdist.master.swarm.swarms import Swarms
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.wire.bundle_messages import UploadOffset
from torrentdist.model.wire.headers import DIGEST
from torrentdist.security.authorization import may_read, may_read_content
from torrentdist.security.principal import Role


@dataclass(frozen=True)
class RecipeApi(Routes):
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
