"""Resource groups, as the masters show and change them."""

from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from torrentdist.client.masters.master_client import MasterClient
from torrentdist.http.api_calls import Request
from torrentdist.model.wire.cluster_messages import (
    GroupChangeView,
    GroupIdentityView,
    GroupLineView,
    GroupView,
    ResourcesBody,
)


async def list_groups(client: MasterClient) -> list[GroupLineView]:
    return await client.read("GET", "/v1/groups", list[GroupLineView])


async def show_group(client: MasterClient, name: str) -> GroupView:
    return await client.read("GET", _path(name), GroupView)


async def add_resources(client: MasterClient, name: str, resources: Sequence[str]) -> list[str]:
    """Returns the resources that are new."""
    body = msgspec.json.encode(ResourcesBody(resources=list(resources)))
    view = await client.mutate(Request("POST", f"{_path(name)}/resources", content=body), GroupChangeView)
    return view.changed


async def remove_resources(client: MasterClient, name: str, resources: Sequence[str]) -> list[str]:
    """Removes resources one by one. Raises `not_found` at the first that is not there."""
    for resource in resources:
        path = f"{_path(name)}/resources/{quote(resource, safe='')}"
        await client.mutate(Request("DELETE", path), GroupChangeView)
    return list(resources)


async def group_identity(client: MasterClient, name: str) -> GroupIdentityView:
    return await client.read("GET", f"{_path(name)}/identity", GroupIdentityView)


def _path(name: str) -> str:
    return f"/v1/groups/{quote(name, safe='')}"
