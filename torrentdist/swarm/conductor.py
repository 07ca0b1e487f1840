"""Who fetches which piece first, so that a broadcast takes about the time that one link needs to carry it once.

Always holds: a piece that only holders have is fetched from them by the receiver whose share it is in; whoever falls
behind with its share gives of it to the others, and whoever is done helps with what is left; when nothing moves,
everything is fetched by everybody, so that no plan can keep a swarm from finishing. Must not do: I/O, read a clock, or
believe in a plan more than in what it sees.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Final

import msgspec

from torrentdist.model.ids import PeerId

OWN: Final = 7
"""libtorrent's highest priority: what comes next of the own share."""
FOLLOWS: Final = 6
"""The rest of it, and what is taken over: whoever helps begins at the end of a share."""
PLAIN: Final = 4
LATER: Final = 1
"""Never 0: libtorrent calls a torrent finished when nothing that is missing has a priority."""
RESHARE_SECS: Final = 0.5
"""When no piece has left the holders for so long, or for as long as they need to send what each receiver has asked for,
the last ones are taken over too."""
LONGEST_RESHARE_SECS: Final = 10.0
"""But never after more: they may have been away meanwhile, and a fetch that gets nothing for a minute is given up."""
STALLS: Final = 4
"""After so many times as long the plan is over."""
SHARES: Final = 24
"""More receivers than these get their pieces from the others alone: a holder that serves hundreds at a time finishes
none of its pieces early."""
CLASSES: Final = 2048
"""Pieces are shared out by their number modulo this."""
BLOCK: Final = 16 * 1024
BLOCKS_UNDER_WAY: Final = 32
"""What a receiver has asked for, of all its peers together: what a small message waits behind. 0.17 s at 25 Mbit/s."""
FEWEST_BLOCKS: Final = 2
WIDE_BLOCKS: Final = 64
"""What is asked of each peer where connections are quick: with 8, four receivers on one machine take 1.6 times as
long."""
WIDE_SECS: Final = 0.17
"""A connection that carries the blocks above in this time is quick."""
LONG_SECS: Final = 6.0
"""What is over in less is not held up by connecting again, which takes up to a second."""
ALONE_SECS: Final = 1.0
"""Whoever begins without a place may have one soon: others come, mostly in the same moment, who are to fetch what it
would ask for now."""
BEHIND: Final = 2
"""Whoever has so many pieces more left than there are for each gives these away: holders' links are not shared out
evenly, and some connections carry half of what others carry for as long as the transfer takes."""
SCATTER: Final = 2654435761
LOOK_SECS: Final = 0.1
LOOK_SECS_PER_PIECE: Final = 0.0001
"""A look costs about 1 µs for each piece: with this it is about a hundredth of a processor."""
NEWS: Final = 8
"""Fewer new pieces are no reason to look again, ..."""
PART: Final = 64
"""... nor is less than this part of all, ..."""
LONGEST_LOOK_SECS: Final = 0.5
"""... unless the last look is so long ago."""
IDLE_LOOK_SECS: Final = 1.0
"""For receivers without a share: no holder is theirs to ask, and rarest first is all the plan that they have."""
SLOW: Final = 0.4
"""A receiver that gets on at less than this part of the pace of the one in the middle is no help to the others."""
TELLING: Final = 0.03
"""Of the bundle; before the one in the middle has so much, nobody is slow."""
SETTLED_SECS: Final = 1.5
"""Whoever has been here for less may still be connecting."""
JUDGED_SECS: Final = 3.0
"""Nobody is called slow before: on busy processors the first pieces come late, and what is known of them is a second
old."""


QUICK: Final = 12 * 1024 * 1024
"""Bytes per second: from about 100 Mbit/s on, two blocks at a time of each peer don't fill a link."""
NEAR: Final = 0.2
"""Of what two blocks of each peer carry: above that they may be what holds a receiver up, since never all of them have
something for it. Within a building a link that is full stays far below."""


class Place(msgspec.Struct, frozen=True):
    """A receiver's place in the plan: the `number`-th of `receivers`. From SHARES on it has no share of its own."""

    number: int
    receivers: int

    @property
    def shares(self) -> int:
        return min(self.receivers, SHARES)

    @property
    def has_share(self) -> bool:
        return self.number < self.shares


class Progress(msgspec.Struct, frozen=True):
    """What a receiver told of itself, and since when it has been here."""

    done: int
    size: int
    secs: float = SETTLED_SECS

    @property
    def pace(self) -> float:
        return self.done / max(self.secs, SETTLED_SECS)


@cache
def owners(shares: int) -> Sequence[int]:
    """Whose each class of pieces is."""
    whose = [0] * CLASSES
    for number, classes in enumerate(_classes(shares)):
        for each in classes:
            whose[each] = number
    return whose


@cache
def _classes(shares: int) -> Sequence[Sequence[int]]:
    """What each of them has. A newcomer takes a little from everybody, and nothing else changes hands: what is under
    way stays with whoever asked for it."""
    if shares <= 1:
        return [range(CLASSES)]
    before = [list(classes) for classes in _classes(shares - 1)]
    taken = [each for number, classes in enumerate(before) for each in classes[number::shares]]
    for number, classes in enumerate(before):
        del classes[number::shares]
    return [*before, sorted(taken)]


def look_secs(pieces: int, pace: float, *, has_share: bool = True) -> float:
    """When to look again at what the others have, of so many pieces, where so many come per second."""
    if not has_share:
        return max(IDLE_LOOK_SECS, pieces * LOOK_SECS_PER_PIECE)
    news = min(min(NEWS, pieces / PART) / pace, LONGEST_LOOK_SECS) if pace else 0.0
    return max(LOOK_SECS, pieces * LOOK_SECS_PER_PIECE, news)


def window(receivers: int, *, quick: bool = False) -> int:
    """How many blocks one peer asks of another at a time."""
    return WIDE_BLOCKS if quick else max(FEWEST_BLOCKS, BLOCKS_UNDER_WAY // max(1, receivers))


def is_quick(rate: float, peers: int, left: int) -> bool:
    """Whether so many connections that carry so much together are held up by a narrow window, and the bytes that are
    left take long enough for it to matter."""
    return rate * WIDE_SECS >= max(1, peers) * WIDE_BLOCKS * BLOCK and left >= rate * LONG_SECS


class Way(msgspec.Struct, frozen=True):
    """What lies between a receiver and those that it is connected to."""

    peers: int = 0
    rtt: float = 0.0
    """Seconds to them and back; 0: not known."""

    def carries(self, blocks: int) -> float:
        """Bytes per second at most, with so many blocks asked of each at a time."""
        return self.peers * blocks * BLOCK / self.rtt if self.rtt else math.inf


def queue_secs(receivers: int | None, rate: float, way: Way) -> int:
    """How many seconds' worth one peer asks of another at a time, by its rate; 0: the least there is, which is two
    blocks. Whoever came when they were few may ask for much, and would have the holders to itself. Where peers are far,
    two blocks are a limit of their own, and the rate gets near it."""
    limited = rate >= QUICK or rate > NEAR * way.carries(FEWEST_BLOCKS)
    return 1 if receivers is None or limited else 0


def places_of(lacking: Mapping[PeerId, Progress], expected: Iterable[PeerId]) -> dict[PeerId, Place]:
    """Those that are expected in their order, then the others in that of `lacking`: who comes last has the last place,
    or every newcomer would move all the others'. Who is alone has no place: there is nobody to share with."""
    slow = _slow(lacking)
    quick = [peer for peer in dict.fromkeys([*expected, *lacking]) if peer not in slow]
    last = max(SHARES, len(quick))
    places = {peer: Place(last, last) for peer in slow}
    if len(quick) > 1:
        places.update({peer: Place(number, len(quick)) for number, peer in enumerate(quick)})
    return places


def _slow(lacking: Mapping[PeerId, Progress]) -> set[PeerId]:
    known = {peer: progress for peer, progress in lacking.items() if progress.secs >= JUDGED_SECS}
    if len(known) < 3:
        return set()
    middle = sorted(known.values(), key=lambda progress: progress.pace)[len(known) // 2]
    if middle.done <= TELLING * middle.size:
        return set()
    return {peer for peer, progress in known.items() if progress.pace < SLOW * middle.pace}


class Sight(msgspec.Struct, frozen=True):
    """What a receiver sees of its swarm."""

    have: Sequence[bool]
    copies: Sequence[int]
    """Of each piece, among connected peers."""
    seeds: int
    """Connected peers that have everything."""
    piece_length: int
    received: int = 0
    """Bytes, those of pieces that are not whole yet too."""


class Conductor(msgspec.Struct):
    """One receiver's part in one swarm. It remembers how much has left the holders since it began, and what last moved:
    what they can give is seen by that."""

    place: Place | None = None
    _began_at: float = 0.0
    _moved_at: float = 0.0
    _fresh: int = -1
    _left: int = 0
    """Pieces that have left the holders."""
    _received: int = 0

    def priorities(self, sight: Sight, now: float) -> list[int]:
        fresh = [p for p, copies in enumerate(sight.copies) if copies <= sight.seeds and not sight.have[p]]
        self._look(len(fresh), sight.received, now)
        wanted = [PLAIN] * len(sight.copies)
        place = self.place
        if place is None or not fresh or not sight.seeds:
            return wanted
        under_way = max(1, window(place.receivers) * BLOCK // sight.piece_length)
        shares = _shares(fresh, place)
        patience = self._patience(sum(min(len(left), under_way) for left in shares.values()), now)
        idle = now - self._moved_at
        if idle > STALLS * patience:
            return wanted
        own = shares.pop(place.number, [])
        for position, piece in enumerate(own):
            wanted[piece] = OWN if position <= under_way else FOLLOWS
        if len(own) > under_way:
            return wanted  # the holders are asked for nothing else while there is so much of it
        for piece in chain.from_iterable(shares.values()):
            wanted[piece] = LATER
        if place.has_share and not own:
            begun = 0 if idle > patience else under_way
            helpers = [number for number in range(place.shares) if number not in shares]
            for piece in spare(shares.values(), begun)[helpers.index(place.number) :: len(helpers)][:under_way]:
                wanted[piece] = FOLLOWS
        return wanted

    def _look(self, fresh: int, received: int, now: float) -> None:
        if self._fresh < 0:
            self._began_at = now
        if fresh != self._fresh or (received != self._received and not self._left):  # all of it is from holders then
            self._moved_at = now
        self._left += max(0, self._fresh - fresh)
        self._fresh, self._received = fresh, received

    def _patience(self, asked: int, now: float) -> float:
        """How long it may take until a piece leaves the holders, of which so many pieces are asked at a time: they may
        all be whole in the same moment. Half of each has left on average."""
        if not self._left:
            return RESHARE_SECS
        needed = asked * (now - self._began_at) / (self._left + asked / 2)
        return min(max(RESHARE_SECS, needed), LONGEST_RESHARE_SECS)


def _shares(fresh: Iterable[int], place: Place) -> dict[int, list[int]]:
    """What is left of each share that anything is left of."""
    whose = owners(place.shares)
    shares: dict[int, list[int]] = {}
    for piece in fresh:
        shares.setdefault(whose[piece % CLASSES], []).append(piece)
    return levelled(shares, place.shares)


def levelled(shares: Mapping[int, list[int]], count: int) -> dict[int, list[int]]:
    """What is left of each of so many shares, after whoever is far behind gave its last pieces to the others. To whom
    each goes depends on little else than its number, since no two receivers see quite the same."""
    most = math.ceil(sum(map(len, shares.values())) / count) + BEHIND
    level = {number: left[:most] for number, left in shares.items()}
    behind = {number for number, left in shares.items() if len(left) > most}
    for number in behind:
        for piece in shares[number][most:]:
            taker = (piece * SCATTER >> 16) % count
            while taker in behind:
                taker = (taker + 1) % count
            level.setdefault(taker, []).append(piece)
    return level


def spare(shares: Iterable[Sequence[int]], begun: int) -> list[int]:
    """What is left of the others' shares but for the first `begun` of each, which are on their way: first the last
    ones of the largest, so that all shares end at the same time."""
    behind = [(place, piece) for left in shares for place, piece in enumerate(left) if place >= begun]
    return [piece for _, piece in sorted(behind, reverse=True)]
