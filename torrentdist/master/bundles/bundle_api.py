"""Reads of bundles: lists, single bundles, waiting for copies, the progress of hosts, and files."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.cluster.records.mirror import Mirror
from torrentdist.host.hand_outs import HandOuts
from torrentdist.host.http.file_answers import file_response
from torrentdist.host.http.operation import FILE, Operation
from torrentdist.host.http.web import flag_parameter, json_response, number_parameter
from torrentdist.host.runtime import HostRuntime
from torrentdist.master.bundles import bundle_views
from torrentdist.master.http.mutation_requests import bundle_of, bundle_target, page_of, records_for
from torrentdist.master.reads.saved_records import Records
from torrentdist.master.swarm.swarms import Swarms
from torrentdist.model.errors import EXIT_DISK, TorrentdistError
from torrentdist.model.wire.bundle_messages import BundleView
from torrentdist.model.wire.fleet_messages import FleetView
from torrentdist.security.principal import Role

LONGEST_POLL = 2.0
"""Seconds after which a long poll is answered in any case. Silence means a frozen master to a
client."""
MOST_POLL = 30.0
"""The most seconds that a client may ask for; older clients ask for more than LONGEST_POLL."""


class BundleApi:
    def __init__(
        self, records: Records, mirror: Mirror, swarms: Swarms, runtime: HostRuntime, hand_outs: HandOuts
    ) -> None:
        self._records = records
        self._mirror = mirror
        self._swarms = swarms
        self._runtime = runtime
        self._hand_outs = hand_outs

    def operations(self) -> Iterator[Operation]:
        summary = "every bundle that can be downloaded, or is lost"
        yield Operation("GET", "/v1/bundles", self.bundles, list[BundleView], summary, Role.READER, paged=True)
        one, target = "/v1/bundles/{id}", bundle_target
        yield Operation("GET", one, self.bundle, BundleView, "one bundle", Role.JOB, hands_out=target)
        summary = "long poll until enough masters hold it"
        yield Operation("GET", f"{one}/wait", self.wait, BundleView, summary, Role.READER, hands_out=target)
        summary = "one file of a bundle held here"
        yield Operation(
            "GET",
            f"{one}/files/{{path:any_path}}",
            self.file,
            None,
            summary,
            Role.JOB,
            statuses=FILE,
            hands_out=target,
        )
        summary = "how far each host is that is told to keep it"
        yield Operation("GET", f"{one}/hosts", self.hosts, FleetView, summary, Role.READER, hands_out=target)

    async def bundles(self, request: Request) -> Response:
        now = self._records.server_now()
        own_bytes = self._runtime.store.own_bytes
        snapshot = records_for(request, self._records)
        return json_response(bundle_views.bundle_list(snapshot, now, page_of(request), own_bytes))

    async def bundle(self, request: Request) -> Response:
        bundle, snapshot = bundle_of(request), records_for(request, self._records)
        is_uploading = flag_parameter(request, "uploading")
        bundle_views.entry_of(snapshot, bundle, *(bundle_views.ALIVE if is_uploading else bundle_views.LISTED))
        view = bundle_views.bundle_view(snapshot, bundle)
        return json_response(bundle_views.with_stuck(view, self._swarms.members(view.digest)))

    async def wait(self, request: Request) -> Response:
        bundle = bundle_of(request)
        replicas = int(number_parameter(request, "replicas", 1, low=0, high=1000))
        timeout = min(LONGEST_POLL, number_parameter(request, "timeout", LONGEST_POLL, low=0, high=MOST_POLL))
        bundle_views.entry_of(records_for(request, self._records), bundle, *bundle_views.ALIVE)
        with contextlib.suppress(TorrentdistError):  # the time is up: answer the current state
            await self._mirror.wait_for(lambda s: bundle_views.replicated(s, bundle, replicas), timeout)
        snapshot = self._records.snapshot()
        entry = bundle_views.entry_of(snapshot, bundle, *bundle_views.ALIVE)
        failure = self._runtime.fetches.failure(entry.record.digest)
        alone = not snapshot.holders(bundle) and len(snapshot.masters) == 1
        if alone and failure is not None and failure.exit_code == EXIT_DISK:
            raise failure  # no other master could take the bundle
        view = bundle_views.bundle_view(snapshot, bundle)
        said = self._swarms.members(view.digest)
        return json_response(bundle_views.with_lacking(snapshot, view, said))

    async def file(self, request: Request) -> Response:
        bundle = bundle_of(request)
        entry = bundle_views.entry_of(records_for(request, self._records), bundle, *bundle_views.ALIVE)
        stored = self._runtime.store.get(entry.record.digest)
        if stored is None:
            raise TorrentdistError("bundle_unavailable", id=bundle, detail="this master does not hold it")
        path = await self._hand_outs.file(stored.digest, request.path_params["path"])
        if path is None:
            raise TorrentdistError("bundle_unavailable", id=bundle, detail="this master's copy is being fetched again")
        return await asyncio.to_thread(file_response, request, stored.content, path, stored.digest, stored.published_at)

    async def hosts(self, request: Request) -> Response:
        bundle, snapshot = bundle_of(request), records_for(request, self._records)
        entry = bundle_views.entry_of(snapshot, bundle, *bundle_views.LISTED)
        return json_response(bundle_views.fleet_view(snapshot, bundle, self._swarms.members(entry.record.digest)))
