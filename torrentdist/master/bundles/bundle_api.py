"""Reads of bundles: lists, single bundles, waiting for copies, the progress of hosts, and files."""

import asyncio
import contextlib

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.file_answers import file_response
from torrentdist.host.http.operation import FILE
from torrentdist.host.http.web import (
    LONGEST_POLL,
    compact_response,
    flag_parameter,
    json_response,
    number_parameter,
    poll_secs,
)
from torrentdist.master.bundles import bundle_views
from torrentdist.master.http.routes import (
    Routes,
    bundle_of,
    bundle_target,
    operation,
    page_of,
    records_for,
    records_to_list,
)
from torrentdist.master.master_core import MasterCore
from torrentdist.master.reads.time_left import with_time_left
from torrentdist.master.swarm.swarms import Swarms
from torrentdist.model.errors import EXIT_DISK, TorrentdistError, required
from torrentdist.model.wire.bundle_messages import BundleView
from torrentdist.model.wire.fleet_messages import FleetView
from torrentdist.security.authorization import Role


class BundleApi(Routes, msgspec.Struct, frozen=True):
    core: MasterCore
    swarms: Swarms

    @operation("GET", "/v1/bundles", list[BundleView], Role.READER, paged=True)
    async def bundles(self, request: Request) -> Response:
        """Every bundle that can be downloaded, or is lost."""
        now = self.core.records.server_now()
        own_bytes = self.core.host.runtime.store.own_bytes
        snapshot = records_to_list(request, self.core.records)
        return json_response(bundle_views.bundle_list(snapshot, now, page_of(request), own_bytes))

    @operation("GET", "/v1/bundles/{id}", BundleView, Role.JOB, hands_out=bundle_target)
    async def bundle(self, request: Request) -> Response:
        """One bundle."""
        bundle, snapshot = bundle_of(request), records_for(request, self.core.records)
        is_uploading = flag_parameter(request, "uploading")
        bundle_views.entry_of(snapshot, bundle, *(bundle_views.ALIVE if is_uploading else bundle_views.LISTED))
        view = bundle_views.bundle_view(snapshot, bundle)
        return json_response(bundle_views.with_stuck(snapshot, view, self.swarms.members(view.digest)))

    @operation("GET", "/v1/bundles/{id}/wait", BundleView, Role.READER, hands_out=bundle_target)
    async def wait(self, request: Request) -> Response:
        """Long poll until enough masters hold it."""
        bundle = bundle_of(request)
        replicas = int(number_parameter(request, "replicas", 1, low=0, high=1000))
        timeout = poll_secs(request, "timeout", LONGEST_POLL)
        bundle_views.entry_of(records_for(request, self.core.records), bundle, *bundle_views.ALIVE)
        with contextlib.suppress(TorrentdistError):  # the time is up: answer the current state
            await self.core.session.mirror.wait_for(lambda s: bundle_views.replicated(s, bundle, replicas), timeout)
        snapshot = self.core.records.snapshot()
        entry = bundle_views.entry_of(snapshot, bundle, *bundle_views.ALIVE)
        failure = self.core.host.runtime.fetches.failure(entry.record.digest)
        alone = not snapshot.holders(bundle) and len(snapshot.masters) == 1
        if alone and failure is not None and failure.exit_code == EXIT_DISK:
            raise failure  # no other master could take the bundle
        view = bundle_views.bundle_view(snapshot, bundle)
        said = self.swarms.members(view.digest)
        return json_response(bundle_views.with_lacking(snapshot, view, said))

    @operation("GET", "/v1/bundles/{id}/files/{path:any_path}", None, Role.JOB, statuses=FILE, hands_out=bundle_target)
    async def file(self, request: Request) -> Response:
        """One file of a bundle held here."""
        bundle = bundle_of(request)
        entry = bundle_views.entry_of(records_for(request, self.core.records), bundle, *bundle_views.ALIVE)
        stored = self.core.host.runtime.store.get(entry.record.digest)
        if stored is None:
            raise TorrentdistError("bundle_unavailable", id=bundle, detail="this master does not hold it")
        path = await self.core.host.hand_outs.file(stored.digest, request.path_params["path"])
        if path is None:
            raise TorrentdistError("bundle_unavailable", id=bundle, detail="this master's copy is being fetched again")
        shown = (stored.content, path, stored.digest, stored.published_at)
        answer = await asyncio.to_thread(file_response, request, *shown)
        return required(answer, "bundle_unavailable", id=bundle, detail="this master has just dropped it")

    @operation("GET", "/v1/bundles/{id}/hosts", FleetView, Role.READER, hands_out=bundle_target)
    async def hosts(self, request: Request) -> Response:
        """How far each host is that is told to keep it."""
        bundle, snapshot = bundle_of(request), records_for(request, self.core.records)
        entry = bundle_views.entry_of(snapshot, bundle, *bundle_views.LISTED)
        fleet = bundle_views.fleet_view(snapshot, bundle, self.swarms.members(entry.record.digest))
        fleet = msgspec.structs.replace(fleet, zones=bundle_views.zones_of(fleet, self.swarms.zones.of))
        return compact_response(request, with_time_left(fleet, snapshot.distributions.get(bundle), self.core.now()))
