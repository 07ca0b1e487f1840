"""The conductor in a simulated swarm: what its plan must never do, whatever happens to the
members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property_size import examples

from bench.scale.simulation import World, crowd
from torrentdist.model.ids import PeerId
from torrentdist.swarm.plan.conductor import (
    FOLLOWS,
    IDLE_LOOK_SECS,
    LATER,
    LONGEST_LOOK_SECS,
    LOOK_SECS,
    LOOK_SECS_PER_PIECE,
    NEWS,
    OWN,
    PLAIN,
    SHARES,
    Conductor,
    PlanPlace,
    Progress,
    SwarmView,
    look_secs,
)
from torrentdist.swarm.plan.crowd import Crowd
from torrentdist.swarm.plan.neighbours import FULL_MESH, neighbours
from torrentdist.swarm.plan.request_window import BLOCK, FEWEST_BLOCKS, NEAR, QUICK, NetworkPath, queue_secs, window
from torrentdist.swarm.plan.shares import owners

PIECE = 32 * 1024


@settings(max_examples=examples(25), deadline=None)
@given(
    size=st.integers(2, 10),
    pieces=st.integers(4, 40),
    joins=st.lists(st.integers(0, 30), max_size=10),
    deaths=st.lists(st.integers(1, 40), max_size=4),
    slow=st.integers(0, 2),
    holders=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
def test_every_swarm_with_a_holder_finishes(
    size: int, pieces: int, joins: list[int], deaths: list[int], slow: int, holders: int, seed: int
) -> None:
    """A receiver that dies with its share, joins late or is slow would keep the others waiting for
    ever."""
    receivers = crowd(size)
    for receiver, tick in zip(receivers, joins, strict=False):
        receiver.joins = tick
    for receiver, tick in zip(reversed(receivers), deaths, strict=False):
        receiver.dies = receiver.joins + tick
    for receiver in receivers[:slow]:
        receiver.every = 5
    world = World(pieces, receivers, holders=holders, seed=seed)

    assert world.run(limit=200 + 40 * pieces)


@pytest.mark.parametrize(("size", "pieces"), [(2, 12), (3, 60), (8, 48), (8, 240), (16, 320), (24, 144)])
def test_hardly_a_piece_leaves_the_holder_twice_before_all_have_left_it_once(size: int, pieces: int) -> None:
    """The holder's link would be the bottleneck, because two copies take two link times. Once a
    receiver has its own share, it may ask for two or three pieces of other shares, however large
    the bundle is."""
    world = World(pieces, crowd(size), seed=size)
    while len(world.sent_by_holders) < pieces and world.tick < 3 * pieces:
        world.run(limit=world.tick + 1)

    assert len(world.sent_by_holders) == pieces
    assert world.sent_by_holders.total() - pieces <= 2.5 * size


@settings(max_examples=examples(10), deadline=None)
@given(leaves=st.integers(0, 20), seed=st.integers(0, 1000))
def test_a_holder_may_leave_when_one_copy_is_out(leaves: int, seed: int) -> None:
    """A swarm that has all pieces among its members would wait for a receiver that is gone."""
    receivers = crowd(8)
    world = World(48, receivers, holders_leave=1 << 30, seed=seed)
    while len(world.sent_by_holders) < 48:
        world.run(limit=world.tick + 1)
    world.holders_leave = world.tick + leaves

    assert world.run(limit=world.tick + 400)


def test_one_copy_is_out_in_about_one_link_time_and_everybody_is_done_soon_after() -> None:
    """The plan would bring nothing."""
    world = World(480, crowd(16), waits=False)
    while len(world.sent_by_holders) < world.pieces:
        world.run(limit=world.tick + 1)
    out_at = world.tick
    world.run(limit=2000)

    assert out_at <= 1.1 * 480
    assert world.tick <= 1.2 * 480


def test_holders_that_can_give_more_hold_nobody_up() -> None:
    """A holder with a faster link than the receivers' would be wasted, or make things worse: the
    plan is made for equal links."""

    def ticks(holders: int, rate: int) -> int:
        world = World(240, crowd(48), holders=holders, holder_uplink=rate)
        assert world.run(limit=720)
        return world.tick

    plain = ticks(1, 1)
    slow = [(holders, rate) for holders, rate in ((1, 4), (3, 1), (8, 1)) if ticks(holders, rate) > 0.97 * plain]

    assert [] == slow


@pytest.mark.parametrize(("every", "pieces"), [(2, 512), (32, 160)])
def test_a_holder_that_gives_little_is_not_asked_twice(every: int, pieces: int) -> None:
    """The silence of a slow holder between two pieces would look like a plan that makes no
    progress."""
    world = World(pieces, crowd(16), uplink=4, holder_every=every, tick_secs=0.0105, waits=False)

    assert world.run(limit=4 * every * pieces)
    assert world.sent_by_holders.total() <= pieces + 25
    assert world.tick <= every * (pieces + 32)


@given(gap=st.floats(0.01, 5.0), shares=st.integers(3, 16))
def test_a_receiver_that_is_done_waits_for_as_long_as_the_holders_take(gap: float, shares: int) -> None:
    """Holders would send a piece twice that is under way, and never send a piece that nobody asks
    for."""
    piece = next(piece for piece in range(200) if owners(shares)[piece] == 1)
    conductor = Conductor(place=PlanPlace(0, shares))
    for left in range(20):  # one after the other
        fresh = [*range(200, 219 - left), piece]
        conductor.priorities(_sight(219, fresh), now=left * gap)
    moved = 19 * gap
    soon = conductor.priorities(_sight(219, [piece]), now=moved + 0.9 * gap)[piece]
    late = conductor.priorities(_sight(219, [piece]), now=moved + 1.1 * max(0.5, gap))[piece]

    assert (LATER, FOLLOWS) == (soon, late)


@given(away=st.floats(0.0, 1e6))
def test_holders_that_were_away_for_long_are_not_waited_for_that_long(away: float) -> None:
    """The silence of holders that were away would look like slowness, and nobody would fetch the
    shares of dead receivers."""
    conductor = Conductor(place=PlanPlace(0, 16))
    for left, now in ((150, 0.0), (140, 1.0), (139, 1.0 + away)):
        conductor.priorities(_sight(200, range(left)), now=now)
    wanted = conductor.priorities(_sight(200, range(139)), now=1.0 + away + 4.1 * 10.0)

    assert {PLAIN} == set(wanted)


def _sight(pieces: int, fresh: Collection[int], received: int = 0) -> SwarmView:
    """Returns a view in which these pieces are only at the holder, and all others everywhere."""
    have = [piece not in fresh for piece in range(pieces)]
    return SwarmView(have, [1 if piece in fresh else 3 for piece in range(pieces)], 1, PIECE, received)


def test_a_first_piece_that_comes_slowly_is_no_stall() -> None:
    """With large pieces, none is complete for seconds: every receiver would ask the holder for
    everything."""
    coming, silent = Conductor(place=PlanPlace(0, 16)), Conductor(place=PlanPlace(0, 16))
    for second in range(20):
        wanted = coming.priorities(_sight(200, range(200), received=second * 1000), now=float(second))
        nothing = silent.priorities(_sight(200, range(200)), now=float(second))

    assert OWN in wanted
    assert {PLAIN} == set(nothing)


@given(number=st.integers(0, 15), data=st.data())
def test_whoever_has_a_share_begins_at_its_front(number: int, data: st.DataObject) -> None:
    """A receiver and its helpers would ask for the same pieces."""
    fresh = data.draw(st.sets(st.integers(0, 199)))
    own = sorted(piece for piece in fresh if owners(16)[piece] == number)
    wanted = Conductor(place=PlanPlace(number, 16)).priorities(_sight(200, fresh), now=0.0)
    first = [piece for piece in own if wanted[piece] == OWN]

    assert first == own[: len(first)]
    assert len(first) >= min(1, len(own))
    assert len(first) <= 2


def test_four_hundred_that_start_at_once_all_get_on() -> None:
    """Slots would fill up with peers that have nothing, as Kraken's do, and all would wait."""
    world = World(24, crowd(400), uplink=4)

    assert world.run(limit=400)


@given(size=st.integers(1, 600))
def test_the_graph_is_connected_and_known_to_both_ends(size: int) -> None:
    """Some hosts would never get the pieces that others have."""
    edges = [set(neighbours(size, index)) for index in range(size)]
    reached, border = {0}, [0]
    while border:
        border = [other for index in border for other in edges[index] if other not in reached]
        reached.update(border)

    assert reached == set(range(size))
    assert all(index in edges[other] for index in range(size) for other in edges[index])
    assert max(map(len, edges)) <= max(FULL_MESH, 2 * size.bit_length())


@given(
    members=st.dictionaries(st.integers(0, 60).map(lambda n: PeerId(f"s{n}")), st.integers(0, 100), max_size=60),
    expected=st.sets(st.integers(0, 60).map(lambda n: PeerId(f"s{n}")), max_size=20),
)
def test_every_share_has_one_receiver_at_most(members: dict[PeerId, int], expected: set[PeerId]) -> None:
    """Two receivers would fetch the same pieces from the holder."""
    planned = Crowd()
    for peer in members:
        planned.come(peer, 0.0)
    planned.expect(sorted(expected), lambda peer: members.get(peer) == 100)
    planned.judge(lambda peer: Progress(members[peer], 100), 5.0)
    places = [planned.place(peer) for peer in members.keys() | expected]
    shares = [place.number for place in places if place is not None and place.number < SHARES]

    assert len(set(shares)) == len(shares)


@given(shares=st.integers(2, SHARES))
def test_a_newcomer_changes_little(shares: int) -> None:
    """Pieces that are under way would change their receiver, and leave the holder twice."""
    before, after = owners(shares - 1), owners(shares)
    sizes = Counter(after).values()

    assert all(new in (old, shares - 1) for old, new in zip(before, after, strict=True))
    assert max(sizes) <= 1.15 * min(sizes)


def test_the_share_of_one_that_never_comes_is_taken_over_by_one_each() -> None:
    """The others would wait for its pieces, or all fetch them at once."""
    left = sorted(next(piece for piece in range(200) if owners(16)[piece] == number) for number in range(12, 16))
    sight = SwarmView([p not in left for p in range(200)], [1 if p in left else 3 for p in range(200)], 1, PIECE)
    conductors = [Conductor(place=PlanPlace(number, 16)) for number in range(12)]
    before = [[conductor.priorities(sight, now=0.0)[piece] for piece in left] for conductor in conductors]
    after = [[conductor.priorities(sight, now=1.0)[piece] for piece in left] for conductor in conductors]

    assert [[LATER] * 4] * 12 == before
    assert [1, 1, 1, 1] == [sum(wanted[piece] > LATER for wanted in after) for piece in range(4)]


@pytest.mark.parametrize("seed", range(2))
def test_a_holder_that_serves_some_at_half_the_pace_holds_nobody_up(seed: int) -> None:
    """Connections do not share a link evenly. All receivers once waited a fifth longer for the
    pieces of three."""
    took = []
    for held_up in (1, 32):
        receivers = crowd(16)
        for receiver in receivers[2::5]:
            receiver.held_up = held_up
        world = World(512, receivers, seed=seed)
        assert world.run(limit=2000)
        took.append(world.tick)

    assert took[1] <= 1.08 * took[0]


@given(
    have=st.lists(st.booleans(), min_size=1, max_size=80),
    number=st.integers(0, 30),
    receivers=st.integers(2, 30),
    seeds=st.integers(0, 3),
    data=st.data(),
)
def test_a_plan_that_does_not_get_on_is_given_up(
    have: list[bool], number: int, receivers: int, seeds: int, data: st.DataObject
) -> None:
    """A piece that no receiver may request would never be fetched."""
    copies = data.draw(st.lists(st.integers(seeds, 5), min_size=len(have), max_size=len(have)))
    conductor = Conductor(place=PlanPlace(number, receivers))
    sight = SwarmView(have, copies, seeds, PIECE)
    conductor.priorities(sight, now=0.0)

    assert LATER not in conductor.priorities(sight, now=10.0)


@given(
    have=st.lists(st.booleans(), min_size=1, max_size=80),
    number=st.integers(0, 30),
    receivers=st.integers(2, 60),
    seeds=st.integers(0, 3),
    data=st.data(),
)
def test_every_piece_is_always_wanted(
    have: list[bool], number: int, receivers: int, seeds: int, data: st.DataObject
) -> None:
    """libtorrent calls a torrent finished when no missing piece has a priority, so it would be
    published with holes."""
    copies = data.draw(st.lists(st.integers(seeds, 5), min_size=len(have), max_size=len(have)))
    wanted = Conductor(place=PlanPlace(number, receivers)).priorities(SwarmView(have, copies, seeds, PIECE), now=0.0)

    assert 0 not in wanted


def test_a_newcomer_gets_a_share_and_a_slow_one_none() -> None:
    """A newcomer without a share would ask the holders for pieces that others have; one on a slow
    link would keep its share from the others."""
    done = {PeerId(f"s{n}"): 500 for n in range(4)} | {PeerId("slow"): 50}
    planned, newcomer = Crowd(), PeerId("new")
    for peer in done:
        planned.come(peer, 0.0)
    planned.come(newcomer, 4.5)
    planned.judge(lambda peer: Progress(done.get(peer, 0), 1000), 5.0)

    assert PlanPlace(4, 5) == planned.place(newcomer)
    assert PlanPlace(SHARES, SHARES) == planned.place(PeerId("slow"))


def test_the_receiver_told_to_fetch_first_has_the_first_place() -> None:
    """Every newcomer would move all the others' places."""
    told = [PeerId(name) for name in ("s9", "s3", "s5")]
    planned, came = Crowd(), [PeerId(name) for name in ("s3", "z", "s5", "a", "s9")]
    for peer in came:
        planned.come(peer, 0.0)
    planned.expect(told, lambda peer: False)

    assert [PlanPlace(n, 5) for n in range(5)] == [planned.place(PeerId(p)) for p in ("s9", "s3", "s5", "z", "a")]


@given(
    receivers=st.integers(2, 60),
    peers=st.integers(2, 30),
    rtt=st.sampled_from([0.0, 0.001, 0.01, 0.03, 0.1, 0.3]),
    link=st.floats(2e5, 1e9),
)
def test_two_blocks_at_a_time_never_hold_up_a_receiver_that_is_far(
    receivers: int, peers: int, rtt: float, link: float
) -> None:
    """A few hosts in another data centre would stay at some megabytes a second for ever, whatever
    their links carry."""
    way = NetworkPath(peers, rtt)
    rate = min(link, 0.25 * way.carries(FEWEST_BLOCKS))  # most of them have nothing that it lacks
    depth = window(receivers) if queue_secs(receivers, rate, way) else FEWEST_BLOCKS
    held_up = rate < link and depth == FEWEST_BLOCKS < window(receivers)

    assert not held_up


@given(receivers=st.integers(2, 60), peers=st.integers(2, 30), link=st.floats(2e5, QUICK - 1))
def test_neighbours_ask_for_little_at_a_time(receivers: int, peers: int, link: float) -> None:
    """The first receiver would use up the holders alone."""
    near = NetworkPath(peers, rtt=NEAR * peers * FEWEST_BLOCKS * BLOCK / QUICK)

    assert queue_secs(receivers, link, near) == 0
    assert queue_secs(receivers, link, NetworkPath()) == 0


@given(pieces=st.integers(1, 1 << 21), part=st.floats(0.0, 1.0), pace=st.floats(0.0, 1e6))
def test_a_look_is_worth_its_time(pieces: int, part: float, pace: float) -> None:
    """Ten looks a second were a fifth of all Python time in a crowd whose pieces came one by
    one."""
    left = round(pieces * part)
    secs = look_secs(pieces, left, pace)

    assert secs == LOOK_SECS or secs * pace <= max(left / NEWS, pieces * LOOK_SECS_PER_PIECE * pace) * (1 + 1e-9)
    assert max(LOOK_SECS, pieces * LOOK_SECS_PER_PIECE) <= secs <= max(LONGEST_LOOK_SECS, pieces * LOOK_SECS_PER_PIECE)
    assert look_secs(512, 512, 0.0) == LOOK_SECS  # before anything comes, everything is news
    assert look_secs(512, 64, 38.0) == pytest.approx(0.21, abs=0.01)
    assert look_secs(64, 8, 10.0) == LOOK_SECS  # the plan changes most at the end
    assert look_secs(512, 512, 38.0, has_share=False) == IDLE_LOOK_SECS  # no holder is asked for less by what it sees
