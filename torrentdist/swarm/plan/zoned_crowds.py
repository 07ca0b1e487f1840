"""The receivers of one swarm, zone by zone: each zone has a crowd, and so a plan, of its own. Where
hosts tell their racks, each rack of a zone counts as a zone here.

Hosts without a zone, masters and clients are in the crowd of no zone, whose name is empty. In a
cluster without zones that is the only one.

Always: a receiver is in one crowd, that of the zone in which it came. A zone whose receivers get
nothing for OPEN_SECS is open, until it has no receivers any more: they may fetch from everywhere.
Never: read a clock, or know which peers are complete.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from torrentdist.model.ids import PeerId
from torrentdist.swarm.plan.crowd import Crowd

OPEN_SECS: Final = 5.0
NOWHERE: Final = ""
"""The zone of peers that have none."""


class ZonedCrowds:
    def __init__(self) -> None:
        self._crowds: dict[str, Crowd] = {}
        self._zones: dict[PeerId, str] = {}
        """The zone of each receiver that is here."""
        self._told: Sequence[PeerId] = ()
        self._moved_at: dict[str, float] = {}
        """When a receiver of each zone came or got something last."""
        self._open: set[str] = set()

    def of(self, zone: str) -> Crowd:
        return self._crowds.setdefault(zone, Crowd())

    def expect(
        self, expected: Sequence[PeerId], zone_of: Callable[[PeerId], str], is_complete: Callable[[PeerId], bool]
    ) -> None:
        """Reserves places for these receivers in their order, unless they have everything."""
        if expected is self._told or expected == self._told:
            return
        self._told = expected
        by_zone: dict[str, list[PeerId]] = {zone: [] for zone in self._crowds}
        for peer in expected:
            by_zone.setdefault(self._zones.get(peer) or zone_of(peer), []).append(peer)
        for zone, peers in by_zone.items():
            self.of(zone).expect(peers, is_complete)

    def come(self, peer: PeerId, zone: str, now: float) -> None:
        if self._zones.setdefault(peer, zone) != zone:
            self.go(peer)
            self._zones[peer] = zone
        self.of(zone).come(peer, now)
        self.moved(zone, now)

    def go(self, peer: PeerId, *, complete: bool = False) -> None:
        zone = self._zones.pop(peer, None)
        for name in self._crowds if zone is None else (zone,):
            self._crowds[name].go(peer, complete=complete)
        if zone is not None and not len(self._crowds[zone]):
            self._open.discard(zone)

    def moved(self, zone: str, now: float) -> None:
        """Notes that a receiver of this zone got something."""
        self._moved_at[zone] = now

    def is_open(self, zone: str, now: float) -> bool:
        if now - self._moved_at.get(zone, now) > OPEN_SECS:
            self._open.add(zone)
        return zone in self._open

    def receivers(self) -> Mapping[str, int]:
        """Returns the number of receivers, expected ones among them, of each named zone that has
        any."""
        return {zone: count for zone, crowd in self._crowds.items() if zone and (count := len(crowd))}
