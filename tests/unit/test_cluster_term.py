"""Election decisions, lease and history as values."""

from __future__ import annotations

import pytest

from torrentdist.cluster.election.term import (
    KEEPALIVE_SHARE,
    LEASE_SHARE,
    NEXT,
    ElectionPhase,
    First,
    Ghost,
    MustQueue,
    OwnNode,
    TermRecord,
    Waits,
    failover_reason,
    lease_end,
    outdated,
    read_term,
    standing,
)
from torrentdist.cluster.records.registration import RegistrationStep, claim
from torrentdist.model.ids import MasterId, StoreId
from torrentdist.model.records import encode

A, B, C = "ffff-0000000001", "0000-0000000002", "aaaa-0000000010"


def test_the_lowest_number_is_first_whatever_the_names() -> None:
    """If this fails, the random part of a name decides who leads."""
    children = [C, "junk", B, A, "short-1"]

    assert standing(children, OwnNode(A, 7), 7) == First(A)
    assert standing(children, OwnNode(B, 7), 7) == Waits(A)
    assert standing(children, OwnNode(C, 7), 7) == Waits(B)


def test_only_a_znode_of_this_session_stands_for_us() -> None:
    """If this fails, a master leads by a znode that ZooKeeper is about to remove."""
    assert standing([A], OwnNode(A, 6), 7) == Ghost(A)
    assert standing([A], OwnNode(A, 6), None) == Ghost(A)
    assert standing([A], OwnNode(B, 7), 7) == MustQueue()
    assert standing([A], None, 7) == MustQueue()


def test_a_lease_ends_before_the_session_can() -> None:
    """If this fails, a leader acts while its successor already does."""
    assert lease_end(None, 10.0) == float("-inf")
    assert lease_end(100.0, 9.0) == pytest.approx(106.0)
    assert LEASE_SHARE + KEEPALIVE_SHARE <= 1.0


@pytest.mark.parametrize(
    ("previous", "registered", "expected"),
    [
        (None, False, "first leader"),
        (TermRecord(leader=MasterId("m1"), election=A, left="gave way"), True, "gave way"),
        (TermRecord(leader=MasterId("m1"), election=A), True, "session lost"),
        (TermRecord(leader=MasterId("m1"), election=A), False, "died"),
        (TermRecord(leader=MasterId("me"), election=A), False, "session lost"),
        (TermRecord(leader=MasterId("me"), election=B), True, "lease ended"),
    ],
)
def test_a_failover_says_why(previous: TermRecord | None, registered: bool, expected: str) -> None:
    """If this fails, the history gives a wrong reason."""
    now = TermRecord(leader=MasterId("me"), election=B)

    assert failover_reason(previous, now, registered) == expected


def test_a_leader_counts_while_its_znode_is_there() -> None:
    """If this fails, a dead leader is named, or one that has resigned."""
    record = TermRecord(leader=MasterId("m1"), election=A)

    assert record.leader_among([A, B]) == "m1"
    assert record.leader_among([B]) is None
    assert TermRecord(leader=MasterId("m1"), election=A, left="stopped").leader_among([A]) is None


def test_the_record_of_the_epoch_may_be_absent_or_broken() -> None:
    """If this fails, one bad write to /epoch keeps every master from leading."""
    record = TermRecord(leader=MasterId("m1"), election=A)

    assert read_term(encode(record)) == record
    assert read_term(b"") is None
    assert read_term(b"{") is None


def test_the_oldest_failovers_go() -> None:
    """If this fails, the history grows, or loses its newest entries."""
    names = [f"f-{n:010}" for n in (3, 1, 12, 2)]

    assert outdated(names, keep=2) == ["f-0000000001", "f-0000000002"]
    assert outdated(names, keep=4) == []


def test_leading_is_reached_from_elected_alone() -> None:
    """If this fails, a master leads without a check that it is ready."""
    before = {phase for phase, after in NEXT.items() if ElectionPhase.LEADING in after}

    assert before == {ElectionPhase.ELECTED}
    assert set(NEXT) == set(ElectionPhase)


@pytest.mark.parametrize(
    ("owner", "store", "expected"),
    [
        (None, None, RegistrationStep.CREATE),
        (7, "mine", RegistrationStep.KEEP),
        (7, "other", RegistrationStep.KEEP),
        (6, "mine", RegistrationStep.REPLACE),
        (6, "other", RegistrationStep.TAKEN),
        (6, None, RegistrationStep.TAKEN),
    ],
)
def test_a_record_is_taken_over_from_our_own_store_only(
    owner: int | None, store: str | None, expected: RegistrationStep
) -> None:
    """If this fails, a daemon pushes another one out, or is refused as a second daemon of its own
    id."""
    assert claim(owner, StoreId(store) if store else None, 7, StoreId("mine")) is expected
