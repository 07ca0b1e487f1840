"""Changes of bundles: remove, pin, distribute to hosts, and prune.

Always: a standby refuses them; the leader's operations make them, once for each request id.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.host.http.operation import Operation, body_of
from torrentdist.host.http.web import decode_body, number_parameter
from torrentdist.master.bundles.bundle_operations import BundleOperations, targets
from torrentdist.master.bundles.bundle_views import fleet_view
from torrentdist.master.bundles.pruning import Pruning
from torrentdist.master.http.mutation_requests import LONGEST_WAIT, answered, bundle_of, bundle_target, mutation_of
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.swarm.swarms import Swarms
from torrentdist.model import ids
from torrentdist.model.access.envelope import Envelope
from torrentdist.model.wire.bundle_messages import BundleView
from torrentdist.model.wire.fleet_messages import DistributeBody, FleetView
from torrentdist.model.wire.prune_views import UnusedView
from torrentdist.security.principal import Role

MOST_SIGNATURE_BYTES = 4096
"""Longest envelope of a bundle, as JSON."""


class BundleChangeApi:
    """`max_body` is the largest body of a request in bytes."""

    def __init__(
        self, operations: BundleOperations, leadership: Leadership, pruning: Pruning, swarms: Swarms, max_body: int
    ) -> None:
        self._operations = operations
        self._leadership = leadership
        self._pruning = pruning
        self._swarms = swarms
        self._max_body = max_body

    def operations(self) -> Iterator[Operation]:
        role = Role.OPERATOR
        bundle, pin = "/v1/bundles/{id}", "/v1/bundles/{id}/pin"
        summary = "remove the bundle everywhere"
        yield Operation("DELETE", bundle, self.remove, BundleView, summary, role, changes=True, dry_runs=True)
        summary = "never remove it nor drop it for room"
        yield Operation("PUT", pin, self.pin, BundleView, summary, role, changes=True, dry_runs=True)
        yield Operation("DELETE", pin, self.pin, BundleView, "undo pin", role, changes=True, dry_runs=True)
        yield Operation(
            "POST",
            "/v1/bundles/{id}/signatures",
            self.sign,
            BundleView,
            "add a signature of its id and content",
            Role.UPLOADER,
            body=Envelope,
            max_body=MOST_SIGNATURE_BYTES,
            changes=True,
            dry_runs=True,
            target=bundle_target,
        )
        yield Operation(
            "POST",
            "/v1/bundles/{id}/distribute",
            self.distribute,
            FleetView,
            "tell hosts to fetch and keep it",
            Role.UPLOADER,
            body=DistributeBody,
            max_body=self._max_body,
            changes=True,
            dry_runs=True,
            target=bundle_target,
        )
        summary = "remove the bundles that nobody uses"
        yield Operation("POST", "/v1/prune", self.prune, UnusedView, summary, Role.OPERATOR, changes=True)

    async def remove(self, request: Request) -> Response:
        bundle = bundle_of(request)
        return answered(await self._operations.remove(await mutation_of(request), bundle))

    async def sign(self, request: Request) -> Response:
        bundle = bundle_of(request)
        self._leadership.fence()
        raw = await body_of(request)
        envelope = decode_body(raw, Envelope)
        return answered(await self._operations.sign(await mutation_of(request, raw), bundle, envelope))

    async def pin(self, request: Request) -> Response:
        bundle = bundle_of(request)
        mutation = await mutation_of(request)
        return answered(await self._operations.set_pinned(mutation, bundle, request.method == "PUT"))

    async def distribute(self, request: Request) -> Response:
        bundle = bundle_of(request)
        raw = await body_of(request)
        body = decode_body(raw or b"{}", DistributeBody)
        named = None if body.supervisors is None else [ids.supervisor_id(s) for s in body.supervisors]

        def render(snapshot: ClusterSnapshot) -> FleetView:
            meant = targets(snapshot, named, body.labels)
            fleet = fleet_view(snapshot, bundle, self._swarms.members(snapshot.bundles[bundle].record.digest))
            hosts = [host for host in fleet.hosts if host.supervisor in meant]
            return msgspec.structs.replace(fleet, hosts=hosts)

        mutation = await mutation_of(request, raw)
        return answered(await self._operations.distribute(mutation, bundle, named, body.labels, render))

    async def prune(self, request: Request) -> Response:
        older_than = number_parameter(request, "older_than", 0.0, low=0.0, high=LONGEST_WAIT)
        dry_run = request.query_params.get("dry_run") == "true"
        self._leadership.fence()
        return answered(await self._pruning.prune(await mutation_of(request), older_than, dry_run))
