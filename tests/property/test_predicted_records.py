"""An answer is written before the change that it describes, so the prediction has to match the
change."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from torrentdist.cluster import paths
from torrentdist.cluster.records.snapshot import ClusterSnapshot, ReadTree, updated
from torrentdist.cluster.session.znode_operations import Create, Op, Set, Stat
from torrentdist.master.changes.predicted_records import predicted
from torrentdist.model.ids import BundleId, Digest, MasterId, StoreId, SupervisorId
from torrentdist.model.records import AssignmentRecord, BundleRecord, BundleState, ReplicaRecord, encode

BUNDLES = [BundleId(name) for name in ("a", "b", "c")]
SUPERVISORS = [SupervisorId(name) for name in ("s1", "s2")]


@st.composite
def bundle_records(draw: st.DrawFn) -> BundleRecord:
    return BundleRecord(
        id=draw(st.sampled_from(BUNDLES)),
        digest=Digest(draw(st.sampled_from("ab")) * 64),
        size=draw(st.integers(0, 9)),
        files=1,
        state=draw(st.sampled_from(BundleState)),
        min_replicas=draw(st.integers(1, 3)),
        created_at=1.0,
        pinned=draw(st.booleans()),
    )


@st.composite
def writes(draw: st.DrawFn) -> tuple[str, bytes]:
    """Draws a record and its path. Request records are written along with the others, and are in no
    snapshot."""
    record = draw(bundle_records())
    assigned = AssignmentRecord(bundles=tuple(draw(st.lists(st.sampled_from(BUNDLES), max_size=2))))
    replica = ReplicaRecord(master=MasterId("m"), store=StoreId("s"), digest=record.digest)
    return draw(
        st.sampled_from(
            [
                (paths.bundle(record.id), encode(record)),
                (paths.assignment(draw(st.sampled_from(SUPERVISORS))), encode(assigned)),
                (f"{paths.REQUESTS}/ab/req-1", encode(replica)),
            ]
        )
    )


def as_ops(tree: ReadTree, written: Sequence[tuple[str, bytes]]) -> list[Op]:
    return [
        Set(path, data, tree.nodes[path][1].version) if path in tree.nodes else Create(path, data)
        for path, data in dict(written).items()
    ]


def applied(tree: ReadTree, ops: Sequence[Op]) -> set[str]:
    """Applies the operations as ZooKeeper would, and returns the paths that they touched."""
    touched = set()
    for op in ops:
        assert isinstance(op, Create | Set)
        version = tree.nodes[op.path][1].version + 1 if op.path in tree.nodes else 0
        stat = Stat(version=version, ephemeral_owner=0, mtime=0.0, created_zxid=1, modified_zxid=1)
        tree.nodes[op.path] = (op.data, stat)
        touched.add(op.path)
    return touched


def seen_after(before: ClusterSnapshot, tree: ReadTree, touched: set[str]) -> ClusterSnapshot:
    return updated(before, tree, touched, lambda path, error: None)


@given(st.lists(writes()), st.lists(writes()))
def test_what_is_predicted_is_what_the_mirror_shows(
    first: list[tuple[str, bytes]], second: list[tuple[str, bytes]]
) -> None:
    """B7: if this failed, the answer that is kept for retries would describe a change that was
    never made."""
    tree = ReadTree()
    before = seen_after(ClusterSnapshot(), tree, applied(tree, as_ops(tree, first)))
    ops = as_ops(tree, second)
    guess = predicted(before, ops)
    after = seen_after(before, tree, applied(tree, ops))

    assert msgspec.structs.replace(after, version=0, recent=()) == msgspec.structs.replace(guess, version=0, recent=())
