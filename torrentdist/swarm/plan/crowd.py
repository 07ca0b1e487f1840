"""A master's plan for one swarm: the place of every receiver and, in a large swarm, its neighbours.

Always: a receiver that comes or goes changes one other place at most, and costs the same however
many there are. A receiver that is expected has its place from the start.
Never: decide by other rules than those of conductor.py and neighbours.py.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

from torrentdist.model.ids import PeerId
from torrentdist.swarm.plan.conductor import SETTLED_SECS, SHARES, PlanPlace, Progress, median_of, slow_among
from torrentdist.swarm.plan.neighbours import FULL_MESH, Spot, neighbours, spot_of

JUDGE_SECS: Final = 0.25
"""Time between two looks for slow receivers."""
MOST_JUDGED: Final = 256
"""Receivers that one look judges: in a larger swarm those with a share, and a sample of the
others."""
MORE_SECS: Final = 3.0
"""A receiver without any bytes after this long is told of holders too, whatever its place, if the
median receiver has some. On slow links, nobody may have a piece by then."""


class Crowd:
    """The receivers of one swarm, as far as the plan concerns them."""

    def __init__(self) -> None:
        self._since: dict[PeerId, float] = {}
        """When each receiver that is here came."""
        self._told: Sequence[PeerId] = ()
        self._expected: set[PeerId] = set()
        self._order = _Numbered()
        """The receivers that are here and not slow, and those that are expected. The first ones
        have a share."""
        self._slow: set[PeerId] = set()
        self._circle: list[Spot] = []
        """All of these and the slow ones, in the same order on every master."""
        self._judged_at = float("-inf")
        self._is_under_way = False
        """Whether the median receiver has a noticeable part of the bundle."""
        self._turn = 0

    def __len__(self) -> int:
        return len(self._circle)

    def members(self) -> Iterator[PeerId]:
        """Returns the receivers, present and expected."""
        return (peer for _, peer in self._circle)

    def expect(self, expected: Sequence[PeerId], is_complete: Callable[[PeerId], bool]) -> None:
        """Reserves places for these receivers in their order, unless they have everything."""
        if expected is self._told or expected == self._told:
            return
        self._told, before, self._expected = expected, self._expected, set(expected)
        for peer in before - self._expected:
            if peer not in self._since:
                self._remove(peer)
        came = [] if before else self._order.take_all()  # The expected ones have the first places.
        for peer in expected:
            if peer not in before and not is_complete(peer):
                self._add(peer)
        for peer in came:
            self._order.add(peer)

    def expect_also(self, peer: PeerId, *, complete: bool) -> None:
        """Reserves a place for one more receiver, after the expected ones, unless it has
        everything."""
        came = [] if self._expected else self._order.take_all()  # The expected ones have the first places.
        self._told = ()
        self._expected.add(peer)
        if not complete:
            self._add(peer)
        for other in came:
            self._order.add(other)

    def expect_no_more(self, peer: PeerId) -> None:
        self._told = ()
        self._expected.discard(peer)
        if peer not in self._since:
            self._remove(peer)

    def come(self, peer: PeerId, now: float) -> None:
        if peer not in self._since:
            self._since[peer] = now
            self._add(peer)

    def go(self, peer: PeerId, *, complete: bool = False) -> None:
        """Frees the place of a receiver. One that is expected keeps it until it has everything."""
        self._since.pop(peer, None)
        self._slow.discard(peer)
        if complete or peer not in self._expected:
            self._remove(peer)

    def judge(self, progress_of: Callable[[PeerId], Progress | None], now: float) -> None:
        """Takes the shares of slow receivers, and counts those that are quick again among the
        others."""
        if 0 <= now - self._judged_at < JUDGE_SECS:
            return
        self._judged_at = now
        seen = {peer: said for peer in self._sample() if (said := progress_of(peer)) is not None}
        paces = {peer: Progress(said.done, said.size, now - self._since[peer]) for peer, said in seen.items()}
        slow = slow_among(paces)
        self._is_under_way = median_of(paces) is not None
        for peer in sorted(slow - self._slow):
            self._order.discard(peer)
        for peer in paces:
            if peer in self._slow and peer not in slow:
                self._order.add(peer)
        self._slow = (self._slow - paces.keys()) | slow

    def place(self, asker: PeerId) -> PlanPlace | None:
        """Returns the place of a receiver. None for a single one: there is no other to share
        with."""
        receivers = len(self._order)
        if asker in self._slow:
            last = max(SHARES, receivers)
            return PlanPlace(last, last)
        number = self._order.number(asker)
        return None if number is None or receivers < 2 else PlanPlace(number, receivers)

    def is_settled(self, asker: PeerId, now: float) -> bool:
        """Whether the asker's place is unlikely to change: it was expected, or arrived long enough
        ago."""
        return asker in self._expected or now - self._since.get(asker, float("-inf")) > SETTLED_SECS

    def neighbours(
        self, asker: PeerId, there: Callable[[PeerId], bool], now: float, *, mesh: int = FULL_MESH
    ) -> list[PeerId] | None:
        """Returns the present receivers to which the asker should connect. None means all of them,
        as always if they are `mesh` or fewer.

        An asker whose neighbours are absent gets the next present receiver in each direction, so
        that the circle stays closed.
        """
        size, index = len(self._circle), self._index(asker)
        if size <= mesh or index is None:
            return None
        known = [peer for other in neighbours(size, index) if there(peer := self._circle[other][1])]
        if now - self._since.get(asker, now) > SETTLED_SECS:
            for step in (1, -1):
                turn = (self._circle[(index + step * far) % size][1] for far in range(1, size))
                known += [peer for peer in islice(filter(there, turn), 1) if peer not in known]
        return known

    def needs_holders(self, asker: PeerId, done: int, now: float) -> bool:
        """Whether the asker may dial holders: it has a share, has no place, or has waited long for
        its first bytes while others have some."""
        place = self.place(asker)
        lonely = self._is_under_way and not done and now - self._since.get(asker, now) > MORE_SECS
        return place is None or place.has_share or lonely

    def _add(self, peer: PeerId) -> None:
        if peer not in self._slow:
            self._order.add(peer)
        if self._index(peer) is None:
            insort(self._circle, spot_of(peer))

    def _remove(self, peer: PeerId) -> None:
        self._order.discard(peer)
        if (index := self._index(peer)) is not None:
            del self._circle[index]

    def _index(self, peer: PeerId) -> int | None:
        """Returns the index of a receiver in the circle."""
        index = bisect_left(self._circle, (spot := spot_of(peer)))
        return index if index < len(self._circle) and self._circle[index] == spot else None

    def _sample(self) -> Iterator[PeerId]:
        """Yields the receivers to judge, each at most once. The others have their turn later."""
        if len(self._since) <= MOST_JUDGED:
            yield from self._since
            return
        step = -(-len(self._circle) // MOST_JUDGED)
        self._turn = (self._turn + 1) % step
        some = dict.fromkeys([*self._order.first(SHARES), *(peer for _, peer in self._circle[self._turn :: step])])
        yield from (peer for peer in some if peer in self._since)


class _Numbered:
    """Peers with numbers from 0 on. When one goes, the last one takes its number."""

    def __init__(self) -> None:
        self._peers: list[PeerId] = []
        self._numbers: dict[PeerId, int] = {}

    def __len__(self) -> int:
        return len(self._peers)

    def number(self, peer: PeerId) -> int | None:
        return self._numbers.get(peer)

    def take_all(self) -> list[PeerId]:
        """Returns all peers, and keeps none."""
        peers, self._peers, self._numbers = self._peers, [], {}
        return peers

    def first(self, count: int) -> list[PeerId]:
        return self._peers[:count]

    def add(self, peer: PeerId) -> None:
        if peer not in self._numbers:
            self._numbers[peer] = len(self._peers)
            self._peers.append(peer)

    def discard(self, peer: PeerId) -> None:
        number = self._numbers.pop(peer, None)
        if number is None:
            return
        last = self._peers.pop()
        if last != peer:
            self._peers[number] = last
            self._numbers[last] = number
