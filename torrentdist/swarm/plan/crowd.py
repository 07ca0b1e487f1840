"""A master's plan for one swarm: the place of every receiver and, in a large swarm, its neighbours.

Always: the plan is renewed at most a few times per second, and less often in a large swarm, so that
a hundred thousand receivers do not occupy a processor. A receiver that arrives in between gets the
place reserved for it, or a place at the end.
Never: decide by other rules than those of conductor.py and neighbours.py.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Final

from msgspec.structs import replace

from torrentdist.model.ids import PeerId
from torrentdist.swarm.plan.conductor import SETTLED_SECS, SHARES, PlanPlace, Progress, places_of
from torrentdist.swarm.plan.neighbours import FULL_MESH, neighbours

RENEW_SECS: Final = 0.25
RENEW_SECS_PER_PEER: Final = 0.0001
"""Renewing takes about 12 µs per peer, so this limits it to an eighth of a processor."""
MORE_SECS: Final = 3.0
"""A receiver without any bytes after this long is told of holders too, whatever its place."""


class Crowd:
    """The receivers of one swarm, as far as the plan concerns them."""

    def __init__(self) -> None:
        self._made_at = float("-inf")
        self._places: dict[PeerId, PlanPlace] = {}
        self._circle: list[PeerId] = []
        """All receivers with a place, present or not, so that neighbours stay the same while others
        arrive."""
        self._positions: dict[PeerId, int] = {}
        self._since: dict[PeerId, float] = {}
        self._expected: frozenset[PeerId] = frozenset()
        self._last = 0
        """The number for the next receiver that arrives without a reserved place."""

    def look(
        self, asker: PeerId, lacking: Callable[[], Mapping[PeerId, Progress]], expected: Iterable[PeerId], now: float
    ) -> None:
        """Renews the plan if it is old. Otherwise gives a new asker a place."""
        fresh = 0 <= now - self._made_at < max(RENEW_SECS, len(self._since) * RENEW_SECS_PER_PEER)
        if fresh and (asker in self._since or self._give_place(asker, now)):
            return
        found = lacking()
        self._made_at = now
        self._since = {peer: self._since.get(peer, now) for peer in sorted(found)}
        self._expected = frozenset(expected := list(expected))
        came = sorted(self._since, key=self._since.__getitem__)
        self._places = places_of({p: replace(found[p], secs=now - self._since[p]) for p in came}, expected)
        self._last = 1 + max(
            (place.number for place in self._places.values() if place.number < place.receivers), default=-1
        )
        self._circle = sorted(self._places.keys() | found.keys())
        self._positions = {peer: spot for spot, peer in enumerate(self._circle)}

    def _give_place(self, newcomer: PeerId, now: float) -> bool:
        """Gives the newcomer its reserved place, or one at the end.

        Returns False for the second receiver of a swarm: the first has no place yet, so the plan
        must be renewed.
        """
        if not self._places:
            return False
        if newcomer not in self._places:
            self._places[newcomer] = PlanPlace(self._last, self._last + 1)
            self._last += 1
            self._positions[newcomer] = len(self._circle)
            self._circle.append(newcomer)
        self._since[newcomer] = now
        return True

    def place(self, asker: PeerId) -> PlanPlace | None:
        return self._places.get(asker)

    def is_settled(self, asker: PeerId, now: float) -> bool:
        """Whether the asker's place is unlikely to change: it was expected, or arrived long enough
        ago."""
        return asker in self._expected or now - self._since.get(asker, float("-inf")) > SETTLED_SECS

    def neighbours(self, asker: PeerId, there: Callable[[PeerId], bool], now: float) -> list[PeerId] | None:
        """Returns the present receivers to which the asker should connect. None means all of them.

        An asker whose neighbours are absent gets the next present receiver in each direction, so
        that the circle stays closed.
        """
        size, spot = len(self._circle), self._positions.get(asker)
        if size <= FULL_MESH or spot is None:
            return None
        known = [peer for index in neighbours(size, spot) if there(peer := self._circle[index])]
        if now - self._since.get(asker, now) > SETTLED_SECS:
            for step in (1, -1):
                turn = (self._circle[(spot + step * far) % size] for far in range(1, size))
                known += [peer for peer in islice(filter(there, turn), 1) if peer not in known]
        return known

    def needs_holders(self, asker: PeerId, done: int, now: float) -> bool:
        """Whether the asker may dial holders: it has a share, has no place, or has waited long for
        its first bytes."""
        place = self._places.get(asker)
        lonely = not done and now - self._since.get(asker, now) > MORE_SECS
        return place is None or place.number < SHARES or lonely
