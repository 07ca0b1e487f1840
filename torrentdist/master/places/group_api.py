"""Resource groups over HTTP: list and show them, add and remove resources, and let members in.

Always: a read ends within two seconds, whatever ZooKeeper does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.cluster import paths
from torrentdist.cluster.paths import free_group
from torrentdist.cluster.rebalance.group_administration import LOOK_SECS, list_groups, show_group
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.host.http.operation import Operation, body_of, is_dry_run
from torrentdist.host.http.web import decode_body, json_response
from torrentdist.master.changes.commit import LeaderChanges
from torrentdist.master.http.mutation_requests import answered, mutation_of
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


class GroupApi:
    def __init__(self, zookeeper: ZooKeeper, changes: LeaderChanges, leadership: Leadership) -> None:
        self._zookeeper = zookeeper
        self._changes = changes
        self._leadership = leadership

    def operations(self) -> Iterator[Operation]:
        one = "/v1/groups/{group}"
        yield Operation("GET", "/v1/groups", self.groups, list[GroupLineView], "the resource groups", Role.READER)
        summary = "a resource group with its members"
        yield Operation("GET", one, self.group, GroupView, summary, Role.READER)
        yield Operation(
            "POST",
            f"{one}/resources",
            self.add_resources,
            GroupChangeView,
            "add resources to a group, which is made if needed",
            Role.OPERATOR,
            body=ResourcesBody,
            max_body=MAX_RESOURCES_BYTES,
            changes=True,
            dry_runs=True,
        )
        path, summary = f"{one}/resources/{{resource}}", "remove a resource from a group"
        role = Role.OPERATOR
        yield Operation(
            "DELETE", path, self.remove_resource, GroupChangeView, summary, role, changes=True, dry_runs=True
        )
        path, summary = f"{one}/identity", "the identity in ZooKeeper of a group's members"
        yield Operation("GET", path, self.group_identity, GroupIdentityView, summary, Role.OPERATOR)

    async def groups(self, _: Request) -> Response:
        return json_response(await _in_time(list_groups(self._zookeeper)))

    async def group(self, request: Request) -> Response:
        return json_response(await _in_time(show_group(self._zookeeper, request.path_params["group"])))

    async def add_resources(self, request: Request) -> Response:
        self._leadership.fence()
        raw = await body_of(request)
        mutation, wanted = await mutation_of(request, raw), decode_body(raw, ResourcesBody).resources
        tree = await self._tree(request)
        ops, new = addition_ops(tree, wanted)
        if not is_dry_run(request):
            await self._zookeeper.ensure(paths.GROUPS)
        view = GroupChangeView(group=tree.group.name, changed=new)
        return answered(await self._changes.make_alone(mutation, lambda _: ops, lambda _: view))

    async def remove_resource(self, request: Request) -> Response:
        self._leadership.fence()
        mutation, resource = await mutation_of(request), request.path_params["resource"]
        kept = await self._changes.recall(mutation)
        if kept is not None:
            return answered(kept)
        tree = await self._tree(request)
        ops, view = removal_ops(tree, resource), GroupChangeView(group=tree.group.name, changed=[resource])
        return answered(await self._changes.make_alone(mutation, lambda _: ops, lambda _: view))

    async def group_identity(self, request: Request) -> Response:
        secret = self._zookeeper.identity.table.secret
        if not secret:
            raise TorrentdistError("identities_off")
        tree = await self._tree(request)
        if group_ops(tree):  # Its members could not make what is missing.
            raise TorrentdistError("not_found", what=f"the group {tree.group.name}, made by `group add`")
        identity = identity_of(secret, group_user(tree.group.name))
        return json_response(GroupIdentityView(group=tree.group.name, auth=auth_text(identity)))

    async def _tree(self, request: Request) -> GroupTree:
        group, zookeeper = free_group(request.path_params["group"]), self._zookeeper
        present = [path for path in (group.root, *group.parts) if await zookeeper.exists(path) is not None]
        return GroupTree(group, frozenset(present), frozenset(await zookeeper.children(group.resources) or ()))


async def _in_time(look: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(LOOK_SECS):
            return await look
    except TimeoutError:
        raise TorrentdistError("zookeeper_unavailable", detail=f"no answer within {LOOK_SECS:g} s") from None
