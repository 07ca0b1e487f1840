"""What becomes of a distribution when its bundle is ordered again. Pure.

Always: the hosts of the earlier order keep what it promised them, unless the new order names them.
A standing order stays until it is cancelled, with its terms. The waves of an order that runs stay,
unless the new order has waves of its own.
"""

from collections.abc import Collection

from msgspec.structs import replace

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import SupervisorId
from torrentdist.model.policies.distribution_record import DistributionRecord, DistributionState, HostsUntil


def ordered_again(
    known: DistributionRecord | None, order: DistributionRecord, matching: Collection[SupervisorId]
) -> DistributionRecord:
    """Returns the record after a new order. `matching` are the hosts with the labels of `known`.

    Raises `distribution_standing` if both are standing orders and their labels differ.
    """
    if known is None:
        return order
    if known.is_over:
        return replace(order, other_ends=_after_the_end(known, order, matching))
    if known.everywhere and order.everywhere and known.labels != order.labels:
        labels = ",".join(f"{key}={value}" for key, value in sorted(known.labels.items())) or "any labels"
        raise TorrentdistError("distribution_standing", id=known.bundle, labels=labels)
    stays = known.everywhere and not order.everywhere
    has_waves = order.canary > 0 or order.concurrency > 0
    running = known.state is DistributionState.RUNNING
    return replace(
        order,
        hosts=tuple(dict.fromkeys([*known.hosts, *order.hosts])),
        everywhere=known.everywhere or order.everywhere,
        labels=known.labels if stays else order.labels,
        ends_at=known.ends_at if stays else order.ends_at,
        terms=known.terms if stays else order.terms,
        canary=order.canary if has_waves or not running else known.canary,
        concurrency=order.concurrency if has_waves else known.concurrency,
        other_ends=_beside(known, order, matching) if stays else _widened(known, order, matching),
    )


def _after_the_end(
    known: DistributionRecord, order: DistributionRecord, matching: Collection[SupervisorId]
) -> tuple[HostsUntil, ...]:
    """Returns what earlier orders promised for a time. What hosts keep for good needs no record."""
    return tuple(group for group in _widened(known, order, matching) if group.ends_at is not None)


def _widened(
    known: DistributionRecord, order: DistributionRecord, matching: Collection[SupervisorId]
) -> tuple[HostsUntil, ...]:
    """Returns the ends of the hosts that only earlier orders name."""
    grouped = {host for group in known.other_ends for host in group.hosts}
    hosts = dict.fromkeys([*known.hosts, *(matching if known.everywhere else ())])
    rest = HostsUntil(tuple(host for host in hosts if host not in grouped), known.ends_at)
    groups = [*known.other_ends, *([rest] if known.ends_at != order.ends_at else [])]
    return _without(groups, set(order.hosts))


def _beside(
    known: DistributionRecord, order: DistributionRecord, matching: Collection[SupervisorId]
) -> tuple[HostsUntil, ...]:
    """Returns the ends and terms of the hosts for which a standing order does not speak."""
    named = set(order.hosts)
    others = HostsUntil(tuple(host for host in order.hosts if host not in matching), order.ends_at, order.terms)
    return (*_without(known.other_ends, named), *([others] if others.hosts else []))


def _without(groups: Collection[HostsUntil], hosts: Collection[SupervisorId]) -> tuple[HostsUntil, ...]:
    left = [replace(group, hosts=tuple(host for host in group.hosts if host not in hosts)) for group in groups]
    return tuple(group for group in left if group.hosts)
