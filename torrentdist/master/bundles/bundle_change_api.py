"""Changes of bundles: remove, sign, pin, and prune.

Always: a standby refuses them; the leader's operations make them, once for each request id.
"""

import msgspec

from torrentdist.host.http.operation import DRY_RUN
from torrentdist.host.http.web import flag_parameter
from torrentdist.master.bundles.bundle_operations import BundleOperations
from torrentdist.master.bundles.pruning import Pruning
from torrentdist.master.changes.answered_requests import A_DRY_RUN
from torrentdist.master.http.routes import RequestedChange, Routes, bundle_of, bundle_target, change, seconds_of
from torrentdist.master.leading.leadership import Leadership
from torrentdist.model.access.envelope import Envelope
from torrentdist.model.wire.bundle_messages import BundleView, UnusedView
from torrentdist.security.authorization import Role

MOST_SIGNATURE_BYTES = 4096
"""Longest envelope of a bundle, as JSON."""


class BundleChangeApi(Routes, msgspec.Struct, frozen=True):
    bundles: BundleOperations
    leadership: Leadership
    pruning: Pruning

    @change("DELETE", "/v1/bundles/{id}", BundleView, Role.OPERATOR)
    async def remove(self, asked: RequestedChange) -> bytes:
        """Remove the bundle everywhere."""
        return await self.bundles.remove(asked.mutation, bundle_of(asked.request))

    @change(
        "POST",
        "/v1/bundles/{id}/signatures",
        BundleView,
        Role.UPLOADER,
        body=Envelope,
        max_body=MOST_SIGNATURE_BYTES,
        target=bundle_target,
    )
    async def sign(self, asked: RequestedChange) -> bytes:
        """Add a signature of its id and content."""
        return await self.bundles.sign(asked.mutation, bundle_of(asked.request), asked.body)

    @change("PUT", "/v1/bundles/{id}/pin", BundleView, Role.OPERATOR)
    @change("DELETE", "/v1/bundles/{id}/pin", BundleView, Role.OPERATOR, summary="undo pin")
    async def pin(self, asked: RequestedChange) -> bytes:
        """Never remove it nor drop it for room."""
        return await self.bundles.set_pinned(asked.mutation, bundle_of(asked.request), asked.request.method == "PUT")

    @change("POST", "/v1/prune", UnusedView, Role.OPERATOR)
    async def prune(self, asked: RequestedChange) -> bytes:
        """Remove the bundles that nobody uses."""
        older_than, mutation = seconds_of(asked.request, "older_than"), asked.mutation
        if flag_parameter(asked.request, "dry_run"):  # from clients older than /v1/dry-run
            asked.request.scope[DRY_RUN], mutation = True, A_DRY_RUN
        return await self.pruning.prune(mutation, older_than)
