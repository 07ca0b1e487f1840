"""The receivers of one swarm, zone by zone: each zone has a crowd, and so a plan, of its own. Where
hosts tell their racks, each rack of a zone counts as a zone here.

Hosts without a zone, masters and clients are in the crowd of no zone, whose name is empty. In a
cluster without zones that is the only one.

Always: a receiver is in one crowd, that of the zone in which it came. A zone whose receivers get
nothing for OPEN_SECS is open, until it has no receivers any more: they may fetch from everywhere.
Never: read a clock, or know which peers are complete.
"""

from collections.abc import Callable, Mapping
from typing import Final

from torrentdist.model.ids import PeerId
from torrentdist.swarm.plan.crowd import Crowd
from torrentdist.swarm.plan.expected_hosts import Expected, ExpectedHosts

OPEN_SECS: Final = 5.0
NOWHERE: Final = ""
"""The zone of peers that have none."""


class ZonedCrowds:
    def __init__(self) -> None:
        self._crowds: dict[str, Crowd] = {}
        self._zones: dict[PeerId, str] = {}
        """The zone of each receiver that is here."""
        self._told: Expected = ()
        self._told_state = 0
        self._expected_in: dict[PeerId, str] = {}
        """The zone in which each receiver is expected."""
        self._moved_at: dict[str, float] = {}
        """When a receiver of each zone came or got something last."""
        self._open: set[str] = set()

    def of(self, zone: str) -> Crowd:
        return self._crowds.setdefault(zone, Crowd())

    def expect(
        self, expected: Expected, zone_of: Callable[[PeerId], str], is_complete: Callable[[PeerId], bool]
    ) -> None:
        """Reserves places for these receivers in their order, unless they have everything."""
        same, state = expected is self._told, expected.state if isinstance(expected, ExpectedHosts) else 0
        if (same and state == self._told_state) or (not same and expected == self._told):
            return
        known = expected.since(self._told_state) if same and isinstance(expected, ExpectedHosts) else None
        self._told, self._told_state = expected, state
        if known is None:
            self._expect_all(expected, zone_of, is_complete)
            return
        for peer in known:
            if (before := self._expected_in.pop(peer, None)) is not None:
                self._crowds[before].expect_no_more(peer)
            if peer in expected:
                zone = self._expected_in[peer] = self._zones.get(peer) or zone_of(peer)
                self.of(zone).expect_also(peer, complete=is_complete(peer))

    def _expect_all(
        self, expected: Expected, zone_of: Callable[[PeerId], str], is_complete: Callable[[PeerId], bool]
    ) -> None:
        by_zone: dict[str, list[PeerId]] = {zone: [] for zone in self._crowds}
        self._expected_in = {peer: self._zones.get(peer) or zone_of(peer) for peer in expected}
        for peer, zone in self._expected_in.items():
            by_zone.setdefault(zone, []).append(peer)
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
