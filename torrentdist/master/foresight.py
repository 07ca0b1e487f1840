"""What the cluster's records will be once a transaction is done: so that its answer can be part of it.

Pure. Must not do: judge whether the transaction will succeed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from torrentdist.cluster import paths
from torrentdist.cluster.operations import Create, Op, Set
from torrentdist.cluster.snapshot import AssignmentEntry, BundleEntry, ClusterSnapshot
from torrentdist.model.ids import SupervisorId
from torrentdist.model.records import AssignmentRecord, BundleRecord, decode


def foreseen(snapshot: ClusterSnapshot, ops: Sequence[Op]) -> ClusterSnapshot:
    """The snapshot with the bundle and assignment records that `ops` write; everything else stays."""
    bundles, assignments = dict(snapshot.bundles), dict(snapshot.assignments)
    for op in ops:
        match op:
            case Create(path=path, data=data) | Set(path=path, data=data):
                if paths.parent(path) == paths.BUNDLES:
                    record = decode(data, BundleRecord, path=path)
                    bundles[record.id] = _bundle(bundles.get(record.id), record)
                elif paths.parent(path) == paths.ASSIGNMENTS:
                    id_ = SupervisorId(paths.name(path))
                    assigned = decode(data, AssignmentRecord, path=path)
                    assignments[id_] = _assignment(assignments.get(id_), assigned)
    return dataclasses.replace(snapshot, bundles=bundles, assignments=assignments)


def _bundle(old: BundleEntry | None, record: BundleRecord) -> BundleEntry:
    if old is None:
        return BundleEntry(record, version=0, mtime=0.0, replicas={})
    return dataclasses.replace(old, record=record, version=old.version + 1)


def _assignment(old: AssignmentEntry | None, record: AssignmentRecord) -> AssignmentEntry:
    return AssignmentEntry(record, version=0 if old is None else old.version + 1)
