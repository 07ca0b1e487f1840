"""Decisions exactly at their limits: the values on both sides, where a wrong comparison would
show."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from torrentdist.bundle import safe_paths
from torrentdist.bundle.safe_paths import MAX_LINK_HOPS, LinkFault, find_layout_problem, find_link_problem
from torrentdist.client.masters.leader_search import AskMaster, GiveUp, Reply, Said, begin, step
from torrentdist.cluster.election.term import TermRecord, left_to
from torrentdist.cluster.session.znode_operations import Create
from torrentdist.master.changes.answered_requests import MAX_ANSWER_BYTES, mutation, note
from torrentdist.model.ids import BundleId, Digest, MasterId, PeerId, RequestId
from torrentdist.model.records import RequestRecord, decode
from torrentdist.supervisor.bundles.keeping_plan import KeepingState, StopSeeding, plan
from torrentdist.swarm.plan.conductor import (
    JUDGED_SECS,
    LATER,
    OWN,
    PLAIN,
    SLOW,
    TELLING,
    Conductor,
    PlanPlace,
    Progress,
    SwarmView,
    slow_among,
)
from torrentdist.swarm.plan.request_window import BLOCK, window
from torrentdist.swarm.plan.shares import owners

FIRST, SECOND, THIRD = "a-0000000001", "b-0000000002", "c-0000000003"
SIZE = 1000


def progress(done: int, secs: float = JUDGED_SECS) -> Progress:
    return Progress(done=done, size=SIZE, secs=secs)


def without_a_share(done: list[int], secs: float = JUDGED_SECS) -> list[str]:
    """Returns the receivers that count as slow."""
    return sorted(slow_among({PeerId(f"p{number}"): progress(bytes_, secs) for number, bytes_ in enumerate(done)}))


def test_two_receivers_are_too_few_to_call_one_of_them_slow() -> None:
    """The slower one of two would get no share, and the other one would fetch everything alone."""
    assert [] == without_a_share([10, 900])
    assert ["p0"] == without_a_share([10, 900, 900])
    assert ["p0", "p1"] == without_a_share([10, 100, 900, 900, 900])


def test_a_receiver_is_slow_only_after_it_was_seen_for_long_enough() -> None:
    """A receiver that has just joined would lose its share before it could show its pace."""
    assert ["p0"] == without_a_share([10, 900, 900], JUDGED_SECS)
    assert [] == without_a_share([10, 900, 900], JUDGED_SECS - 0.01)


def test_nobody_is_slow_while_the_middle_one_has_little() -> None:
    """The first pieces arrive in bursts, so a pace measured from them says nothing."""
    told = int(TELLING * SIZE)

    assert [] == without_a_share([0, told, told])
    assert ["p0"] == without_a_share([0, told + 1, told + 1])


def test_the_pace_that_is_just_enough_keeps_its_share() -> None:
    """A host with half the pace of the others would be without a share, or one with less would
    delay them."""
    pace = 800
    enough = int(SLOW * pace)

    assert [] == without_a_share([enough, pace, pace], 4.0)
    assert ["p0"] == without_a_share([enough - 1, pace, pace], 4.0)


@pytest.mark.parametrize(("more", "expected"), [(0, LATER), (1, PLAIN)])
def test_others_pieces_are_asked_for_when_the_own_share_is_all_under_way(more: int, expected: int) -> None:
    """A receiver would run out of requests, or ask the holders twice for the same piece."""
    place, pieces, piece_length = PlanPlace(0, 2), range(256), BLOCK
    under_way = window(place.receivers) * BLOCK // piece_length
    whose = owners(place.shares)
    own = [piece for piece in pieces if whose[piece % len(whose)] == place.number]
    others = [piece for piece in pieces if piece not in own]
    kept = [*own[: under_way + more], *others[: under_way + more]]
    view = SwarmView(
        have=[piece not in kept for piece in pieces], copies=[1] * len(pieces), seeds=1, piece_length=piece_length
    )
    wanted = Conductor(place=place).priorities(view, 0.0)

    assert [OWN] * (under_way + more) == [wanted[piece] for piece in own[: under_way + more]]
    assert {expected} == {wanted[piece] for piece in others[: under_way + more]}


def test_the_named_successor_leads_only_while_it_stands_in_the_queue() -> None:
    """A master would wait for a successor that is gone, or step behind itself, and none would
    lead."""
    record = TermRecord(leader=MasterId("m1"), election=FIRST, left="transferred", successor=THIRD)

    assert left_to(record, SECOND, [SECOND, THIRD]) == THIRD
    assert left_to(record, THIRD, [SECOND, THIRD]) is None
    assert left_to(record, SECOND, [SECOND]) is None
    assert left_to(None, SECOND, [SECOND, THIRD]) is None
    assert left_to(TermRecord(leader=MasterId("m1"), election=FIRST, successor=THIRD), SECOND, [SECOND, THIRD]) is None


def test_as_many_symlinks_as_linux_follows_are_followed() -> None:
    """A bundle that Linux can read would be refused, or one that it cannot read would be
    accepted."""
    for hops, fault in ((MAX_LINK_HOPS, None), (MAX_LINK_HOPS + 1, LinkFault.CIRCLE)):
        # `d` leads to the directory that contains it, and `x` is one hop itself
        links = {"d": ".", "x": "/".join(["d"] * (hops - 1))}
        problem = find_link_problem(links)

        assert fault == (problem.fault if problem else None)


def test_as_many_directories_as_entries_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle at the limit would be refused, or one just above it would fill the memory."""
    monkeypatch.setattr(safe_paths, "MAX_ENTRIES", 3)

    assert find_layout_problem(["a/b/c/f"], [], []) is None
    assert find_layout_problem(["a/b/c/d/f"], [], []) == "it has too many directories"
    assert find_layout_problem(["a", "b", "c"], [], []) is None
    assert find_layout_problem(["a", "b", "c", "d"], [], []) == "it has too many entries"


def test_the_paths_of_all_directories_have_a_bound_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file tree of a few names could describe paths that fill the memory."""
    monkeypatch.setattr(safe_paths, "MAX_ALL_PATHS_BYTES", 7 + 3 + 1)

    assert find_layout_problem(["a/b/efg"], [], []) is None
    assert find_layout_problem(["a/b/efgh"], [], []) == "it has too many directories"


@pytest.mark.parametrize(("size", "kept"), [(MAX_ANSWER_BYTES, True), (MAX_ANSWER_BYTES + 1, False)])
def test_an_answer_of_the_largest_size_is_kept(size: int, kept: bool) -> None:
    """A retry would be given another answer than the first attempt, or the transaction would be too
    large."""
    asked = mutation(RequestId("r"), "POST", b"/v1/x", b"", b"")
    [op] = note(asked, None, b"x" * size)
    assert isinstance(op, Create)

    assert kept == bool(decode(op.data, RequestRecord, path=op.path).body)


@pytest.mark.parametrize(
    ("seed_secs", "idle_secs", "stops"),
    [(0.0, 1.0, True), (0.0, 0.0, False), (60.0, 60.0, False), (60.0, 60.1, True), (-1.0, 1e9, False)],
)
def test_seeding_ends_after_exactly_the_time_that_was_set(seed_secs: float, idle_secs: float, stops: bool) -> None:
    """With 0, a host would seed for ever what it should drop at once."""
    digest = Digest("1" * 64)
    host = KeepingState(
        assigned=frozenset(),
        requested=frozenset(),
        bindings={BundleId("a"): digest},
        idle_secs={digest: idle_secs},
        seeding=frozenset({digest}),
        fetching=frozenset(),
        removed=frozenset(),
        seed_secs=seed_secs,
    )

    assert ([StopSeeding(digest)] if stops else []) == plan(host, 10.0)
    assert [] == plan(replace(host, assigned=frozenset({BundleId("a")})), 10.0)


def test_only_a_refusal_names_a_leader_that_is_followed() -> None:
    """A client would follow a master that never refused it, or no master at all."""
    urls = ["http://m0:1", "http://m1:1", "http://m2:1"]
    for said, leader, followed in (
        (Said.NOT_LEADER, urls[2], True),
        (Said.BEHIND, urls[2], False),
        (Said.NOT_LEADER, None, False),
        (Said.NOT_LEADER, "http://stranger:1", False),
    ):
        search, _ = begin(urls, urls[0], 0.0, 30.0)
        _, after = step(search, Reply(said, "x", leader=leader), 0.1, 0.0)

        assert isinstance(after, AskMaster)
        assert followed == after.followed


def test_a_search_ends_at_its_deadline_though_a_leader_is_named() -> None:
    """A client with a deadline would begin another request when its time is over."""
    urls = ["http://m0:1", "http://m1:1"]
    refusal = Reply(Said.NOT_LEADER, "x", leader=urls[1])
    for now, over in ((29.9, False), (30.0, True)):
        search, _ = begin(urls, urls[0], 0.0, 30.0)
        _, after = step(search, refusal, now, 0.0)

        assert over == isinstance(after, GiveUp)
