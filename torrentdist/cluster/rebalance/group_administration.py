"""Lets an administrator inspect a resource group, and add and remove resources.

Always: only children of /resources are created and deleted, so that no write of a coordinator fails
on a changed version. A removed resource that a member works on stays exclusive until the member
releases it. Needs no member and no master.
"""

import contextlib
from typing import TypeVar

from torrentdist.cluster import paths
from torrentdist.cluster.election.term import queue
from torrentdist.cluster.paths import GroupPaths, free_group
from torrentdist.cluster.rebalance.group_agreement import agree_on
from torrentdist.cluster.rebalance.group_records import (
    MAX_RESOURCES,
    Algorithm,
    GroupRecord,
    GroupStatus,
    MemberRecord,
    PlanRecord,
    StatusRecord,
    read,
)
from torrentdist.cluster.session.znode_operations import NodeExists, NoNode
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.model.errors import TorrentdistError, required
from torrentdist.model.records import decode
from torrentdist.model.wire.cluster_messages import GroupLineView, GroupMemberView, GroupView

T = TypeVar("T")

LOOK_SECS = 1.2
"""How long a look at groups may take, out of two seconds."""


async def list_groups(zk: ZooKeeper) -> list[GroupLineView]:
    lines = []
    for name in sorted({*(await zk.children(paths.GROUPS) or ())} - {paths.JOB_GROUP.name}):
        group = GroupPaths(name)
        found = await zk.get(group.root)
        members, resources = await zk.children(group.members), await zk.children(group.resources)
        if found is not None:
            line = GroupLineView(
                group=name,
                algorithm=_algorithm(found[0], group),
                members=len(members or ()),
                resources=len(resources or ()),
            )
            lines.append(line)
    return lines


async def show_group(zk: ZooKeeper, name: str) -> GroupView:
    group = free_group(name)
    found = required(await zk.get(group.root), "not_found", what=f"the group {name}")
    resources = sorted(await zk.children(group.resources) or ())
    plan = read(await _data(zk, group.plan), PlanRecord, group.plan)
    status = read(await _data(zk, group.status), StatusRecord, group.status)
    coordinator = (await _data(zk, group.epoch)).decode(errors="replace")
    members = []
    for znode in queue(await zk.children(group.members) or ()):
        record = await zk.get(group.member(znode))
        if record is not None:
            member = GroupMemberView(
                member=znode,
                id=_id(record[0], group.member(znode)),
                coordinator=znode == coordinator,
                resources=list(plan.members.get(znode, ())),
            )
            members.append(member)
    assigned = {resource for member in members for resource in member.resources}
    return GroupView(
        group=name,
        algorithm=_algorithm(found[0], group),
        state="stopping" if status.status is GroupStatus.STOP_ACTIVITY else "assigned",
        members=members,
        resources=resources,
        unassigned=[resource for resource in resources if resource not in assigned],
    )


async def add_resource(zk: ZooKeeper, group: str, resource: str) -> bool:
    """Adds a resource. Returns False if it exists already.

    Creates the group if there is none; its first member chooses the algorithm.
    """
    tree = free_group(group)
    path = tree.resource(resource)
    await agree_on(zk, tree, None)
    await zk.ensure(tree.resources)
    count = len(await zk.children(tree.resources) or ())
    if count >= MAX_RESOURCES:
        raise TorrentdistError("too_large", what=f"group {group}, in resources,", size=count + 1, limit=MAX_RESOURCES)
    with contextlib.suppress(NodeExists):
        await zk.create(path)
        return True
    return False


async def remove_resource(zk: ZooKeeper, group: str, resource: str) -> None:
    """Removes a resource. Raises `not_found` if there is none.

    A member that works on it stops at the next plan.
    """
    try:
        await zk.delete(free_group(group).resource(resource))
    except NoNode:
        raise TorrentdistError("not_found", what=f"resource {resource} of the group {group}") from None


async def _data(zk: ZooKeeper, path: str) -> bytes:
    found = await zk.get(path)
    return b"" if found is None else found[0]


def _algorithm(data: bytes, group: GroupPaths) -> str | None:
    algorithm: Algorithm | None = read(data, GroupRecord, group.root).algorithm
    return algorithm.value if algorithm else None


def _id(data: bytes, path: str) -> str:
    try:
        return decode(data, MemberRecord, path=path).id
    except TorrentdistError:
        return "?"
