"""Holds on the bundles of this host, over the gateway: whoever mounts a bundle takes one before,
and ends it after the bundle is unmounted.

Always: the answer that a hold is taken means that the content is here, is as it was published, and
stays until the hold ends.
"""

import re
import time

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.bundle.store.store_values import StoredBundle
from torrentdist.host.http.declared_routes import DeclaredRoutes, operation
from torrentdist.host.http.operation import about, body_of
from torrentdist.host.http.web import decode_body, json_response
from torrentdist.host.runtime import HostRuntime
from torrentdist.model import ids
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.wire.hold_messages import HoldBody, HoldView
from torrentdist.model.wire.view import view_of
from torrentdist.security.authorization import Role
from torrentdist.supervisor.bundles.holds import Hold
from torrentdist.supervisor.bundles.keeper import Keeper

MOST_BODY = 16 * 1024
_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)


class HoldApi(DeclaredRoutes):
    def __init__(self, runtime: HostRuntime, keeper: Keeper) -> None:
        self._store = runtime.store
        self._keeper = keeper

    @operation("GET", "/v1/host/holds", list[HoldView], Role.OPERATOR)
    async def holds(self, _: Request) -> Response:
        """The holds on bundles of this host."""
        return json_response([self._view(name, hold) for name, hold in sorted(self._keeper.holds.all().items())])

    @operation(
        "PUT",
        "/v1/host/holds/{name}",
        HoldView,
        Role.OPERATOR,
        body=HoldBody,
        max_body=MOST_BODY,
        changes_host=True,
    )
    async def take(self, request: Request) -> Response:
        """Keep a bundle that is here until the hold ends."""
        name = _name(request)
        body = decode_body(await body_of(request) or b"{}", HoldBody)
        hold = self._hold_of(body)
        about(request, f"{hold.bundle} for {hold.user or hold.target}"[:256])
        before = self._keeper.holds.all().get(name)
        if before is not None and before.digest != hold.digest:
            raise TorrentdistError("conflict", id=name, existing=before.digest)
        if self._store.lookup(hold.bundle) == hold.digest:  # a removed bundle has no id, and stays for who has it
            await self._keeper.verify(hold.bundle, hold.digest)
        elif before is None:
            raise TorrentdistError("bundle_not_found", id=hold.bundle)
        await self._keeper.holds.take(name, hold)
        if before is None and await self._sound(hold) is None:
            await self._keeper.holds.end(name)
            raise TorrentdistError("bundle_unavailable", id=hold.bundle, detail="it is not here, or not any more")
        return json_response(self._view(name, hold))

    @operation("DELETE", "/v1/host/holds/{name}", list[HoldView], Role.OPERATOR, changes_host=True)
    async def end(self, request: Request) -> Response:
        """End a hold; the answer has what it was, or nothing."""
        name = _name(request)
        ended = await self._keeper.holds.end(name)
        return json_response([] if ended is None else [self._view(name, ended)])

    def _hold_of(self, body: HoldBody) -> Hold:
        digest = ids.digest(body.digest)
        names = self._store.names(digest)
        bundle = ids.bundle_id(body.bundle or min(names, default="unknown"))
        return Hold(
            bundle=bundle, digest=digest, target=body.target, path=body.path, user=body.user, taken_at=time.time()
        )

    async def _sound(self, hold: Hold) -> StoredBundle | None:
        """Returns the content if it is here and as it was published. Whatever removes it now knows
        of the hold."""
        if await self._store.settled_bundle(hold.digest) is None:
            return None
        return await self._keeper.checked(hold.bundle)

    def _view(self, name: str, hold: Hold) -> HoldView:
        stored = self._store.get(hold.digest)
        here = {} if stored is None else {"content": str(stored.content), "size": stored.size, "files": stored.files}
        return view_of(HoldView, hold, name=name, removed=self._is_removed(hold.bundle, hold.digest), **here)

    def _is_removed(self, bundle: BundleId, digest: Digest) -> bool:
        return self._store.lookup(bundle) != digest


def _name(request: Request) -> str:
    name = str(request.path_params["name"])
    if not _NAME.fullmatch(name):
        raise TorrentdistError("invalid_id", kind="hold", text=name[:200])
    return name
