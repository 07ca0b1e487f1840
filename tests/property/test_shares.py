"""The shares of a broadcast end together, and receivers agree on who fetches what."""

import math
import random
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from torrentdist.swarm.plan.conductor import SHARES
from torrentdist.swarm.plan.shares import levelled, spare


def test_whoever_is_done_helps_the_last_ones_first_and_leaves_them_what_they_have_begun() -> None:
    """A piece that its owner has requested too would leave the holder twice, and the slowest
    receiver would end alone."""
    assert [30, 21, 20, 11] == spare([[10, 11], [19, 20, 30], [7], [18, 21]], begun=1)
    assert [10, 7] == spare([[10], [7]], begun=0)


@given(left=st.lists(st.integers(0, 40), min_size=2, max_size=SHARES))
def test_who_has_more_left_than_the_average_gives_the_rest_to_those_with_less(left: list[int]) -> None:
    """All receivers would wait for the pieces of the slowest connection to a holder."""
    shares = _shares(left)
    level = levelled(shares, len(left))
    most = math.ceil(sum(left) / len(left))

    assert sorted(chain.from_iterable(level.values())) == sorted(chain.from_iterable(shares.values()))
    for number, pieces in shares.items():
        assert pieces[:most] == level[number][: len(pieces)]
        assert len(pieces) < most or level[number] == pieces[:most]


def test_who_is_far_ahead_takes_more_than_who_is_a_little_ahead() -> None:
    """A receiver with a quick connection to the holders ended long before the others."""
    level = levelled(_shares([40, 40, 40, 18, 2, 40, 40]), 7)

    assert len(level[4]) - 2 > 1.5 * (len(level[3]) - 18) > 0


def test_receivers_that_see_a_little_less_agree_on_the_takers() -> None:
    """Receivers hear news at different times: several would request one piece, and nobody another
    one."""
    chance, given_away, elsewhere = random.Random(1), 0, 0
    for _ in range(100):
        shares = _shares([chance.randint(10, 40) for _ in range(16)])
        gone = {chance.choice(pieces) for pieces in chance.sample(list(shares.values()), 3)}
        seen = {number: [piece for piece in pieces if piece not in gone] for number, pieces in shares.items()}
        taken, there = _takers(shares), _takers(seen)
        given_away += len(taken)
        elsewhere += sum(number != taken.get(piece) for piece, number in there.items())

    assert elsewhere < 0.12 * given_away


def _takers(shares: dict[int, list[int]]) -> dict[int, int]:
    """Returns who takes each piece that is given away."""
    level = levelled(shares, len(shares))
    return {piece: number for number, pieces in level.items() for piece in set(pieces) - set(shares[number])}


def _shares(left: list[int]) -> dict[int, list[int]]:
    return {number: [number + len(left) * n for n in range(many)] for number, many in enumerate(left)}
