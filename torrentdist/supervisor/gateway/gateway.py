"""The loopback gateway of a host: bundles for the programs on this machine, and the host's own controls.

Always holds: only published content leaves it, confined to its bundle. Must not do: listen anywhere but on loopback.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from torrentdist.host.http.web import (
    CutShort,
    WebServer,
    json_response,
    number_parameter,
    on_http_error,
    on_unexpected_error,
)
from torrentdist.model import ids
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.model.wire.cluster_messages import HealthView
from torrentdist.model.wire.fleet_messages import HostProblem, HostState
from torrentdist.model.wire.prune_views import KeptView, PruneView
from torrentdist.supervisor.gateway.bundle_server import on_bundle_error, told_error
from torrentdist.supervisor.gateway.callers import OnlyUsers, user_ids

if TYPE_CHECKING:
    from torrentdist.supervisor.daemon import Supervisor

LONGEST_POLL = 2.0
MOST_POLL = 30.0
"""What may be asked for all the same."""


class Damaged(msgspec.Struct, frozen=True):
    damaged: list[str]


def _bundle(request: Request) -> BundleId:
    return ids.bundle_id(request.path_params["id"])


class Gateway:
    def __init__(self, supervisor: Supervisor) -> None:
        self._s = supervisor

    async def livez(self, _: Request) -> Response:
        return Response("ok\n")

    async def readyz(self, _: Request) -> Response:
        failing = self._s.failing_checks()
        return json_response(HealthView(ok=not failing, failing=failing), status=503 if failing else 200)

    async def metrics(self, _: Request) -> Response:
        return Response(self._s.metrics.render(), media_type="text/plain; version=0.0.4")

    async def bundle(self, request: Request) -> Response:
        return json_response(await self._s.keeper.checked_view(_bundle(request)))

    async def fetch(self, request: Request) -> Response:
        bundle = _bundle(request)
        await self._s.keeper.checked(bundle)
        self._s.keeper.request(bundle)
        return json_response(await self._s.keeper.view(bundle))

    async def host_bundle(self, request: Request) -> Response:
        """The view; a failed fetch is answered as the error that it failed with."""
        bundle = _bundle(request)
        wait = min(LONGEST_POLL, number_parameter(request, "wait", 0.0, low=0.0, high=MOST_POLL))
        view = await self._s.keeper.wait(bundle, wait) if wait else await self._s.keeper.view(bundle)
        error = self._s.keeper.error(bundle)
        if view.state is HostState.FAILED and error is not None:
            raise error
        if view.state is HostState.DONE:
            view = await self._s.keeper.checked_view(bundle)
        if view.state is HostState.DONE and view.digest is not None:
            await asyncio.to_thread(self._s.runtime.store.touch, view.digest)
        return json_response(view)

    async def problems(self, _: Request) -> Response:
        """Bundles that should arrive here and don't."""
        store = self._s.runtime.store
        stuck = [entry for entry in self._s.runtime.swarm_entries() if entry.problem]
        problems = [
            HostProblem(bundle=name, digest=entry.digest, reason=entry.problem)
            for entry in stuck
            for name in sorted(store.names(entry.digest))
        ]
        return json_response(problems)

    async def workers(self, _: Request) -> Response:
        return json_response([] if self._s.jobs is None else self._s.jobs.reports())

    async def isolation(self, _: Request) -> Response:
        if self._s.jobs is None:
            raise TorrentdistError("closing", what="this supervisor")
        return json_response(await asyncio.to_thread(self._s.jobs.isolation))

    async def verify(self, request: Request) -> Response:
        bundle = _bundle(request)
        digest = self._s.runtime.store.lookup(bundle)
        if digest is None or self._s.runtime.store.get(digest) is None:
            raise TorrentdistError("bundle_not_found", id=bundle)
        damaged = await self._s.runtime.verify(digest)
        if damaged:
            self._s.keeper.request(bundle)
        return json_response(Damaged(damaged))

    async def prune(self, request: Request) -> Response:
        older_than = number_parameter(request, "older_than", 0.0, low=0.0, high=1e10)
        dry_run = request.query_params.get("dry_run") == "true"
        store, claims = self._s.runtime.store, self._s.keeper.claims
        plan = await asyncio.to_thread(store.plan_prune, older_than=older_than, claims=claims)
        reasons = await asyncio.to_thread(store.reasons_to_stay, older_than=older_than, claims=claims)
        stays = tuple(KeptView(digest=d, ids=sorted(store.names(d)), reasons=sorted(why)) for d, why in reasons.items())
        kept = len(store.published()) - len(plan)
        if not dry_run:
            for stored in plan:
                await self._s.runtime.drop(stored.digest)
        freed = sum(stored.size for stored in plan)
        removed = [stored.digest for stored in plan]
        return json_response(PruneView(removed=removed, freed_bytes=freed, kept=kept, stays=stays))


def gateway_app(supervisor: Supervisor, web: Callable[[], WebServer]) -> ASGIApp:
    g, bundles = Gateway(supervisor), supervisor.bundles
    routes = [
        Route("/livez", g.livez),
        Route("/readyz", g.readyz),
        Route("/metrics", g.metrics),
        Route("/bundles/{id}", g.bundle),
        Route("/bundles/{id}/files/{path:any_path}", bundles.file),
        Route("/bundles/{id}/local/{name}", bundles.ticket),
        Route("/bundles/{id}/{name}", bundles.archive),
        Route("/error/{code}/{sentence:any_path}", told_error),
        Route("/v1/host/bundles/{id}", g.host_bundle),
        Route("/v1/host/bundles/{id}/fetch", g.fetch, methods=["POST"]),
        Route("/v1/host/bundles/{id}/verify", g.verify, methods=["POST"]),
        Route("/v1/host/workers", g.workers),
        Route("/v1/host/isolation", g.isolation),
        Route("/v1/host/problems", g.problems),
        *supervisor.output.routes(),
        Route("/v1/host/prune", g.prune, methods=["POST"]),
    ]
    handlers = {
        TorrentdistError: on_bundle_error,
        404: on_http_error,
        405: on_http_error,
        Exception: on_unexpected_error,
    }
    app = Starlette(routes=routes, exception_handlers=handlers)
    users = user_ids(supervisor.config.supervisor.gateway_users)
    return CutShort(OnlyUsers(app, users), lambda client: web().cut(client))
