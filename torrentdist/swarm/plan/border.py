"""Decides which pieces each receiver of a zone fetches across the zone's border, so that a bundle
enters every zone about once, and every rack in it.

The pieces are divided into FLOWS flows. In a place that has no complete peer, each flow belongs to
one receiver, which fetches its pieces from a host of another place. All others of the place get
them from that receiver. A place is a zone, such as `east`, or a rack of one, such as `east/r1`.

Always: each flow of a place belongs to exactly one receiver. A place with a complete peer needs no
flow. A rack fetches from other zones only if no other rack of its zone does.
Pure: no I/O and no clock.
"""

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

FLOWS: Final = 24
"""A host shares its link with all that fetch from it, so one flow carries a small part of a link.
This many together carry about a whole one."""
ENOUGH: Final = 8
"""This many hosts give whole zones as much as these can take."""
T = TypeVar("T")


def flows_of(number: int, receivers: int) -> list[int]:
    """Returns the flows of receiver `number` of a zone with this many."""
    return list(range(number, FLOWS, max(1, receivers)))


def pieces_of(flow: int, pieces: int) -> range:
    """Returns the pieces of a flow."""
    return range(flow, pieces, FLOWS)


def zone_of(place: str) -> str:
    """Returns the zone of a place."""
    return place.partition("/")[0]


def source_of(flow: int, place: str, sources: Sequence[T], attempt: int = 0) -> T | None:
    """Returns the host from which a place fetches a flow. Each place begins elsewhere, so that all
    hosts give about as much. Another attempt goes to another host."""
    return sources[(zlib.crc32(place.encode()) + flow + attempt) % len(sources)] if sources else None


def feeders(
    place: str, receivers: Mapping[str, int], complete: Mapping[str, int], holders: Mapping[str, int]
) -> frozenset[str]:
    """Returns the places from whose hosts a place fetches; none: it fetches from holders.

    The mappings have the number of receivers, of complete hosts and of holders in each place.
    """
    zone = zone_of(place)
    racks = _first_racks(zone, receivers, complete, holders)
    if place not in racks:
        return racks
    home = first_places(*(_by_zone(counts) for counts in (receivers, complete, holders)))
    if zone in home:
        return frozenset()
    return frozenset().union(*(_first_racks(one, receivers, complete, holders) for one in home))


def first_places(
    receivers: Mapping[str, int], complete: Mapping[str, int], holders: Mapping[str, int]
) -> frozenset[str]:
    """Returns those of these places that get a bundle first. All others fetch from them.

    They are the places with hosts of the swarm and with the whole bundle. If these hosts are few,
    the place with the most receivers is one of them too, wherever the holders are.
    """
    hosts = Counter(receivers) + Counter(complete)
    first = {place for place in hosts if complete.get(place) or holders.get(place)}
    if receivers and sum(hosts[place] for place in first) < min(ENOUGH, max(receivers.values())):
        first.add(max(receivers, key=lambda place: (receivers[place], place)))
    return frozenset(first)


def _first_racks(zone: str, *counted: Mapping[str, int]) -> frozenset[str]:
    receivers, complete, holders = (
        {place: count for place, count in counts.items() if zone_of(place) == zone} for counts in counted
    )
    return first_places(receivers, complete, holders)


def _by_zone(counts: Mapping[str, int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for place, count in counts.items():
        found[zone_of(place)] += count
    return +found
