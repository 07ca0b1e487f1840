"""Distributions under way and retention rules, as the masters know them."""

import msgspec

from torrentdist.client.masters.master_client import MasterClient
from torrentdist.http.api_calls import Request
from torrentdist.model.ids import BundleId
from torrentdist.model.policies.policy_messages import DistributionStatusView, RetentionBody, RetentionView

CHANGE_SECS = 60.0
"""A dry run over very many bundles precedes the answer."""


async def distributions(client: MasterClient) -> list[DistributionStatusView]:
    return await client.read("GET", "/v1/waves", list[DistributionStatusView])


async def cancel_distribution(client: MasterClient, bundle: BundleId) -> DistributionStatusView:
    """Ends a distribution. Hosts that have the bundle keep it."""
    request = Request("DELETE", f"/v1/bundles/{bundle}/distribution")
    return await client.mutate(request, DistributionStatusView)


async def retention_rules(client: MasterClient) -> list[RetentionView]:
    return await client.read("GET", "/v1/retention", list[RetentionView])


async def put_retention(client: MasterClient, pattern: str, keep: int, for_secs: float) -> RetentionView:
    """Writes a rule. Returns what it removes and what stays."""
    content = msgspec.json.encode(RetentionBody(pattern=pattern, keep=keep, for_secs=for_secs))
    request = Request("PUT", "/v1/retention", content=content, timeout=CHANGE_SECS)
    return await client.mutate(request, RetentionView)


async def remove_retention(client: MasterClient, pattern: str) -> RetentionView:
    params = {"pattern": pattern}
    return await client.mutate(Request("DELETE", "/v1/retention", params=params, timeout=CHANGE_SECS), RetentionView)
