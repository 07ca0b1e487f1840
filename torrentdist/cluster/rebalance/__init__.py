"""Resource groups: members share resources among them, each resource has one member, and never two.

`join` a group and be told what to work on; an administrator adds and removes resources.
docs/groups.md says more.
"""

from torrentdist.cluster.rebalance.group_administration import (
    add_resource,
    list_groups,
    remove_resource,
    show_group,
)
from torrentdist.cluster.rebalance.group_records import Algorithm
from torrentdist.cluster.rebalance.joining import join
from torrentdist.cluster.rebalance.resource_group import ResourceGroup, Resources, Settings, Statistics

__all__ = [
    "Algorithm",
    "ResourceGroup",
    "Resources",
    "Settings",
    "Statistics",
    "add_resource",
    "join",
    "list_groups",
    "remove_resource",
    "show_group",
]
