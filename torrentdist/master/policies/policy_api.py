"""Distributions and retention rules over HTTP.

Always: a standby refuses changes; the leader makes them, once for each request id.
"""

import asyncio
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.host.http.operation import about
from torrentdist.host.http.web import json_response
from torrentdist.master.bundles.bundle_views import fleet_view
from torrentdist.master.http.routes import (
    RequestedChange,
    Routes,
    bundle_of,
    bundle_target,
    change,
    operation,
    records_for,
    records_to_list,
)
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.policies.distribution_changes import hosts_of
from torrentdist.master.policies.distribution_orders import (
    DistributionOperations,
    Members,
    distribution_view,
    order_of,
    record_of,
)
from torrentdist.master.policies.retention_operations import RetentionOperations, rule_views
from torrentdist.master.reads.saved_records import Records
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.policies.policy_messages import DistributionStatusView, RetentionBody, RetentionView
from torrentdist.model.wire.fleet_messages import DistributeBody, FleetView
from torrentdist.security.authorization import Role, checked_pattern

MAX_DISTRIBUTE_BYTES: Final = 4 * 1024 * 1024
MAX_RULE_BYTES: Final = 16 * 1024


class DistributionApi(Routes, msgspec.Struct, frozen=True):
    distributions: DistributionOperations
    leadership: Leadership
    records: Records
    members: Members
    plugin_without_limits: str
    """The plug-in of all hosts, if it cannot limit a fetch; else empty."""

    @change(
        "POST",
        "/v1/bundles/{id}/distribute",
        FleetView,
        Role.UPLOADER,
        body=DistributeBody,
        max_body=MAX_DISTRIBUTE_BYTES,
        target=bundle_target,
    )
    async def distribute(self, asked: RequestedChange) -> bytes:
        """Tell hosts to fetch and keep it, at once or in waves."""
        order = order_of(bundle_of(asked.request), asked.body, asked.by)
        if order.terms.rate and self.plugin_without_limits:
            raise TorrentdistError("limit_not_kept", plugin=self.plugin_without_limits)

        def render(snapshot: ClusterSnapshot) -> FleetView:
            meant = set(hosts_of(snapshot, record_of(snapshot, order, 0.0)))
            digest = snapshot.bundles[order.bundle].record.digest
            fleet = fleet_view(snapshot, order.bundle, self.members(digest))
            return msgspec.structs.replace(fleet, hosts=[host for host in fleet.hosts if host.supervisor in meant])

        return await self.distributions.begin(asked.mutation, order, render)

    @operation("GET", "/v1/waves", list[DistributionStatusView], Role.READER)
    async def waves(self, request: Request) -> Response:
        """Every distribution that is under way or was lately."""
        snapshot = records_to_list(request, self.records)
        return json_response([distribution_view(snapshot, bundle) for bundle in sorted(snapshot.distributions)])

    @operation("GET", "/v1/bundles/{id}/distribution", DistributionStatusView, Role.READER)
    async def distribution(self, request: Request) -> Response:
        """The distribution of a bundle."""
        return json_response(distribution_view(records_for(request, self.records), bundle_of(request)))

    @change("DELETE", "/v1/bundles/{id}/distribution", DistributionStatusView, Role.UPLOADER, target=bundle_target)
    async def cancel_distribution(self, asked: RequestedChange) -> bytes:
        """End the distribution: hosts that have the bundle keep it, the others give up."""
        return await self.distributions.cancel(asked.mutation, bundle_of(asked.request))


class RetentionApi(Routes, msgspec.Struct, frozen=True):
    retention: RetentionOperations
    leadership: Leadership
    records: Records

    @operation("GET", "/v1/retention", list[RetentionView], Role.READER)
    async def retention_rules(self, request: Request) -> Response:
        """Every retention rule."""
        snapshot, now = records_to_list(request, self.records), self.records.server_now()
        return json_response(await asyncio.to_thread(rule_views, snapshot, now))

    @change("PUT", "/v1/retention", RetentionView, Role.OPERATOR, body=RetentionBody, max_body=MAX_RULE_BYTES)
    async def set_retention(self, asked: RequestedChange) -> bytes:
        """Keep the newest bundles of a pattern, and remove the others."""
        about(asked.request, asked.body.pattern)
        return await self.retention.put(asked.mutation, asked.body, asked.by)

    @change("DELETE", "/v1/retention", RetentionView, Role.OPERATOR)
    async def end_retention(self, asked: RequestedChange) -> bytes:
        """End the rule of the parameter `pattern`."""
        pattern = checked_pattern(asked.request.query_params.get("pattern", ""))
        about(asked.request, pattern)
        return await self.retention.remove(asked.mutation, pattern)
