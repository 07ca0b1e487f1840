"""Decides which pieces a receiver fetches first, so that a broadcast takes about the time that one
link needs.

Always: a piece that only holders have is fetched from them by one receiver, the one whose share
contains it. A receiver that falls behind gives pieces away; a receiver that has finished its share
helps others, and then leaves the holders to them. When nothing moves, every receiver fetches
everything, so that no plan can prevent a swarm from finishing.
Never: do I/O, read a clock, or trust the plan more than what the receiver sees.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

import msgspec

from torrentdist.model.ids import PeerId
from torrentdist.swarm.plan.request_window import BLOCK, window
from torrentdist.swarm.plan.shares import CLASSES, levelled, owners, spare

OWN: Final = 7
"""libtorrent's highest priority, for the next pieces of the receiver's own share."""
FOLLOWS: Final = 6
"""For the rest of the own share, and for pieces taken over from the end of another share."""
PLAIN: Final = 4
LATER: Final = 1
"""For pieces of other shares. Never 0: libtorrent considers a torrent finished when no missing
piece has a priority."""
RESHARE_SECS: Final = 0.5
"""If no piece leaves the holders for this long, helpers take over the last pieces too. The wait is
longer if the holders need longer to send what each receiver has requested."""
LONGEST_RESHARE_SECS: Final = 10.0
"""The longest such wait: a fetch that receives nothing for a minute is given up."""
STALLS: Final = 4
"""After this many such waits the plan is over, and every receiver fetches everything."""
SHARES: Final = 16
"""Most receivers with a share. All others get their pieces from these: a holder sends a piece to
each of them at the same time, and finishes none early if they are many."""
LOOK_SECS: Final = 0.1
LOOK_SECS_PER_PIECE: Final = 0.0001
"""A look takes about 1 µs per piece, so this limits it to about a hundredth of a processor."""
NEWS: Final = 8
"""Look again after this fraction of the missing pieces (1 / NEWS) ..."""
LONGEST_LOOK_SECS: Final = 0.5
"""... or after this time at the latest."""
IDLE_LOOK_SECS: Final = 1.0
"""The interval for receivers without a share: they ask no holder, and fetch the rarest pieces
first."""
SLOW: Final = 0.4
"""A receiver is slow if its pace is below this fraction of the median receiver's."""
TELLING: Final = 0.1
"""No receiver counts as slow before the median receiver has this fraction of the bundle."""
SETTLED_SECS: Final = 1.5
"""A receiver that arrived more recently may still be connecting."""
JUDGED_SECS: Final = 3.0
"""No receiver counts as slow before this: on busy processors the first pieces arrive late, and the
known progress is a second old."""


class PlanPlace(msgspec.Struct, frozen=True):
    """A receiver's place in the plan: number `number` of `receivers`. The first ones have a
    share."""

    number: int
    receivers: int

    @property
    def shares(self) -> int:
        return min(self.receivers, SHARES)

    @property
    def has_share(self) -> bool:
        return self.number < self.shares


class Progress(msgspec.Struct, frozen=True):
    """How much of the bundle a receiver has, and for how long it has been in the swarm."""

    done: int
    size: int
    secs: float = SETTLED_SECS

    @property
    def pace(self) -> float:
        return self.done / max(self.secs, SETTLED_SECS)


def look_secs(pieces: int, left: int, pace: float, *, has_share: bool = True) -> float:
    """Returns the seconds until the next look at the peers' pieces, from the number of all pieces,
    of those that are missing, and their rate of arrival. The plan changes most at the end."""
    if not has_share:
        return max(IDLE_LOOK_SECS, pieces * LOOK_SECS_PER_PIECE)
    news = min(left / NEWS / pace, LONGEST_LOOK_SECS) if pace else 0.0
    return max(LOOK_SECS, pieces * LOOK_SECS_PER_PIECE, news)


def slow_among(receivers: Mapping[PeerId, Progress]) -> set[PeerId]:
    """Returns the receivers whose pace is far below that of the others. They get no share."""
    if (middle := median_of(receivers)) is None:
        return set()
    return {
        peer
        for peer, progress in receivers.items()
        if progress.secs >= JUDGED_SECS and progress.pace < SLOW * middle.pace
    }


def median_of(receivers: Mapping[PeerId, Progress]) -> Progress | None:
    """Returns the progress of the median receiver. None before it has enough to compare others
    with."""
    known = [progress for progress in receivers.values() if progress.secs >= JUDGED_SECS]
    if len(known) < 3:
        return None
    middle = sorted(known, key=lambda progress: progress.pace)[len(known) // 2]
    return middle if middle.done > TELLING * middle.size else None


class SwarmView(msgspec.Struct, frozen=True):
    """A receiver's view of its swarm."""

    have: Sequence[bool]
    copies: Sequence[int]
    """The number of connected peers that have each piece."""
    seeds: int
    """The number of connected peers that have everything."""
    piece_length: int
    received: int = 0
    """Bytes so far, including incomplete pieces."""


class Conductor(msgspec.Struct):
    """One receiver's part in one swarm.

    It counts the pieces that have left the holders since it started, and remembers when the last
    one did. From this it estimates how fast the holders can send.
    """

    place: PlanPlace | None = None
    is_apart: bool = False
    """Whether the receiver should have no connection to holders. Its share is finished, and what it
    requested from them now would leave them twice."""
    _was_apart: bool = False
    _began_at: float = 0.0
    _moved_at: float = 0.0
    _fresh: int = -1
    _left: int = 0
    """Number of pieces that have left the holders."""
    _received: int = 0
    _received_at: float = 0.0

    def priorities(self, view: SwarmView, now: float) -> list[int]:
        """Returns libtorrent's priority of every piece."""
        fresh = [p for p, copies in enumerate(view.copies) if copies <= view.seeds and not view.have[p]]
        self._look(len(fresh), view.received, now)
        wanted = [PLAIN] * len(view.copies)
        place = self.place
        if place is None or now - self._received_at > RESHARE_SECS:
            self.is_apart = False
        before_peers = not any(view.copies)  # The first requests follow the plan too.
        if place is None or not (view.seeds or self.is_apart or before_peers):
            return wanted
        if not fresh:
            if self._left:  # One that came later has no part in the plan.
                self._leave(view)
            return wanted
        under_way = max(1, window(place.receivers) * BLOCK // view.piece_length)
        shares = _shares(fresh, place)
        patience = self._patience(sum(min(len(left), under_way) for left in shares.values()), now)
        idle = now - self._moved_at
        if idle > patience:
            self.is_apart = False
        if idle > STALLS * patience:
            return wanted
        own = shares.pop(place.number, [])
        for position, piece in enumerate(own):
            wanted[piece] = OWN if position <= under_way else FOLLOWS
        if len(own) > under_way:
            return wanted  # While the own share is large, request nothing else from the holders.
        for piece in chain.from_iterable(shares.values()):
            wanted[piece] = LATER
        extra = () if own else _to_take_over(place, shares, begun=0 if idle > patience else under_way + 1)[:under_way]
        for piece in extra:
            wanted[piece] = FOLLOWS
        if not (own or extra) and idle <= patience:
            self._leave(view)
        return wanted

    def _leave(self, view: SwarmView) -> None:
        """Leaves the holders to the others, once, unless nobody else has pieces."""
        if not self._was_apart and _has_company(view):
            self.is_apart = self._was_apart = True

    def _look(self, fresh: int, received: int, now: float) -> None:
        if self._fresh < 0:
            self._began_at = now
        # The first bytes come from holders.
        if fresh != self._fresh or (received != self._received and not self._left):
            self._moved_at = now
        self._left += max(0, self._fresh - fresh)
        if received != self._received:
            self._received_at = now
        self._fresh, self._received = fresh, received

    def _patience(self, asked: int, now: float) -> float:
        """Returns the seconds until the next piece should have left the holders, if `asked` pieces
        at a time are requested from them.

        All of these may be completed at the same moment; on average half of each has been sent
        already.
        """
        if not self._left:
            return RESHARE_SECS
        needed = asked * (now - self._began_at) / (self._left + asked / 2)
        return min(max(RESHARE_SECS, needed), LONGEST_RESHARE_SECS)


def _shares(fresh: Iterable[int], place: PlanPlace) -> dict[int, list[int]]:
    """Returns the remaining pieces of each share, without shares that are finished."""
    owner_of = owners(place.shares)
    shares: dict[int, list[int]] = {}
    for piece in fresh:
        shares.setdefault(owner_of[piece % CLASSES], []).append(piece)
    return levelled(shares, place.shares)


def _to_take_over(place: PlanPlace, shares: Mapping[int, list[int]], begun: int) -> Sequence[int]:
    """Returns the pieces of others' shares that a receiver without pieces of its own may take over,
    best first."""
    if not place.has_share:
        return ()
    helpers = [number for number in range(place.shares) if number not in shares]
    return spare(shares.values(), begun)[helpers.index(place.number) :: len(helpers)]


def _has_company(view: SwarmView) -> bool:
    """Whether other receivers are connected that have pieces."""
    return any(copies > view.seeds for copies in view.copies)
