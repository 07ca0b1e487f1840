"""The changes of resource groups: make one, add resources to it, and remove them.

Always: only a group that is missing and children of its /resources are written, so that no write of
a coordinator fails on a changed version. Pure: no I/O and no clock.
"""

from collections.abc import Collection, Sequence

import msgspec

from torrentdist.cluster.paths import GroupPaths
from torrentdist.cluster.rebalance.group_records import MAX_RESOURCES, GroupRecord
from torrentdist.cluster.session.znode_operations import Create, Delete, Op
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.records import encode

MOST_AT_ONCE = 1000


class GroupTree(msgspec.Struct, frozen=True):
    """What there is of a group."""

    group: GroupPaths
    present: frozenset[str]
    """The group's znode and its parts, by path."""
    resources: frozenset[str]


def group_ops(tree: GroupTree) -> list[Op]:
    """Makes what is missing of a group. Its first member chooses the algorithm."""
    whole = {tree.group.root: encode(GroupRecord()), **dict.fromkeys(tree.group.parts, b"")}
    return [Create(path, data) for path, data in whole.items() if path not in tree.present]


def addition_ops(tree: GroupTree, resources: Sequence[str]) -> tuple[list[Op], list[str]]:
    """Adds resources. Returns the operations, and the resources that are new."""
    paths = {resource: tree.group.resource(resource) for resource in resources}
    new = [resource for resource in paths if resource not in tree.resources]
    _check_size(f"group {tree.group.name}, in resources,", tree.resources | set(new), MAX_RESOURCES)
    _check_size("a change of a group, in resources,", new, MOST_AT_ONCE)
    return [*group_ops(tree), *(Create(paths[resource]) for resource in new)], new


def removal_ops(tree: GroupTree, resource: str) -> list[Op]:
    """Removes a resource. A member that works on it stops at the next plan."""
    path = tree.group.resource(resource)
    if resource not in tree.resources:
        raise TorrentdistError("not_found", what=f"resource {resource} of the group {tree.group.name}")
    return [Delete(path)]


def _check_size(what: str, resources: Collection[str], limit: int) -> None:
    if len(resources) > limit:
        raise TorrentdistError("too_large", what=what, size=len(resources), limit=limit)
