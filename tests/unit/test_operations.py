"""Changes of bundles as decisions: which records they write, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
from records_of import bundle, job, snapshot, supervisor

from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.cluster.session.znode_operations import Create, Op, Set
from torrentdist.master.bundles.bundle_operations import removal_ops, upload_ops
from torrentdist.master.changes.predicted_records import predicted
from torrentdist.master.policies.distribution_orders import DistributionOrder, order_ops, targets
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, SupervisorId
from torrentdist.model.policies.distribution_record import DistributionRecord, DistributionState
from torrentdist.model.records import AssignmentRecord, BundleRecord, BundleState, JobStatus, decode

A = BundleId("a")


@pytest.fixture
def meta(tmp_path: Path) -> Metafile:
    (tmp_path / "file").write_bytes(b"content")
    return make_metafile(tmp_path / "file")


def written(op: Op) -> BundleRecord:
    assert isinstance(op, Create | Set)
    return decode(op.data, BundleRecord, path=op.path)


def test_a_new_upload_creates_the_record(meta: Metafile) -> None:
    """A20: an upload without a record could not be found by the standbys."""
    (op,) = upload_ops(snapshot(), A, meta, 2, 0.0)

    assert (BundleState.UPLOADING, 2, meta.digest) == (
        written(op).state,
        written(op).min_replicas,
        written(op).digest,
    )


def test_other_content_under_the_id_is_a_conflict(meta: Metafile) -> None:
    """A28: an id would stand for two contents, and every copy of it would be doubtful, removed or
    not."""
    for state in BundleState:
        with pytest.raises(TorrentdistError) as caught:
            upload_ops(snapshot([bundle("a", state=state)]), A, meta, 2, 0.0)

        assert "conflict" == caught.value.code


def test_a_removed_id_is_free_for_the_same_content() -> None:
    """A28: a removal by mistake could not be undone."""
    removed = bundle("a", state=BundleState.REMOVED)

    class Same:
        digest, size, files = removed.record.digest, 1, ()

    (op,) = upload_ops(snapshot([removed]), A, Same(), 1, 0.0)  # type: ignore[arg-type]

    assert BundleState.UPLOADING is written(op).state


@pytest.mark.parametrize("state", [BundleState.LOST, BundleState.AVAILABLE])
@pytest.mark.parametrize("holders", [[], ["gone"]])
def test_what_nobody_holds_is_uploaded_with_the_minimum_of_today(state: BundleState, holders: list[str]) -> None:
    """A17: with fewer masters left than the old minimum, the repeated upload would wait for
    ever."""
    kept = bundle("a", state=state, holders=holders, min_replicas=3)

    class Same:
        digest, size, files = kept.record.digest, 1, ()

    (op,) = upload_ops(snapshot([kept]), A, Same(), 1, 0.0)  # type: ignore[arg-type]

    assert (1, state) == (written(op).min_replicas, written(op).state)


def test_an_upload_does_not_lower_the_minimum_of_what_somebody_holds() -> None:
    """A17: a second upload with a lower minimum would weaken the promise of the first one."""
    kept = bundle("a", holders=["m1"], min_replicas=3)

    class Same:
        digest, size, files = kept.record.digest, 1, ()

    assert [] == upload_ops(snapshot([kept]), A, Same(), 1, 0.0)  # type: ignore[arg-type]
    fewer = upload_ops(snapshot([kept], masters=["m1", "m2"]), A, Same(), 1, 0.0)  # type: ignore[arg-type]
    assert 2 == written(fewer[0]).min_replicas, "it would wait for a master that is gone"


def test_a_pinned_bundle_and_one_that_a_job_needs_are_not_removed() -> None:
    """A28: a live job would lose its code."""
    pinned = snapshot([bundle("a", pinned=True)])
    used = snapshot([bundle("a")], jobs=[job("etl", ["b", "a"])])
    ended = snapshot([bundle("a")], jobs=[job("etl", ["a"], JobStatus.FINISHED)])

    for taken, why in ((pinned, "pinned"), (used, "job etl")):
        with pytest.raises(TorrentdistError) as caught:
            removal_ops(taken, A)

        assert ("in_use", True) == (caught.value.code, why in caught.value.message)
    assert BundleState.REMOVED is written(removal_ops(ended, A)[0]).state


def test_a_removal_ends_the_assignments_that_name_the_bundle() -> None:
    """A16: a supervisor would go on asking for a removed bundle."""
    seen = snapshot([bundle("a")], supervisors=[supervisor("s1")], assigned={"s1": ["a", "b"], "s2": ["b"]})
    assignment, _ = removal_ops(seen, A)
    assert isinstance(assignment, Set)
    record = decode(assignment.data, AssignmentRecord, path="")

    assert (("b",), 1, 3) == (record.bundles, record.generation, assignment.version)


@pytest.mark.parametrize("state", [DistributionState.RUNNING, DistributionState.STANDING])
def test_a_removal_ends_the_distribution_before_it_tells_a_host(state: DistributionState) -> None:
    """A16: the order would tell the hosts of a large fleet as fast as they are told to give up, and
    the removal would never end."""
    order = DistributionRecord(bundle=A, state=state, everywhere=True)
    seen = snapshot([bundle("a")], supervisors=[supervisor("s1")], assigned={"s1": ["a"]}, distributions=[order])
    after = predicted(seen, removal_ops(seen, A)[:1])
    again = [op.path for op in removal_ops(after, A)]

    assert after.distributions[A].record.is_over
    assert "its bundle is removed" == after.distributions[A].record.reason
    assert ["/assignments/s1", "/code-distributor/a"] == again


def test_supervisors_are_chosen_by_name_or_by_all_labels() -> None:
    """A14: a command for h10 would reach h1, or a host with only half of the labels."""
    seen = snapshot(supervisors=[supervisor("h1", rack="a"), supervisor("h10", rack="a", gpu="yes")])

    assert ["h1"] == targets(seen, [SupervisorId("h1")], {})
    assert ["h10"] == targets(seen, None, {"rack": "a", "gpu": "yes"})
    with pytest.raises(TorrentdistError):
        targets(seen, [SupervisorId("h")], {})


def test_distributing_twice_writes_once() -> None:
    """A repeated command would make every supervisor look at an unchanged assignment."""
    seen = snapshot([bundle("a")], supervisors=[supervisor("s1"), supervisor("s2")], assigned={"s1": ["a"]})
    ops = order_ops(seen, DistributionOrder(A), 1.0)

    assert [(Create, "/distributions/a"), (Create, "/assignments/s2")] == [(type(op), op.path) for op in ops]


def test_an_unfinished_upload_is_not_distributed() -> None:
    """A20: hosts would wait for a bundle that may never come."""
    seen = snapshot([bundle("a", state=BundleState.UPLOADING)], supervisors=[supervisor("s1")])

    with pytest.raises(TorrentdistError) as caught:
        order_ops(seen, DistributionOrder(A), 1.0)

    assert "bundle_not_found" == caught.value.code
