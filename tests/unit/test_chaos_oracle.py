"""The oracle of `make chaos` finds the faults that it is made for. A judge that never convicts
proves nothing."""

from __future__ import annotations

import dataclasses

import pytest
from chaos.oracle import CHROOT, Committed, Sighting, judge_sightings, judge_transactions, judge_words
from chaos.txnlog import Change, Kind, Transaction
from records_of import bundle

from torrentdist.cluster.election.term import TermRecord
from torrentdist.model.ids import MasterId
from torrentdist.model.records import BundleState, encode

FIRST, SECOND = 0xA, 0xB
THIRD = "a-0000000003"


def change(kind: Kind, path: str, data: bytes = b"", version: int = 0, ephemeral: bool = False) -> Change:
    return Change(kind, CHROOT + path, data, version, ephemeral)


def queued(master: str, znode: str) -> Change:
    return change(Kind.CREATE, f"/election/{znode}", master.encode(), ephemeral=True)


def raised(master: str, znode: str, epoch: int) -> tuple[Change, ...]:
    record = encode(TermRecord(leader=MasterId(master), election=znode))
    return (change(Kind.CHECK, f"/election/{znode}"), change(Kind.SET, "/epoch", record, epoch))


def act(epoch: int, znode: str, path: str = "/code-distributor/b") -> tuple[Change, ...]:
    fence = (change(Kind.CHECK, "/epoch", version=epoch), change(Kind.CHECK, f"/election/{znode}"))
    return (*fence, change(Kind.SET, path, b"x", 7))


def history(*entries: tuple[int, tuple[Change, ...]]) -> list[Transaction]:
    return [Transaction(n, session, 100.0 + n, changes) for n, (session, changes) in enumerate(entries, 1)]


HANDED_ON = (
    (FIRST, (queued("m1", "a-1"),)),
    (SECOND, (queued("m2", "b-2"),)),
    (FIRST, raised("m1", "a-1", 1)),
    (FIRST, act(1, "a-1")),
    (FIRST, (change(Kind.DELETE, "/election/a-1"),)),
    (SECOND, raised("m2", "b-2", 2)),
    (SECOND, act(2, "b-2")),
)


def test_an_orderly_history_has_no_findings() -> None:
    """If this failed, the oracle would raise false alarms and be switched off."""
    judgement = judge_transactions(history(*HANDED_ON))

    assert [] == judgement.findings
    assert [(1, "m1", 105.0), (2, "m2", float("inf"))] == [(r.epoch, r.master, r.ended) for r in judgement.reigns]
    assert judgement.acts == 2


def test_a_change_without_a_fence_is_found() -> None:
    """If this failed, a write without the fence would go unnoticed until two leaders meet."""
    bare = (change(Kind.SET, "/code-distributor/b", b"x", 7),)
    judgement = judge_transactions(history(*HANDED_ON, (SECOND, bare)))

    assert len(judgement.findings) == 1


@pytest.mark.parametrize("path", ["/known-masters/m1", "/known-supervisors/s1"])
def test_only_the_leader_remembers_daemons(path: str) -> None:
    """If this failed, a master that does not lead could declare hosts gone, and what the leader
    writes about them would count as missing."""
    bare = (change(Kind.SET, path, b"x", 7),)
    unfenced = judge_transactions(history(*HANDED_ON, (FIRST, bare)))
    fenced = judge_transactions(history(*HANDED_ON, (SECOND, act(2, "b-2", path))))

    assert 1 == len(unfenced.findings)
    assert [] == fenced.findings
    assert [] == judge_words(fenced.reigns, [Committed("m2", 2, (path,))])


def test_a_change_by_an_old_epoch_is_found() -> None:
    """If this failed, a deposed leader's change would count as its successor's."""
    judgement = judge_transactions(history(*HANDED_ON, (FIRST, act(1, "a-1"))))

    assert len(judgement.findings) == 1


def test_an_epoch_raised_without_a_place_in_the_queue_is_found() -> None:
    """If this failed, a master could make itself leader without an election."""
    judgement = judge_transactions(history(*HANDED_ON, (FIRST, raised("m1", "a-1", 3))))

    assert len(judgement.findings) == 1


def called(state: BundleState, znode: str, epoch: int) -> tuple[Change, ...]:
    check_epoch, check_place, write = act(epoch, znode)
    return (check_epoch, check_place, dataclasses.replace(write, data=encode(bundle("b", state=state).record)))


def test_the_elected_may_call_a_bundle_lost_and_nothing_else() -> None:
    """If this failed, what an elected master may do would be a finding, or everything else that it
    does would not."""
    nobody_leads = (*HANDED_ON, (FIRST, (queued("m1", THIRD),)), (SECOND, (change(Kind.DELETE, "/election/b-2"),)))
    elected = history(*nobody_leads, (FIRST, called(BundleState.LOST, THIRD, 2)))
    guilty = [
        history(*nobody_leads, (FIRST, called(BundleState.AVAILABLE, THIRD, 2))),
        history(*nobody_leads, (FIRST, called(BundleState.LOST, THIRD, 1))),
        history(*nobody_leads[:-1], (FIRST, called(BundleState.LOST, THIRD, 2))),
        history(*nobody_leads, (SECOND, called(BundleState.LOST, THIRD, 2))),
    ]

    assert [] == judge_transactions(elected).findings
    assert [1, 1, 1, 1] == [len(judge_transactions(h).findings) for h in guilty]


def test_a_replica_record_needs_no_fence() -> None:
    """If this failed, what every master may write of itself would count as a leader's act."""
    own = (change(Kind.CREATE, "/code-distributor/b/m1", b"{}"),)
    judgement = judge_transactions(history(*HANDED_ON, (FIRST, own)))

    assert [] == judgement.findings


def test_a_leader_that_says_so_after_its_time_is_found() -> None:
    """If this failed, two masters that both believe that they lead would go unnoticed while only
    one of them writes."""
    reigns = judge_transactions(history(*HANDED_ON)).reigns
    in_time = [Sighting("m1", 104.0, 104.1), Sighting("m2", 107.0, 107.1), Sighting("m1", 104.9, 109.0)]
    late = Sighting("m1", 106.5, 106.6)

    assert [] == judge_sightings(reigns, in_time, stolen=(), lease_secs=4.0)
    assert len(judge_sightings(reigns, [late], stolen=(), lease_secs=4.0)) == 1
    assert [] == judge_sightings(reigns, [late], stolen=[FIRST], lease_secs=4.0)


def test_a_tree_that_an_operator_deletes_begins_anew() -> None:
    """If this failed, a wiped tree would be a finding by itself, or nothing after it would be."""
    operator = 0xC
    wiped = (operator, tuple(change(Kind.DELETE, p) for p in ("/code-distributor/b", "/election/b-2", "/epoch")))
    later = (
        *HANDED_ON,
        wiped,
        (FIRST, (queued("m1", "a-5"),)),
        (FIRST, raised("m1", "a-5", 1)),
        (FIRST, act(1, "a-5")),
    )
    judgement = judge_transactions(history(*later), outsiders=[operator])
    deposed = judge_transactions(history(*later, (SECOND, act(2, "b-2"))), outsiders=[operator])
    at_once, much_later = Sighting("m2", 108.5, 108.6), Sighting("m2", 113.0, 113.1)

    assert [] == judgement.findings
    assert len(judge_transactions(history(*later)).findings) == len(deposed.findings) == 1
    assert [] == judge_sightings(judgement.reigns, [at_once], stolen=(), lease_secs=4.0)
    assert len(judge_sightings(judgement.reigns, [much_later], stolen=(), lease_secs=4.0)) == 1


def test_a_leader_whose_epoch_an_operator_raises_may_not_know_it_for_the_length_of_a_lease() -> None:
    """If this failed, each restore beside running masters would be a finding, or a real second
    leader would not."""
    operator, restored = 0xC, encode(TermRecord(leader=MasterId("m2"), election="", left="restored"))
    raises = (operator, (change(Kind.SET, "/epoch", b"", 3), change(Kind.SET, "/epoch", b"", 4)))
    complete = (operator, (change(Kind.SET, "/epoch", restored, 5), change(Kind.DELETE, "/election/b-2")))
    later = (*HANDED_ON, raises, complete)
    reigns = judge_transactions(history(*later), outsiders=[operator]).reigns
    inside = judge_transactions(history(*later), outsiders=[]).reigns
    between, much_later, other = (Sighting(m, at, at + 0.1) for m, at in (("m2", 108.5), ("m2", 112.5), ("m1", 108.5)))

    assert [] == judge_sightings(reigns, [between], stolen=(), lease_secs=4.0)
    assert [1, 1] == [len(judge_sightings(reigns, [s], stolen=(), lease_secs=4.0)) for s in (much_later, other)]
    assert len(judge_sightings(inside, [between], stolen=(), lease_secs=4.0)) == 1


def test_a_commit_that_only_its_master_knows_of_is_found() -> None:
    """If this failed, a change could be acknowledged that ZooKeeper never made."""
    reigns = judge_transactions(history(*HANDED_ON)).reigns
    true = Committed("m2", 2, ("/code-distributor/b",))

    assert [] == judge_words(reigns, [true])
    assert (
        len(judge_words(reigns, [dataclasses.replace(true, epoch=1), dataclasses.replace(true, znodes=("/jobs/j",))]))
        == 2
    )
