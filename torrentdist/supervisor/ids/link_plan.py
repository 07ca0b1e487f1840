"""Plans which links the directory of ids gets and loses.

Always: a link names a bundle that is whole here and that somebody keeps: it is ordered, pinned or
leased. While it is not known what this host was told to keep, a right link stays.
Pure: no I/O and no clock.
"""

from collections.abc import Mapping

import msgspec

from torrentdist.model.ids import BundleId


class PutLink(msgspec.Struct, frozen=True):
    """Make this link, or replace the one of this name."""

    bundle: BundleId
    target: str


class RemoveLink(msgspec.Struct, frozen=True):
    name: str


Action = PutLink | RemoveLink


class HostLinks(msgspec.Struct, frozen=True):
    here: Mapping[BundleId, str]
    """The directory of each bundle that is whole here and may be used under this id."""
    kept: frozenset[BundleId]
    """Bundles that are ordered, pinned or leased."""
    present: Mapping[str, str]
    """The target of each link that is there now."""
    knows_orders: bool
    """Whether this host knows what it was told to keep."""


def plan_links(host: HostLinks) -> list[Action]:
    wanted = {bundle: target for bundle, target in host.here.items() if bundle in host.kept}
    if not host.knows_orders:
        wanted |= {bundle: target for bundle, target in host.here.items() if host.present.get(bundle) == target}
    removals: list[Action] = [RemoveLink(name) for name in sorted(host.present.keys() - wanted.keys())]
    changes = ((bundle, target) for bundle, target in sorted(wanted.items()) if host.present.get(bundle) != target)
    return removals + [PutLink(bundle, target) for bundle, target in changes]
