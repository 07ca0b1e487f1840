"""The bundles of this host, over HTTP: their state, fetching, verifying and pruning over the
gateway, and for masters the room of its store, its rates, and the bundles that do not arrive.

Always: a view that says `done` has been checked against the files on disk. What masters are told
comes from memory, so that an answer never waits for the disk.
"""

import time

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.bundle.store.store_values import StoredBundle
from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.declared_routes import DeclaredRoutes, operation
from torrentdist.host.http.operation import DRY_RUN
from torrentdist.host.http.web import asks_since, flag_parameter, json_response, number_parameter, poll_secs
from torrentdist.host.runtime import HostRuntime
from torrentdist.model import ids
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.model.wire.bundle_messages import GoingView, KeptView, PruneView
from torrentdist.model.wire.cluster_messages import HostStateView
from torrentdist.model.wire.fleet_messages import HostBundleView, HostProblem, HostState
from torrentdist.model.wire.view import view_of
from torrentdist.security.authorization import Role, may_read
from torrentdist.supervisor.bundles.keeper import Keeper


class Damaged(msgspec.Struct, frozen=True):
    damaged: list[str]


def _bundle(request: Request) -> BundleId:
    return ids.bundle_id(request.path_params["id"])


class HostBundleApi(DeclaredRoutes):
    def __init__(self, runtime: HostRuntime, keeper: Keeper) -> None:
        self._runtime = runtime
        self._keeper = keeper

    @operation("GET", "/bundles/{id}", HostBundleView, Role.JOB)
    async def bundle(self, request: Request) -> Response:
        """One bundle on this host."""
        return json_response(await self._keeper.checked_view(_bundle(request)))

    @operation("GET", "/v1/host/bundles/{id}", HostBundleView, Role.JOB)
    async def host_bundle(self, request: Request) -> Response:
        """Long poll until the bundle is done or failed.

        The answer is the view, or the error of a fetch that failed.
        """
        bundle, since = _bundle(request), asks_since(request)
        wait = poll_secs(request, "wait")
        view = await self._keeper.wait(bundle, wait, since) if wait else await self._keeper.view(bundle)
        error = self._keeper.error(bundle, since)
        if view.state is HostState.FAILED and error is not None:
            raise error
        if view.state is HostState.DONE:
            view = await self._keeper.checked_view(bundle)
        if view.state is HostState.DONE and view.digest is not None:
            await self._runtime.store.touch(view.digest)
        return json_response(view)

    @operation("POST", "/v1/host/bundles/{id}/fetch", HostBundleView, Role.JOB)
    async def fetch(self, request: Request) -> Response:
        """Start fetching, or go on."""
        bundle = _bundle(request)
        await self._keeper.checked(bundle)
        self._keeper.request(bundle)
        return json_response(await self._keeper.view(bundle))

    @operation("POST", "/v1/host/bundles/{id}/verify", Damaged, Role.OPERATOR, changes_host=True)
    async def verify(self, request: Request) -> Response:
        """Read every byte; damage is fetched again."""
        bundle = _bundle(request)
        digest = self._runtime.store.lookup(bundle)
        if digest is None or self._runtime.store.get(digest) is None:
            raise TorrentdistError("bundle_not_found", id=bundle)
        damaged = await self._runtime.verify(digest)
        if damaged:
            self._keeper.request(bundle)
        return json_response(Damaged(damaged))

    @operation("GET", "/v1/host/problems", list[HostProblem], Role.READER)
    async def problems(self, request: Request) -> Response:
        """Bundles that should arrive here and do not."""
        store, sender = self._runtime.store, principal_of(request)
        stuck = [entry for entry in self._runtime.swarm_entries() if entry.problem]
        problems = [
            HostProblem(bundle=name, digest=entry.digest, reason=entry.problem)
            for entry in stuck
            for name in sorted(store.names(entry.digest))
            if may_read(sender, name)
        ]
        return json_response(problems)

    @operation("POST", "/v1/host/prune", PruneView, Role.OPERATOR, changes_host=True)
    async def prune(self, request: Request) -> Response:
        """Drop the bundles that nothing needs."""
        older_than = number_parameter(request, "older_than", 0.0, low=0.0, high=1e10)
        dry_run = flag_parameter(request, "dry_run")
        if dry_run:
            request.scope[DRY_RUN] = True
        store = self._runtime.store
        goes = await (self._would_go if dry_run else self._drop_unused)(older_than)
        reasons = await store.reasons_to_stay(older_than=older_than)
        stays = tuple(KeptView(digest=d, ids=sorted(store.names(d)), reasons=sorted(why)) for d, why in reasons.items())
        kept = len(store.published()) - (len(goes) if dry_run else 0)
        freed = sum(going.size for going in goes)
        removed = [going.digest for going in goes]
        return json_response(PruneView(removed=removed, freed_bytes=freed, kept=kept, stays=stays, goes=tuple(goes)))

    async def _would_go(self, older_than: float) -> list[GoingView]:
        return [self._going(stored) for stored in await self._runtime.store.plan_prune(older_than=older_than)]

    async def _drop_unused(self, older_than: float) -> list[GoingView]:
        """Drops what may go, and plans anew before each removal: a bundle may be needed by then."""
        gone: dict[str, GoingView] = {}
        while plan := await self._runtime.store.plan_prune(older_than=older_than):
            first = plan[0]
            if first.digest in gone:
                break
            going = self._going(first)
            if await self._runtime.evict(first.digest):
                gone[first.digest] = going
        return list(gone.values())

    def _going(self, stored: StoredBundle) -> GoingView:
        return GoingView(
            digest=stored.digest,
            ids=sorted(self._runtime.store.names(stored.digest)),
            size=stored.size,
            unused_secs=max(0.0, time.time() - stored.used_at),
            copies_elsewhere=self._runtime.known.replicas_elsewhere(stored.digest) or 0,
        )


MOST_PROBLEMS = 20


class HostStateApi(DeclaredRoutes):
    def __init__(self, runtime: HostRuntime) -> None:
        self._runtime = runtime

    @operation("GET", "/v1/host/state", HostStateView, Role.READER)
    async def state(self, request: Request) -> Response:
        """The room of this host's store, its rates, and what does not arrive."""
        sender = principal_of(request)
        store, engine = self._runtime.store, self._runtime.engine.statistics()
        usage, failures = store.usage(), self._runtime.fetches.failures()
        named = (
            (sorted(name for name in store.names(digest) if may_read(sender, name)), error)
            for digest, (_, error) in failures.items()
        )
        view = view_of(
            HostStateView,
            usage,
            upload_rate=engine.upload_rate,
            download_rate=engine.download_rate,
            peers=engine.peers,
            errors={names[0]: error.message for names, error in sorted(named, key=str)[:MOST_PROBLEMS] if names},
        )
        return json_response(view)
