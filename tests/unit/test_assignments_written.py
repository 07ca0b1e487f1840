"""How the leader writes assignments: generations, versions, room, and hosts that take no part."""

from __future__ import annotations

import msgspec
import pytest
from placed_workers import H1, H2, J, changed, placed, running, with_workers
from records_of import job, snapshot, supervisor

from torrentdist.cluster import paths
from torrentdist.cluster.session.znode_operations import Create, Set
from torrentdist.master.changes.assignment_room import ASSIGNMENT_BYTES, WORKER_BYTES
from torrentdist.master.changes.predicted_records import predicted
from torrentdist.master.jobs.job_duties import (
    Happened,
    assignment_ops,
    cleanup_ops,
    drain_ops,
    ops_of,
)
from torrentdist.master.jobs.lifecycle import Due
from torrentdist.model.ids import BundleId
from torrentdist.model.records import (
    AssignmentRecord,
    JobStatus,
    Pending,
    PendingStep,
    decode,
)

SUPERVISORS = running(0, on={}, up=("h2",)).supervisors


def test_an_assignment_that_changes_is_written_once_with_the_next_generation() -> None:
    """If this fails, a supervisor takes an older assignment for a newer one, or does the same
    twice."""
    seen = running(2, on={H1: (0,), H2: ()}, up=("h1",))
    (given,) = assignment_ops(seen)
    (drained,) = drain_ops(seen, H1, True)

    for op in (given, drained):
        assert isinstance(op, Set)
        assert 1 == decode(op.data, AssignmentRecord, path=op.path).generation


def test_a_new_assignment_that_is_written_twice_goes_on_from_its_first_version() -> None:
    """If this fails, the second write of a transaction is refused, and with it the whole batch."""
    seen = running(2, on={H1: (0, 1), H2: ()}, up=("h1", "h2"))
    seen = msgspec.structs.replace(seen, assignments={H1: msgspec.structs.replace(seen.assignments[H1], version=7)})
    writes = [(type(op), getattr(op, "version", None)) for op in assignment_ops(seen, [J])]

    assert [(Set, 7), (Create, None)] == writes


def test_a_damaged_assignment_is_left_alone() -> None:
    """If this fails, a rebalance that wants to move a worker to such a host never ends, because the
    write is refused each time."""
    seen = running(2, on={H1: (0, 1)}, up=("h1", "h2"))
    seen = msgspec.structs.replace(seen, damaged=frozenset({paths.assignment(H2)}))

    assert [] == assignment_ops(seen, [J])


def test_workers_of_a_job_whose_record_is_damaged_stay() -> None:
    """If this fails, one record that cannot be read stops a job that runs."""
    seen = running(2, on={H1: (0, 1)}, up=("h1",))
    seen = msgspec.structs.replace(seen, jobs={}, damaged=frozenset({paths.job(J)}))
    moved = predicted(seen, assignment_ops(msgspec.structs.replace(seen, supervisors=SUPERVISORS)))

    ended = msgspec.structs.replace(seen, damaged=frozenset({paths.bundle(BundleId(J))}))

    assert [] == assignment_ops(seen)
    assert seen.assignments[H1].record.workers == moved.assignments[H2].record.workers
    assert () == predicted(ended, assignment_ops(ended)).assignments[H1].record.workers


@pytest.mark.parametrize("room", [0, 4_000])
def test_bundles_of_a_host_leave_less_room_for_workers(room: int) -> None:
    """If this fails, workers are added to an assignment that can't be written any more."""
    many = [f"{n:064}" for n in range((ASSIGNMENT_BYTES - room) // 67)]
    seen = snapshot(
        supervisors=[msgspec.structs.replace(supervisor(H1), slots=100)],
        assigned={H1: many},
        jobs=[with_workers(job("j", ["b"]), 100)],
    )
    given = [op for op in assignment_ops(seen) if isinstance(op, Set)]
    workers = [len(decode(op.data, AssignmentRecord, path=op.path).workers) for op in given]

    assert all(len(op.data) <= ASSIGNMENT_BYTES for op in given)
    assert ([] if room == 0 else [room // WORKER_BYTES]) == [pytest.approx(n, abs=1) for n in workers]


@pytest.mark.parametrize("how", ["silent", "draining", "gone"])
def test_until_it_has_settled_a_leader_gives_nothing_to_a_host_that_takes_no_part(how: str) -> None:
    """D17: a new leader would place workers on hosts that are drained, silent or gone."""
    seen = running(3, on={H1: (0,), H2: (1,)}, up=("h2",) if how == "gone" else ("h1", "h2"))
    if how == "draining":
        seen = predicted(seen, drain_ops(seen, H1, True))
    ops = assignment_ops(seen, settled=False, silent=[H1] if how == "silent" else ())

    assert {"h1": (0,), "h2": (1, 2)} == placed(ops, seen)


def test_a_host_that_rests_and_has_no_assignment_gets_none() -> None:
    """If this fails, the assignment that could not be written is written at once again."""
    seen = running(1, on={}, up=("h1",))
    assert [] == assignment_ops(seen, resting={paths.assignment(H1)})


def test_an_event_that_changes_nothing_moves_nobody() -> None:
    """If this fails, the same rebalance is done again by each leader that hears of it."""
    seen = running(2, on={H1: (0, 1), H2: ()}, up=("h1", "h2"))
    pending = Pending(step=PendingStep.REBALANCE, due=10.0, workers=2)
    seen = changed(seen, status=JobStatus.REBALANCING, resume=JobStatus.ACTIVE, pending=pending)

    assert [] == ops_of(seen, Happened(J, Due(9.0)))


def test_a_drained_host_that_is_gone_stays_drained() -> None:
    """If this fails, a host that was drained for good gets workers when it comes back."""
    seen = running(0, on={H1: ()}, up=())
    seen = predicted(seen, drain_ops(seen, H1, True))

    assert [] == cleanup_ops(msgspec.structs.replace(seen, jobs={}), 1e9, 1.0)
