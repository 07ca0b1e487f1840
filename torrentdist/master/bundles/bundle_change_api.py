"""Changes of bundles: remove, sign, pin, and prune.

Always: a standby refuses them; the leader's operations make them, once for each request id.
"""

from __future__ import annotations

from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.operation import DRY_RUN, Operation, body_of
from torrentdist.host.http.web import decode_body, flag_parameter, number_parameter
from torrentdist.master.bundles.bundle_operations import BundleOperations
from torrentdist.master.bundles.pruning import Pruning
from torrentdist.master.http.mutation_requests import LONGEST_WAIT, answered, bundle_of, bundle_target, mutation_of
from torrentdist.master.leading.leadership import Leadership
from torrentdist.model.access.envelope import Envelope
from torrentdist.model.wire.bundle_messages import BundleView
from torrentdist.model.wire.prune_views import UnusedView
from torrentdist.security.principal import Role

MOST_SIGNATURE_BYTES = 4096
"""Longest envelope of a bundle, as JSON."""


class BundleChangeApi:
    def __init__(self, operations: BundleOperations, leadership: Leadership, pruning: Pruning) -> None:
        self._operations = operations
        self._leadership = leadership
        self._pruning = pruning

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
        summary = "remove the bundles that nobody uses"
        yield Operation("POST", "/v1/prune", self.prune, UnusedView, summary, role, changes=True, dry_runs=True)

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

    async def prune(self, request: Request) -> Response:
        older_than = number_parameter(request, "older_than", 0.0, low=0.0, high=LONGEST_WAIT)
        if flag_parameter(request, "dry_run"):  # from clients older than /v1/dry-run
            request.scope[DRY_RUN] = True
        self._leadership.fence()
        return answered(await self._pruning.prune(await mutation_of(request), older_than))
