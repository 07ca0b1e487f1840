"""The plan of one swarm as a master makes it: everybody's place, and in a large one everybody's neighbours.

Always holds: it is made anew a few times a second at most, so that a thousand receivers cost no more than a few; who
comes in between gets the place that was kept for it, or one at the end. Must not do: decide by anything but
conductor.py and graph.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from torrentdist.model.ids import PeerId
from torrentdist.swarm.conductor import SHARES, Place, Progress, places_of
from torrentdist.swarm.graph import FULL_MESH, neighbours

RENEW_SECS: Final = 0.25
MORE_SECS: Final = 3.0
"""Who has been here for so long and has nothing gets holders too, whatever its place."""


class Crowd:
    def __init__(self) -> None:
        self._made_at = float("-inf")
        self._places: dict[PeerId, Place] = {}
        self._order: list[PeerId] = []
        self._index: dict[PeerId, int] = {}
        self._since: dict[PeerId, float] = {}

    def look(
        self, asker: PeerId, lacking: Callable[[], Mapping[PeerId, Progress]], expected: Iterable[PeerId], now: float
    ) -> None:
        """Renew what is old; else find a place for the asker."""
        if 0 <= now - self._made_at < RENEW_SECS and (asker in self._index or self._seat(asker, now)):
            return
        found = lacking()
        self._made_at = now
        self._order = sorted(found)
        self._index = {peer: index for index, peer in enumerate(self._order)}
        self._since = {peer: self._since.get(peer, now) for peer in self._order}
        self._places = places_of({p: replace(found[p], secs=now - self._since[p]) for p in self._order}, expected)

    def _seat(self, newcomer: PeerId, now: float) -> bool:
        """The place that was kept for it, or one at the end. Not if it is the second: the first has no place yet."""
        if not self._places:
            return False
        if newcomer not in self._places:
            last = 1 + max(place.number for place in self._places.values() if place.number < place.receivers)
            self._places[newcomer] = Place(last, last + 1)
        self._index[newcomer] = len(self._order)
        self._order.append(newcomer)
        self._since[newcomer] = now
        return True

    def place(self, asker: PeerId) -> Place | None:
        return self._places.get(asker)

    def neighbours(self, asker: PeerId) -> list[PeerId] | None:
        """Those of the receivers whom it should know; None: everybody."""
        if len(self._order) <= FULL_MESH or asker not in self._index:
            return None
        return [self._order[index] for index in neighbours(len(self._order), self._index[asker])]

    def needs_holders(self, asker: PeerId, done: int, now: float) -> bool:
        place = self._places.get(asker)
        lonely = not done and now - self._since.get(asker, now) > MORE_SECS
        return place is None or place.number < SHARES or lonely
