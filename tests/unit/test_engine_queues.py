"""How much an engine lets its peers ask for at a time, and when that is worth connecting anew."""

from __future__ import annotations

import pytest

from torrentdist.model.ids import Digest
from torrentdist.swarm.conductor import ALONE_SECS, LONG_SECS, WIDE_BLOCKS, WIDE_SECS
from torrentdist.swarm.queues import Queues
from torrentdist.swarm.statistics import EngineStatistics

KiB = 1024
MiB = 1024 * KiB
QUICK = 25 * MiB
"""Of four connections together."""
GiB = 1024 * MiB
FOUR, OTHERS, ALONE = (Digest(f"{number:064}") for number in range(3))
LARGE = {FOUR: GiB, OTHERS: GiB}
IDLE = EngineStatistics()


def crowds(*receivers: int) -> Queues:
    queues = Queues()
    for number, count in enumerate(receivers):
        queues.crowd(Digest(f"{number:064}"), count)
    return queues


def allowed(queues: Queues, now: float = 0.0) -> int:
    return queues.settings(IDLE, 0.0, now)["max_allowed_in_request_queue"]


def moving(rate: float, peers: int = 4) -> EngineStatistics:
    return EngineStatistics(peers=peers, upload_rate=rate)


@pytest.mark.parametrize(("receivers", "expected"), [([], 4000), ([2], 16), ([4, 16], 2), ([1000], 2)])
def test_the_largest_crowd_says_how_much_is_asked_at_a_time(receivers: list[int], expected: int) -> None:
    """A small message would wait behind seconds of data, or a fast link between two would stay empty."""
    told = crowds(*receivers).settings(IDLE, 0.0, 0.0)

    assert (expected, 1500) == (told["max_allowed_in_request_queue"], told["max_out_request_queue"])


def test_whoever_comes_first_asks_for_little_until_it_is_known_who_comes_with_it() -> None:
    """It would have asked the holder for seconds' worth of what the others fetch, and they would ask for it too."""
    queues = Queues()
    queues.begin(placed=False, now=5.0)
    first = queues.settings(IDLE, 0.0, 5.0)
    later = queues.settings(IDLE, 0.0, 5.0 + ALONE_SECS)
    queues.crowd(FOUR, 2)
    crowd = queues.settings(IDLE, 0.0, 5.0)

    assert (32, 1) == (first["max_out_request_queue"], first["request_queue_time"])
    assert (1500, 1) == (later["max_out_request_queue"], later["request_queue_time"])
    assert (1500, 0) == (crowd["max_out_request_queue"], crowd["request_queue_time"])


def test_quick_connections_are_made_anew_once_in_a_crowd() -> None:
    """Four hosts on fast links would wait for every eight blocks, or be disconnected again and again."""
    queues = crowds(4)
    before = allowed(queues)
    first, again = queues.outgrown(moving(QUICK), LARGE), queues.outgrown(moving(QUICK), LARGE)

    assert (8, True, False, WIDE_BLOCKS) == (before, first, again, allowed(queues))


def test_the_next_crowd_begins_with_little() -> None:
    """It may be of hosts on slow links."""
    queues = Queues()
    queues.crowd(FOUR, 4)
    queues.outgrown(moving(QUICK), LARGE)
    queues.crowd(OTHERS, 4)
    queues.crowd(FOUR, None)
    still = allowed(queues)
    queues.crowd(OTHERS, None)
    queues.crowd(FOUR, 4)

    assert (WIDE_BLOCKS, 8) == (still, allowed(queues))


@pytest.mark.parametrize(
    ("receivers", "moved", "sizes"),
    [
        ([], moving(QUICK), LARGE),
        ([4], moving(QUICK / 2), LARGE),
        ([4], moving(QUICK, peers=16), LARGE),
        ([4], moving(QUICK), {FOUR: int(QUICK * LONG_SECS) - 1, ALONE: GiB}),
        ([4], moving(QUICK), {}),
    ],
    ids=["no crowd", "slow", "much of many", "soon over", "nothing"],
)
def test_what_is_not_held_up_is_not_disturbed(
    receivers: list[int], moved: EngineStatistics, sizes: dict[Digest, int]
) -> None:
    """Every transfer would stand still for half a second."""
    queues = crowds(*receivers)
    before = allowed(queues)

    assert not queues.outgrown(moved, sizes)
    assert before == allowed(queues)


def test_what_is_quick_is_carried_in_the_time_that_it_says() -> None:
    """64 blocks on a link that takes seconds for them would hold up all small messages."""
    link = 4 * WIDE_BLOCKS * 16 * KiB / WIDE_SECS

    assert crowds(4).outgrown(moving(link), LARGE)
    assert not crowds(4).outgrown(moving(0.99 * link), LARGE)
