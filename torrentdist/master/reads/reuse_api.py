"""What this master has already of a bundle that is to be uploaded.

Always: a bundle that the sender may not read counts for nothing, and costs no time.
Never: read content in order to answer.
"""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.bundle.metafile import parse_metafile
from torrentdist.bundle.reuse.recipe import parse_recipe, split_recipe
from torrentdist.host.host_store import HostStore
from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.operation import body_of, heavy_turn
from torrentdist.host.http.web import json_response
from torrentdist.host.process.heavy_work import in_heavy_thread
from torrentdist.master.http.routes import Routes, operation
from torrentdist.master.reads.reuse_sources import ReuseSources
from torrentdist.model.ids import BundleId
from torrentdist.model.wire.bundle_messages import ReuseView
from torrentdist.security.authorization import Role, may_read


async def _any_bundle(_: Request) -> tuple[BundleId, ...]:
    """Which bundles have content in common with the body is known only afterwards, so a host that
    may not have every bundle is told of none."""
    return ()


class ReuseApi(Routes, msgspec.Struct, frozen=True):
    store: HostStore
    sources: ReuseSources
    max_body: int
    """Bytes of the largest metafile."""

    @operation("POST", "/v1/reuse", ReuseView, Role.READER, max_body="max_body", hands_out=_any_bundle)
    async def reuse(self, request: Request) -> Response:
        """What this master has of a bundle already; the body is its metafile, or that and its
        recipe.

        Tells how much an upload would move. It reads the index of files and recipes, and changes
        nothing.
        """
        raw, raw_recipe = split_recipe(await body_of(request))
        sender = principal_of(request)
        async with heavy_turn(request):
            meta = await in_heavy_thread(parse_metafile, raw)
            recipe = await in_heavy_thread(parse_recipe, raw_recipe)
            found = await self.store.reused(meta, recipe, self.sources.readable_by(sender.reads))
        readable = ([name for name in self.store.names(digest) if may_read(sender, name)] for digest in found.counts)
        named = [name for names in readable for name in sorted(names)[:1]]
        new = meta.size - found.total
        return json_response(ReuseView(size=meta.size, new_bytes=new, reused_bytes=found.total, reused_from=named))
