"""Resource groups over HTTP: list and show them, add and remove resources, and let members in.

Always: a read ends within two seconds, whatever ZooKeeper does.
"""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.cluster import paths
from torrentdist.cluster.paths import free_group
from torrentdist.cluster.rebalance.group_administration import LOOK_SECS, list_groups, show_group
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.host.http.operation import is_dry_run
from torrentdist.host.http.web import json_response
from torrentdist.master.changes.commit import LeaderChanges
from torrentdist.master.http.routes import RequestedChange, Routes, change, operation
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.places.group_changes import GroupTree, addition_ops, group_ops, removal_ops
from torrentdist.model.access.zookeeper_identity import auth_text, group_user, identity_of
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.group_views import (
    GroupChangeView,
    GroupIdentityView,
    GroupLineView,
    GroupView,
    ResourcesBody,
)
from torrentdist.security.principal import Role

MAX_RESOURCES_BYTES = 256 * 1024
T = TypeVar("T")


@dataclass(frozen=True)
class GroupApi(Routes):
    zookeeper: ZooKeeper
    changes: LeaderChanges
    leadership: Leadership

    @operation("GET", "/v1/groups", list[GroupLineView], Role.READER)
    async def groups(self, _: Request) -> Response:
        """The resource groups."""
        return json_response(await _in_time(list_groups(self.zookeeper)))

    @operation("GET", "/v1/groups/{group}", GroupView, Role.READER)
    async def group(self, request: Request) -> Response:
        """A resource group with its members."""
        return json_response(await _in_time(show_group(self.zookeeper, request.path_params["group"])))

    @change(
        "POST",
        "/v1/groups/{group}/resources",
        GroupChangeView,
        Role.OPERATOR,
        body=ResourcesBody,
        max_body=MAX_RESOURCES_BYTES,
    )
    async def add_resources(self, asked: RequestedChange) -> bytes:
        """Add resources to a group, which is made if needed."""
        tree = await self._tree(asked.request)
        ops, new = addition_ops(tree, asked.body.resources)
        if not is_dry_run(asked.request):
            await self.zookeeper.ensure(paths.GROUPS)
        view = GroupChangeView(group=tree.group.name, changed=new)
        return await self.changes.make_alone(asked.mutation, lambda _: ops, lambda _: view)

    @change("DELETE", "/v1/groups/{group}/resources/{resource}", GroupChangeView, Role.OPERATOR)
    async def remove_resource(self, asked: RequestedChange) -> bytes:
        """Remove a resource from a group."""
        kept = await self.changes.recall(asked.mutation)
        if kept is not None:
            return kept
        tree, resource = await self._tree(asked.request), asked.request.path_params["resource"]
        ops, view = removal_ops(tree, resource), GroupChangeView(group=tree.group.name, changed=[resource])
        return await self.changes.make_alone(asked.mutation, lambda _: ops, lambda _: view)

    @operation("GET", "/v1/groups/{group}/identity", GroupIdentityView, Role.OPERATOR)
    async def group_identity(self, request: Request) -> Response:
        """The identity in ZooKeeper of a group's members."""
        secret = self.zookeeper.identity.table.secret
        if not secret:
            raise TorrentdistError("identities_off")
        tree = await self._tree(request)
        if group_ops(tree):  # Its members could not make what is missing.
            raise TorrentdistError("not_found", what=f"the group {tree.group.name}, made by `group add`")
        identity = identity_of(secret, group_user(tree.group.name))
        return json_response(GroupIdentityView(group=tree.group.name, auth=auth_text(identity)))

    async def _tree(self, request: Request) -> GroupTree:
        group, zookeeper = free_group(request.path_params["group"]), self.zookeeper
        present = [path for path in (group.root, *group.parts) if await zookeeper.exists(path) is not None]
        return GroupTree(group, frozenset(present), frozenset(await zookeeper.children(group.resources) or ()))


async def _in_time(look: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(LOOK_SECS):
            return await look
    except TimeoutError:
        raise TorrentdistError("zookeeper_unavailable", detail=f"no answer within {LOOK_SECS:g} s") from None
