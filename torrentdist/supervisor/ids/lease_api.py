"""Leases of bundles for the programs of this host, over the gateway.

Always: an answer that says `done` comes after the bundle was checked, its link is there, and no
removal of it is under way. A program that holds the lock by then keeps the bundle.
"""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.declared_routes import DeclaredRoutes, operation
from torrentdist.host.http.web import asks_since, json_response, poll_secs
from torrentdist.host.runtime import HostRuntime
from torrentdist.model import ids
from torrentdist.model.wire.fleet_messages import HostBundleView, HostState, LeaseView
from torrentdist.security.authorization import Role
from torrentdist.supervisor.bundles.keeper import Keeper
from torrentdist.supervisor.ids.bundle_links import BundleLinks
from torrentdist.supervisor.ids.ids_directory import IdsDirectory
from torrentdist.supervisor.ids.leases import Leases


class LeaseApi(DeclaredRoutes):
    def __init__(
        self, runtime: HostRuntime, keeper: Keeper, directory: IdsDirectory, leases: Leases, links: BundleLinks
    ) -> None:
        self._runtime = runtime
        self._keeper = keeper
        self._directory = directory
        self._leases = leases
        self._links = links

    @operation("POST", "/v1/host/bundles/{id}/lease", LeaseView, Role.JOB)
    async def lease(self, request: Request) -> Response:
        """Fetch a bundle and let a program use it by its id, for as long as it locks the file."""
        bundle, wait = ids.bundle_id(request.path_params["id"]), poll_secs(request, "wait")
        since = asks_since(request)
        lock = await asyncio.to_thread(self._leases.ask, bundle)
        await self._keeper.checked(bundle)
        if not self._keeper.fetching(bundle):
            self._keeper.request(bundle)
        view = await self._keeper.wait(bundle, wait, since)
        error = self._keeper.error(bundle, since)
        if view.state is HostState.FAILED and error is not None:
            raise error
        if view.state is HostState.DONE and view.digest is not None:
            view = await self._kept(view)
        transfer = view.transfer
        return json_response(
            LeaseView(
                id=bundle,
                state=view.state,
                path=str(self._directory.link(bundle)) if view.state is HostState.DONE else "",
                lock=str(lock),
                done=transfer.done if transfer else 0,
                size=view.size or (transfer.size if transfer else 0),
            )
        )

    async def _kept(self, view: HostBundleView) -> HostBundleView:
        """Links a bundle that is here. The view says so if it is being removed. Raises the reason
        why it has no link."""
        assert view.digest is not None
        await asyncio.to_thread(self._leases.note, view.id, view.digest)  # What removes it from now on knows that.
        await self._runtime.store.settled_bundle(view.digest)
        if self._runtime.store.get(view.digest) is None:
            self._keeper.request(view.id)  # It had to make room just before the lease.
        await self._links.update()
        await self._runtime.store.touch(view.digest)
        kept = await self._keeper.view(view.id)
        if kept.state is HostState.DONE:
            await self._links.check(view.id, kept.path)
        return kept
