"""Divides the pieces that only holders have among the receivers: each is in one receiver's share.

Always: a receiver that comes or goes moves a little of every other share, and nothing else.
Receivers whose views of the swarm differ slightly agree on nearly all pieces.
Pure: no I/O, no clock.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from itertools import chain
from typing import Final

CLASSES: Final = 2048
"""The class of a piece is its number modulo this. Shares are made of classes."""


@cache
def owners(shares: int) -> Sequence[int]:
    """Maps each class of pieces to the receiver that fetches it from the holders."""
    owner_of = [0] * CLASSES
    for number, classes in enumerate(_classes(shares)):
        for each in classes:
            owner_of[each] = number
    return owner_of


@cache
def _classes(shares: int) -> Sequence[Sequence[int]]:
    """Returns the classes of each receiver. A newcomer takes a little from every other receiver and
    nothing else moves, so that current requests stay valid."""
    if shares <= 1:
        return [range(CLASSES)]
    before = [list(classes) for classes in _classes(shares - 1)]
    taken = [each for number, classes in enumerate(before) for each in classes[number::shares]]
    for number, classes in enumerate(before):
        del classes[number::shares]
    return [*before, sorted(taken)]


def levelled(shares: Mapping[int, list[int]], count: int) -> dict[int, list[int]]:
    """Returns the remaining pieces of each of `count` shares, after those with more left than the
    average have given their last pieces to those with less. Some connections carry half as much
    as others for a whole transfer.

    Receivers' views of the swarm differ slightly, and they have to agree on who takes a piece. So
    that depends on the piece's number, and on how far each share is ahead, and on nothing else.
    """
    level = math.ceil(sum(map(len, shares.values())) / count)
    ahead = {number: gap for number in range(count) if (gap := level - len(shares.get(number, ()))) > 0}
    after = {number: left[:level] for number, left in shares.items()}
    given = list(chain.from_iterable(left[level:] for left in shares.values()))
    takers = {each: _taker(each, ahead) for each in {piece % CLASSES for piece in given}}
    for piece in given:
        after.setdefault(takers[piece % CLASSES], []).append(piece)
    return after


def _taker(piece_class: int, ahead: Mapping[int, int]) -> int:
    """Returns the share that gets a class of pieces: one by chance, in proportion to how far each
    is ahead. The chance is the same for every receiver and at every look."""
    return max(ahead, key=lambda number: _chance(piece_class, number) ** (1 / ahead[number]))


@cache
def _chance(piece_class: int, number: int) -> float:
    """Returns a number between 0 and 1 for a class of pieces and a share."""
    digest = blake2b(b"%d %d" % (piece_class, number), digest_size=4).digest()
    return (int.from_bytes(digest) + 1) / 2**32


def spare(shares: Iterable[Sequence[int]], begun: int) -> list[int]:
    """Returns the pieces that helpers may take over: the others' shares without the first `begun`
    pieces of each, which are being fetched.

    The last pieces of the largest share come first, so that all shares finish at the same time.
    """
    behind = [(place, piece) for left in shares for place, piece in enumerate(left) if place >= begun]
    return [piece for _, piece in sorted(behind, reverse=True)]
