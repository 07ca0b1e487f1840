"""Distributions and retention rules over HTTP.

Always: a standby refuses changes; the leader makes them, once for each request id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.operation import Operation, about, body_of
from torrentdist.host.http.web import decode_body, json_response
from torrentdist.master.bundles.bundle_views import fleet_view
from torrentdist.master.http.mutation_requests import answered, bundle_of, bundle_target, mutation_of, records_for
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.policies.distribution_changes import hosts_of
from torrentdist.master.policies.distribution_operations import DistributionOperations, Members, distribution_view
from torrentdist.master.policies.distribution_orders import order_of, record_of
from torrentdist.master.policies.retention_operations import RetentionOperations, rule_views
from torrentdist.master.reads.saved_records import Records
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.policies.policy_messages import DistributionStatusView, RetentionBody, RetentionView
from torrentdist.model.wire.fleet_messages import DistributeBody, FleetView
from torrentdist.security.authorization import checked_pattern
from torrentdist.security.principal import Role

MAX_DISTRIBUTE_BYTES: Final = 4 * 1024 * 1024
MAX_RULE_BYTES: Final = 16 * 1024


class DistributionApi:
    def __init__(
        self,
        distributions: DistributionOperations,
        leadership: Leadership,
        records: Records,
        members: Members,
        plugin_without_limits: str,
    ) -> None:
        """`plugin_without_limits`: the plug-in of all hosts, if it cannot limit a fetch; else
        empty."""
        self._distributions = distributions
        self._leadership = leadership
        self._records = records
        self._members = members
        self._plugin_without_limits = plugin_without_limits

    def operations(self) -> Iterator[Operation]:
        yield Operation(
            "POST",
            "/v1/bundles/{id}/distribute",
            self.distribute,
            FleetView,
            "tell hosts to fetch and keep it, at once or in waves",
            Role.UPLOADER,
            body=DistributeBody,
            max_body=MAX_DISTRIBUTE_BYTES,
            changes=True,
            dry_runs=True,
            target=bundle_target,
        )
        every, one = "/v1/waves", "/v1/bundles/{id}/distribution"
        summary = "every distribution that is under way or was lately"
        yield Operation("GET", every, self.waves, list[DistributionStatusView], summary, Role.READER)
        yield Operation(
            "GET", one, self.distribution, DistributionStatusView, "the distribution of a bundle", Role.READER
        )
        yield Operation(
            "DELETE",
            one,
            self.cancel_distribution,
            DistributionStatusView,
            "end the distribution: hosts that have the bundle keep it, the others give up",
            Role.UPLOADER,
            changes=True,
            dry_runs=True,
            target=bundle_target,
        )

    async def distribute(self, request: Request) -> Response:
        self._leadership.fence()
        raw = await body_of(request)
        order = order_of(bundle_of(request), decode_body(raw or b"{}", DistributeBody), principal_of(request).name)
        if order.terms.rate and self._plugin_without_limits:
            raise TorrentdistError("limit_not_kept", plugin=self._plugin_without_limits)

        def render(snapshot: ClusterSnapshot) -> FleetView:
            meant = set(hosts_of(snapshot, record_of(snapshot, order, 0.0)))
            digest = snapshot.bundles[order.bundle].record.digest
            fleet = fleet_view(snapshot, order.bundle, self._members(digest))
            return msgspec.structs.replace(fleet, hosts=[host for host in fleet.hosts if host.supervisor in meant])

        return answered(await self._distributions.begin(await mutation_of(request, raw), order, render))

    async def waves(self, request: Request) -> Response:
        snapshot = records_for(request, self._records)
        return json_response([distribution_view(snapshot, bundle) for bundle in sorted(snapshot.distributions)])

    async def distribution(self, request: Request) -> Response:
        return json_response(distribution_view(records_for(request, self._records), bundle_of(request)))

    async def cancel_distribution(self, request: Request) -> Response:
        self._leadership.fence()
        bundle = bundle_of(request)
        return answered(await self._distributions.cancel(await mutation_of(request), bundle))


class RetentionApi:
    def __init__(self, retention: RetentionOperations, leadership: Leadership, records: Records) -> None:
        self._retention = retention
        self._leadership = leadership
        self._records = records

    def operations(self) -> Iterator[Operation]:
        path = "/v1/retention"
        yield Operation("GET", path, self.retention_rules, list[RetentionView], "every retention rule", Role.READER)
        yield Operation(
            "PUT",
            path,
            self.set_retention,
            RetentionView,
            "keep the newest bundles of a pattern, and remove the others",
            Role.OPERATOR,
            body=RetentionBody,
            max_body=MAX_RULE_BYTES,
            changes=True,
            dry_runs=True,
        )
        summary = "end the rule of the parameter `pattern`"
        yield Operation(
            "DELETE", path, self.end_retention, RetentionView, summary, Role.OPERATOR, changes=True, dry_runs=True
        )

    async def retention_rules(self, request: Request) -> Response:
        snapshot, now = records_for(request, self._records), self._records.server_now()
        return json_response(await asyncio.to_thread(rule_views, snapshot, now))

    async def set_retention(self, request: Request) -> Response:
        self._leadership.fence()
        raw = await body_of(request)
        body = decode_body(raw, RetentionBody)
        about(request, body.pattern)
        mutation, by = await mutation_of(request, raw), principal_of(request).name
        return answered(await self._retention.put(mutation, body, by))

    async def end_retention(self, request: Request) -> Response:
        self._leadership.fence()
        pattern = checked_pattern(request.query_params.get("pattern", ""))
        about(request, pattern)
        return answered(await self._retention.remove(await mutation_of(request), pattern))
