"""The plan of a large swarm exactly where it changes: who connects to whom, who takes whose pieces,
and how much is requested at a time."""

from __future__ import annotations

import pytest

from torrentdist.model.ids import PeerId
from torrentdist.swarm.plan.conductor import Progress
from torrentdist.swarm.plan.crowd import JUDGE_SECS, Crowd
from torrentdist.swarm.plan.neighbours import FULL_MESH, SPARSE, neighbours
from torrentdist.swarm.plan.request_window import (
    BLOCK,
    BLOCKS_UNDER_WAY,
    FEWEST_BLOCKS,
    LONG_SECS,
    NEAR,
    QUICK,
    WIDE_BLOCKS,
    WIDE_SECS,
    NetworkPath,
    is_quick,
    queue_secs,
    window,
)
from torrentdist.swarm.plan.shares import levelled, spare


def test_few_receivers_all_connect_to_each_other() -> None:
    """A small swarm would have hops that it does not need, or a larger one too many connections."""
    assert [n for n in range(FULL_MESH) if n != 3] == neighbours(FULL_MESH, 3)
    assert [1, FULL_MESH, 2, 7, 4, 5] == neighbours(FULL_MESH + 1, 0)


def test_neighbours_are_powers_of_two_or_three_away_up_to_half_the_circle() -> None:
    """A piece would need more hops to the other side of a large swarm."""
    assert [1, 23, 2, 22, 4, 20, 8, 16] == neighbours(SPARSE, 0)
    assert [1, SPARSE, 3, 22, 9, 16] == neighbours(SPARSE + 1, 0)
    assert [11, 9, 13, 7, 19, 1] == neighbours(40, 10)


@pytest.mark.parametrize(
    ("receivers", "blocks"),
    [(0, BLOCKS_UNDER_WAY), (1, BLOCKS_UNDER_WAY), (2, 16), (3, 10), (15, 2), (16, 2), (17, 2), (1000, FEWEST_BLOCKS)],
)
def test_the_window_is_shared_among_the_receivers(receivers: int, blocks: int) -> None:
    """Small messages would wait behind data, or a receiver would request nothing."""
    assert blocks == window(receivers)
    assert WIDE_BLOCKS == window(receivers, quick=True)


def test_a_connection_is_quick_from_exactly_the_rate_that_fills_a_wide_window() -> None:
    """A fast link would stay empty, or a slow one would be flooded."""
    rate = 4 * WIDE_BLOCKS * BLOCK / WIDE_SECS
    left = int(rate * LONG_SECS) + 1

    assert is_quick(rate, 4, left)
    assert not is_quick(rate - 1, 4, left)
    assert not is_quick(rate, 5, left)
    assert not is_quick(rate, 4, left - 2)
    assert not is_quick(rate / 4 - 1, 0, left)
    assert is_quick(rate / 4, 0, left)
    assert [True, False] == [is_quick(1e8, 1, int(1e8 * LONG_SECS) - less) for less in (0, 1)]


def test_more_is_requested_where_two_blocks_are_a_limit_by_themselves() -> None:
    """A receiver far away would wait for each pair of blocks, or one nearby would monopolize the
    holders."""
    path = NetworkPath(peers=4, rtt=0.25)
    carried = 4 * FEWEST_BLOCKS * BLOCK / 0.25

    assert carried == path.carries(FEWEST_BLOCKS)
    assert [0, 1] == [queue_secs(9, NEAR * carried + more, path) for more in (0.0, 1.0)]
    assert [0, 1] == [queue_secs(9, QUICK - less, NetworkPath()) for less in (1, 0)]
    assert 1 == queue_secs(None, 0.0, NetworkPath())
    assert float("inf") == NetworkPath(peers=4).carries(FEWEST_BLOCKS)


def test_the_last_pieces_of_a_large_share_go_to_those_with_the_fewest_left() -> None:
    """Pieces would be fetched by nobody, by two, or again by the receiver that is behind."""
    shares = {0: list(range(30)), 1: list(range(100, 110)), 2: list(range(200, 208))}

    assert {0: 16, 1: 14, 2: 18} == {number: len(left) for number, left in levelled(shares, 3).items()}


def test_shares_that_are_even_stay_as_they_are() -> None:
    """Receivers would change places for nothing, and request twice."""
    even = {0: [1, 2], 1: [100]}

    assert even == levelled(even, 2)


def test_helpers_begin_with_the_last_pieces_of_the_largest_share() -> None:
    """A helper would fetch what its owner is fetching already."""
    assert [7, 6, 9, 5] == spare([[3, 4, 9], [1, 2, 5, 6, 7]], 2)
    assert [] == spare([[3, 4]], 2)


def test_receivers_are_judged_after_exactly_this_time() -> None:
    """If this failed, a slow receiver would keep its share for ever, or every announce would look
    at all of them."""
    crowd, looks = Crowd(), [0]
    crowd.come(PeerId("a"), 0.0)

    def progress_of(peer: PeerId) -> Progress:
        looks[0] += 1
        return Progress(0, 100)

    for now, expected in ((0.0, 1), (0.0, 1), (JUDGE_SECS - 0.01, 1), (JUDGE_SECS, 2), (JUDGE_SECS, 2), (0.5, 3)):
        crowd.judge(progress_of, now)
        assert expected == looks[0]
