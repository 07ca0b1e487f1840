"""What one receiver requests, and for how long it waits for the others, in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import pytest

from torrentdist.swarm.plan.conductor import (
    FOLLOWS,
    IDLE_LOOK_SECS,
    LATER,
    LONGEST_LOOK_SECS,
    LONGEST_RESHARE_SECS,
    LOOK_SECS,
    OWN,
    PLAIN,
    RESHARE_SECS,
    SETTLED_SECS,
    SHARES,
    STALLS,
    Conductor,
    PlanPlace,
    Progress,
    SwarmView,
    look_secs,
)
from torrentdist.swarm.plan.request_window import BLOCK, window
from torrentdist.swarm.plan.shares import owners

PIECES = 200


def view(
    receivers: int,
    fresh: Collection[int],
    received: int = 0,
    *,
    lacks: Collection[int] = (),
    seeds: int = 1,
    others: int = 2,
) -> SwarmView:
    """Returns a view in which `fresh` pieces are only at the holders. Each receiver has one piece
    under way, since pieces are that large."""
    have = [piece not in fresh and piece not in lacks for piece in range(PIECES)]
    copies = [seeds if piece in fresh else seeds + others for piece in range(PIECES)]
    return SwarmView(have, copies, seeds, window(receivers) * BLOCK, received)


def share(number: int, receivers: int, count: int) -> list[int]:
    """Returns the first pieces of a share."""
    return [piece for piece in range(PIECES) if owners(receivers)[piece] == number][:count]


def wanted_now(place: PlanPlace | None, seen: SwarmView, now: float = 0.0) -> list[int]:
    return Conductor(place=place).priorities(seen, now)


@pytest.mark.parametrize(
    ("pieces", "left", "pace", "has_share", "secs"),
    [
        (64, 64, 0.0, True, LOOK_SECS),
        (128, 16, 10.0, True, 0.2),
        (512, 64, 20.0, True, 0.4),
        (512, 8, 20.0, True, LOOK_SECS),
        (5120, 16, 20.0, True, 0.512),
        (512, 512, 4.0, True, LONGEST_LOOK_SECS),
        (64_000, 64_000, 0.0, True, 6.4),
        (100, 100, 10.0, False, IDLE_LOOK_SECS),
        (20_000, 100, 10.0, False, 2.0),
    ],
)
def test_a_look_comes_when_there_is_news(pieces: int, left: int, pace: float, has_share: bool, secs: float) -> None:
    """Looks would take a processor, or a receiver would request what others have by now."""
    assert secs == pytest.approx(look_secs(pieces, left, pace, has_share=has_share))


def test_a_pace_is_measured_over_the_time_that_connecting_takes() -> None:
    """A receiver that has just come would count as the fastest."""
    assert [10.0, 30 / SETTLED_SECS] == [Progress(30, 100, secs).pace for secs in (3.0, 0.1)]


def test_the_first_receivers_have_shares_of_about_the_same_size() -> None:
    """A receiver would fetch most of a bundle from the holders, and the others wait for it."""
    places = [PlanPlace(1, 2), PlanPlace(2, 2), PlanPlace(SHARES - 1, 99), PlanPlace(SHARES, 99)]

    assert [(True, 2), (False, 2), (True, SHARES), (False, SHARES)] == [(one.has_share, one.shares) for one in places]
    assert {0} == set(owners(0)) == set(owners(1))
    for receivers in (2, 3, 8, SHARES):
        sizes = Counter(owners(receivers))
        assert set(range(receivers)) == sizes.keys()
        assert max(sizes.values()) <= 1.15 * min(sizes.values())


def test_without_a_plan_every_piece_is_plain() -> None:
    """A receiver alone, or one without holders, would wait for others."""
    place, plain = PlanPlace(0, 2), [PLAIN] * PIECES

    assert plain == wanted_now(None, view(2, range(100)))
    assert plain == wanted_now(place, view(2, ()))
    assert plain == wanted_now(place, view(2, range(100), seeds=0))


def test_the_own_share_comes_first_and_others_pieces_last() -> None:
    """All receivers would request the same pieces of the holders."""
    own, other = share(0, 2, 5), share(1, 2, 5)
    wanted = wanted_now(PlanPlace(0, 2), view(2, [*own, *other], lacks=[199]))

    assert [OWN, OWN, FOLLOWS, FOLLOWS, FOLLOWS] == [wanted[piece] for piece in own]
    assert {PLAIN} == {wanted[piece] for piece in (*other, 199)}
    wanted = wanted_now(PlanPlace(0, 2), view(2, [own[0], *other[:2]], lacks=[199]))
    assert ([OWN], {LATER}, PLAIN) == ([wanted[own[0]]], {wanted[piece] for piece in other[:2]}, wanted[199])


def test_even_of_the_largest_pieces_one_is_under_way() -> None:
    """A receiver would request two large pieces at once, or none."""
    own, other = share(0, 2, 2), share(1, 2, 1)
    seen = view(2, [*own, *other])
    large = SwarmView(seen.have, seen.copies, seen.seeds, 1000 * seen.piece_length)
    wanted = wanted_now(PlanPlace(0, 2), large)

    assert [OWN, OWN, PLAIN] == [wanted[piece] for piece in (*own, *other)]


def test_two_that_are_done_help_with_different_pieces() -> None:
    """A piece would leave the holders twice, or its owner would be hurried too soon."""
    [first], [second] = share(1, 4, 1), share(2, 4, 1)
    seen, late = view(4, [first, second]), 0.01 + RESHARE_SECS
    helpers = [Conductor(place=PlanPlace(number, 4)) for number in (0, 3)]
    before, after = ([conductor.priorities(seen, now) for conductor in helpers] for now in (0.0, late))

    assert [{LATER}] * 2 == [{wanted[first], wanted[second]} for wanted in before]
    assert {(FOLLOWS, LATER), (LATER, FOLLOWS)} == {(wanted[first], wanted[second]) for wanted in after}
    assert {LATER} == {wanted_now(PlanPlace(SHARES, 4), seen)[piece] for piece in (first, second)}


def test_the_last_pieces_are_taken_over_when_nothing_moves() -> None:
    """Pieces of a dead receiver would never leave the holders, or each would leave them twice."""
    [left] = share(1, 2, 1)
    conductor = Conductor(place=PlanPlace(0, 2))
    times = (100.0, 100.0 + RESHARE_SECS, 100.01 + RESHARE_SECS)

    assert [LATER, LATER, FOLLOWS] == [conductor.priorities(view(2, [left]), now)[left] for now in times]


def test_a_plan_under_which_nothing_moves_ends() -> None:
    """The plan would prevent a swarm from finishing, or end while a large piece arrives."""
    fresh, conductor, silence = range(100), Conductor(place=PlanPlace(0, 2)), STALLS * RESHARE_SECS

    def has_plan(now: float, received: int = 0) -> bool:
        return OWN in conductor.priorities(view(2, fresh, received), now)

    assert [True, True, True] == [has_plan(now) for now in (100.0, 101.0, 100.0 + silence)]
    assert not has_plan(100.01 + silence)
    assert has_plan(103.0, received=5)
    assert [True, False] == [has_plan(now, received=5) for now in (103.0 + silence, 103.01 + silence)]


def test_the_wait_is_as_long_as_the_holders_need_for_what_is_requested() -> None:
    """A slow holder would be asked twice for what it is sending."""
    conductor = Conductor(place=PlanPlace(0, 2))
    left = [*share(0, 2, 5), *share(1, 2, 5)]
    before = [*left, *(piece for piece in range(PIECES) if piece not in left)][:100]

    def has_plan(now: float, fresh: Collection[int], received: int = 0) -> bool:
        return OWN in conductor.priorities(view(2, fresh, received), now)

    assert [False, True, True] == [has_plan(now, fresh) for now, fresh in ((100, ()), (150, before), (191, left))]
    # 90 pieces have left in 91 s, and 2 are requested: the next one is due after 2 s
    assert has_plan(195.0, left, received=7)
    assert [True, False] == [has_plan(now, left, received=7) for now in (199.76, 199.78)]


def test_holders_that_were_away_are_waited_for_only_so_long() -> None:
    """Nobody would take over the share of a dead receiver for as long as the holders were away."""
    conductor, left = Conductor(place=PlanPlace(0, 2)), [*share(0, 2, 5), *share(1, 2, 5)]
    for now, fresh in ((0.0, range(60)), (1e6, left)):
        conductor.priorities(view(2, fresh), now)
    late = 1e6 + STALLS * LONGEST_RESHARE_SECS

    assert [True, False] == [OWN in conductor.priorities(view(2, left), now) for now in (late, late + 0.1)]


def follow(conductor: Conductor, fresh: Collection[int], *received: float) -> bool:
    """Whether a receiver is apart from the holders after these moments, at each of which it has
    received something."""
    for moment in received:
        conductor.priorities(view(2, fresh, int(1000 * moment)), moment)
    return conductor.is_apart


def test_a_receiver_whose_share_is_finished_leaves_the_holders() -> None:
    """Whatever it requested from them would leave them twice, and delay the shares of others. One
    that no other receiver is connected to needs them."""
    [left], place = share(1, 2, 1), PlanPlace(0, 2)

    assert follow(Conductor(place=place), [left], 1.0)
    assert follow(Conductor(place=PlanPlace(SHARES, 2)), [left], 1.0)
    alone = Conductor(place=place)
    alone.priorities(view(2, [left], 1000, others=0), 1.0)
    assert not alone.is_apart
    assert not follow(Conductor(place=place), [*share(0, 2, 1), left], 1.0)
    assert not follow(Conductor(place=place), share(1, 2, 3), 1.0)  # it takes over the third one
    assert not follow(Conductor(place=None), [left], 1.0)


def test_a_receiver_leaves_the_holders_when_all_pieces_have_left_them() -> None:
    """It would fetch again from them what the others are about to pass on. One that came later has
    no share to finish, and stays; and one that gets nothing for a while comes back for good."""
    left, place = share(1, 2, 9), PlanPlace(0, 2)
    at_work, late = Conductor(place=place), Conductor(place=place)

    assert not follow(at_work, [*share(0, 2, 9), *left], 1.0)
    assert follow(at_work, [], 1.4)
    assert not follow(late, [], 1.0, 1.4)
    at_work.priorities(view(2, [], 1400), 1.41 + RESHARE_SECS)
    assert not at_work.is_apart
    assert not follow(at_work, [], 2.5, 2.6)


def test_a_receiver_comes_back_to_the_holders_once_when_nothing_moves() -> None:
    """The share of a receiver that died would never arrive, or connections would be made and ended
    all the time."""
    [left], place = share(1, 2, 1), PlanPlace(0, 2)
    waiting, silent, done = Conductor(place=place), Conductor(place=place), Conductor(place=place)

    follow(waiting, share(1, 2, 2), 0.5)
    # One piece has left in half a second, so the last one is late after 2 s.
    assert [True, True, False, False] == [follow(waiting, [left], moment) for moment in (1.0, 2.0, 2.01, 2.02)]
    assert [True, False] == [
        follow(silent, [left], 1.0),
        silent.priorities(view(2, [left], 1000), 1.01 + RESHARE_SECS) and silent.is_apart,
    ]
    assert [True, True] == [follow(done, [left], 1.0), follow(done, [], 1.4, 1.8, 2.2)]  # all have left the holders
    assert not follow(waiting, share(1, 2, 1), 9.0)
