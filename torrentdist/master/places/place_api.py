"""Places in ZooKeeper over HTTP: identities, a host's own and the masters', and resource groups
with their resources and members.

Always: an identity goes to the host that proves by its certificate that it is this host, and to
nobody else. It is never part of an answer that is kept. A read ends within two seconds, whatever
ZooKeeper does.
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.cluster import paths
from torrentdist.cluster.paths import free_group
from torrentdist.cluster.rebalance.group_administration import LOOK_SECS, list_groups, show_group
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.operation import is_dry_run
from torrentdist.host.http.web import json_response
from torrentdist.master.changes.commit import LeaderChanges
from torrentdist.master.http.routes import RequestedChange, Routes, change, operation
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.places.group_changes import GroupTree, addition_ops, group_ops, removal_ops
from torrentdist.master.places.place_operations import PARENTS, place_ops, user_of
from torrentdist.model import ids
from torrentdist.model.access.host_messages import PlaceBody, PlaceView
from torrentdist.model.access.zookeeper_identity import auth_text, group_user, identity_of
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.cluster_messages import (
    GroupChangeView,
    GroupIdentityView,
    GroupLineView,
    GroupView,
    ResourcesBody,
)
from torrentdist.security.authorization import Principal, Role
from torrentdist.security.certificate_identity import CertificateRole

MAX_PLACE_BYTES = 1024


class PlaceApi(Routes, msgspec.Struct, frozen=True):
    zookeeper: ZooKeeper
    changes: LeaderChanges
    leadership: Leadership

    @change(
        "POST", "/v1/hosts/{id}/place", PlaceView, Role.HOST, body=PlaceBody, max_body=MAX_PLACE_BYTES, dry_runs=False
    )
    async def place(self, asked: RequestedChange) -> bytes:
        """The place and the identity of a host in ZooKeeper."""
        id_ = ids.peer_id(asked.request.path_params["id"])
        _expect(principal_of(asked.request), CertificateRole.SUPERVISOR, id_)
        secret = self._secret()
        for parent in PARENTS:
            await self.zookeeper.ensure(parent)
        user = ""

        def render(snapshot: ClusterSnapshot) -> PlaceView:
            nonlocal user
            user = user_of(snapshot, id_)
            return PlaceView(id=id_, user=user, auth="")

        await self.changes.make_alone(None, lambda s: place_ops(s, id_), render)
        for path in (paths.place(id_), paths.host_members(id_)):  # Somebody may have closed it.
            await self.zookeeper.secure(path, self.zookeeper.identity.table.of(path, user.encode()))
        return msgspec.json.encode(PlaceView(id=id_, user=user, auth=auth_text(identity_of(secret, user))))

    @operation("GET", "/v1/zookeeper-auth", None, Role.HOST)
    async def masters_auth(self, request: Request) -> Response:
        """The masters' identity in ZooKeeper, for a master."""
        sender = principal_of(request)
        _expect(sender, CertificateRole.MASTER, sender.name)
        self._secret()
        return Response(auth_text(self.zookeeper.identity.credentials[:1]), media_type="text/plain")

    def _secret(self) -> str:
        secret = self.zookeeper.identity.table.secret
        if not secret:
            raise TorrentdistError("identities_off")
        return secret


def _expect(sender: Principal, role: CertificateRole, id_: str) -> None:
    """Raises `forbidden` unless the sender proves by certificate that it is this host."""
    certificate = sender.certificate
    if certificate is None or (certificate.role, certificate.id) != (role, id_):
        raise TorrentdistError("forbidden", detail=f"this is for the {role.value} {id_!r} with its certificate alone")


MAX_RESOURCES_BYTES = 256 * 1024
T = TypeVar("T")


class GroupApi(Routes, msgspec.Struct, frozen=True):
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
