"""The request limits of an engine, and when new limits are worth new connections."""

from __future__ import annotations

import time

import pytest

from torrentdist.model.ids import Digest
from torrentdist.swarm.engine.engine import Engine, EngineConfig
from torrentdist.swarm.engine.request_limits import REST_SECS, RequestLimits
from torrentdist.swarm.engine.traffic import EngineStatistics, TransferPace
from torrentdist.swarm.plan.request_window import ALONE_SECS, LONG_SECS, WIDE_BLOCKS, WIDE_SECS

KiB = 1024
MiB = 1024 * KiB
QUICK = 25 * MiB
"""Bytes per second of four connections together."""
GiB = 1024 * MiB
FOUR, OTHERS, ALONE = (Digest(f"{number:064}") for number in range(3))
IDLE = EngineStatistics()


def crowds(*receivers: int) -> RequestLimits:
    queues = RequestLimits()
    for number, count in enumerate(receivers):
        queues.crowd(Digest(f"{number:064}"), count)
    return queues


def allowed(queues: RequestLimits, now: float = 0.0) -> int:
    return queues.settings(IDLE, 0.0, now)["max_allowed_in_request_queue"]


def moving(
    rate: float, *, peers: int = 4, left: int = GiB, others: float = 0.0, at: float = 0.0
) -> tuple[EngineStatistics, dict[Digest, TransferPace]]:
    """Returns statistics. `others`: the rate of a bundle that has no crowd."""
    paces = {
        FOUR: TransferPace(rate=rate / 4, peers=peers, left=left),
        ALONE: TransferPace(rate=others / 4, peers=1, left=GiB),
    }
    return EngineStatistics(upload_rate=rate + others, at=at), paces


@pytest.mark.parametrize(("receivers", "expected"), [([], 4000), ([2], 16), ([4, 16], 2), ([1000], 2)])
def test_the_largest_crowd_says_how_much_is_asked_at_a_time(receivers: list[int], expected: int) -> None:
    """A small message would wait behind seconds of data, or a fast link between two would stay
    empty."""
    told = crowds(*receivers).settings(IDLE, 0.0, 0.0)

    assert (expected, 1500) == (told["max_allowed_in_request_queue"], told["max_out_request_queue"])


def test_the_first_receiver_asks_for_little_until_the_others_are_known() -> None:
    """The receiver would have asked the holder for seconds' worth of pieces that others fetch
    too."""
    queues = RequestLimits()
    queues.begin(placed=False, now=5.0)
    first = queues.settings(IDLE, 0.0, 5.0)
    later = queues.settings(IDLE, 0.0, 5.0 + ALONE_SECS)
    queues.crowd(FOUR, 2)
    crowd = queues.settings(IDLE, 0.0, 5.0)

    assert (32, 1) == (first["max_out_request_queue"], first["request_queue_time"])
    assert (1500, 1) == (later["max_out_request_queue"], later["request_queue_time"])
    assert (1500, 0) == (crowd["max_out_request_queue"], crowd["request_queue_time"])


def test_quick_connections_are_made_anew_once_a_minute() -> None:
    """Four hosts on fast links would wait after every eight blocks, or be disconnected with every
    host that joins."""
    queues = crowds(4)
    before = allowed(queues)
    first, again = queues.outgrown(*moving(QUICK)), queues.outgrown(*moving(QUICK))
    after = allowed(queues)
    queues.crowd(FOUR, None)
    queues.crowd(FOUR, 4)
    back = allowed(queues)
    queues.crowd(FOUR, 9)
    queues.crowd(FOUR, 4)
    soon = queues.outgrown(*moving(QUICK, at=REST_SECS - 1))
    later = queues.outgrown(*moving(QUICK, at=REST_SECS))

    assert (8, {FOUR}, set(), WIDE_BLOCKS, WIDE_BLOCKS) == (before, first, again, after, back)
    assert (set(), {FOUR}, WIDE_BLOCKS) == (soon, later, allowed(queues))


def test_the_crowd_of_another_bundle_begins_with_little() -> None:
    """A crowd may be on slow links, where large requests hold up small messages."""
    queues = crowds(4)
    queues.outgrown(*moving(QUICK))
    queues.crowd(OTHERS, 4)
    both = allowed(queues)
    queues.crowd(OTHERS, None)

    assert (8, WIDE_BLOCKS) == (both, allowed(queues))


def test_a_crowd_that_grows_by_a_few_stays_quick_and_one_of_many_more_does_not() -> None:
    """Links that carry 64 blocks from each of four hosts take seconds for those of a hundred."""
    queues = crowds(4)
    queues.outgrown(*moving(QUICK))
    seen = []
    for receivers in (8, 9, 4):
        queues.crowd(FOUR, receivers)
        seen.append(allowed(queues))

    assert seen == [WIDE_BLOCKS, 3, 8]


def test_what_another_crowd_keeps_narrow_is_made_anew_when_that_has_ended() -> None:
    """A transfer would stand still for nothing, and ask for eight blocks at a time until its
    end."""
    queues = crowds(4, 4)
    beside = queues.outgrown(*moving(QUICK))
    queues.crowd(OTHERS, None)

    assert (set(), {FOUR}, WIDE_BLOCKS) == (beside, queues.outgrown(*moving(QUICK)), allowed(queues))


@pytest.mark.parametrize(
    ("receivers", "moved"),
    [
        ([], moving(QUICK)),
        ([4], moving(QUICK / 2)),
        ([4], moving(QUICK, peers=16)),
        ([16], moving(QUICK, peers=1)),
        ([4], moving(QUICK, left=int(QUICK * LONG_SECS) - 1)),
        ([4], moving(QUICK / 2, others=10 * QUICK)),
        ([4], moving(0.0, others=10 * QUICK)),
        ([4], (IDLE, {})),
    ],
    ids=["no crowd", "slow", "many peers", "many to come", "soon over", "beside another", "only another", "nothing"],
)
def test_what_is_not_held_up_is_not_disturbed(
    receivers: list[int], moved: tuple[EngineStatistics, dict[Digest, TransferPace]]
) -> None:
    """Every transfer would stand still for half a second."""
    queues = crowds(*receivers)
    before = allowed(queues)

    assert not queues.outgrown(*moved)
    assert before == allowed(queues)


def test_what_is_quick_is_carried_in_the_time_that_it_says() -> None:
    """64 blocks on a link that takes seconds for them would hold up all small messages."""
    link = 4 * WIDE_BLOCKS * 16 * KiB / WIDE_SECS

    assert crowds(4).outgrown(*moving(link))
    assert not crowds(4).outgrown(*moving(0.99 * link))


@pytest.mark.anyio
async def test_many_crowds_are_told_at_the_cost_of_one() -> None:
    """Two full hosts that name some thousands of bundles each would stop a master for seconds, so
    that it loses its leadership."""
    engine, many = Engine(EngineConfig()), [Digest(f"{number:064}") for number in range(5000)]
    await engine.start()
    began = time.thread_time()
    engine.crowd_all(dict.fromkeys(many, 2))
    engine.crowd_all(dict.fromkeys(many))
    spent = time.thread_time() - began
    await engine.close()

    assert spent < 0.5
