"""Resource groups: members divide resources among themselves, and no resource ever has two members.

`join` a group to be given resources to work on. An administrator adds and removes resources. See
docs/groups.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from torrentdist.cluster.rebalance.group_administration import (
    add_resource,
    list_groups,
    remove_resource,
    show_group,
)
from torrentdist.cluster.rebalance.group_records import Algorithm

if TYPE_CHECKING:
    from torrentdist.cluster.rebalance.joining import join
    from torrentdist.cluster.rebalance.resource_group import ResourceGroup, Resources, Settings, Statistics

_OF_MEMBERS = dict.fromkeys(("ResourceGroup", "Resources", "Settings", "Statistics"), "resource_group")

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


def __getattr__(name: str) -> object:
    """Loads what only members use when it is first used, which spares masters a megabyte."""
    place = {"join": "joining", **_OF_MEMBERS}.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{place}"), name)
