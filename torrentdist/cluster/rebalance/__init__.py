"""Resource groups: members divide resources among themselves, and no resource ever has two members.

`join` a group to be given resources to work on. An administrator adds and removes resources. See
docs/groups.md.
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
