"""Records of one job whose workers have places, for tests of decisions."""

from __future__ import annotations

from typing import Any

import msgspec
from records_of import bundle, job, snapshot, supervisor

from torrentdist.cluster.records.snapshot import ClusterSnapshot, JobEntry
from torrentdist.cluster.session.znode_operations import Op
from torrentdist.model.ids import JobId, SupervisorId
from torrentdist.model.records import (
    AssignmentRecord,
    WorkerAssignment,
    decode,
)

J = JobId("j")
H1, H2 = SupervisorId("h1"), SupervisorId("h2")


def with_workers(entry: JobEntry, workers: int) -> JobEntry:
    return msgspec.structs.replace(entry, record=msgspec.structs.replace(entry.record, workers=workers))


def placed(ops: list[Op], before: ClusterSnapshot) -> dict[str, tuple[int, ...]]:
    result = {id_: tuple(w.worker for w in e.record.workers) for id_, e in before.assignments.items()}
    for op in ops:
        record = decode(op.data, AssignmentRecord, path=op.path)  # type: ignore[union-attr]
        result[SupervisorId(op.path.rpartition("/")[2])] = tuple(w.worker for w in record.workers)
    return {str(id_): workers for id_, workers in result.items()}


def running(workers: int, *, on: dict[SupervisorId, tuple[int, ...]], up: tuple[str, ...]) -> ClusterSnapshot:
    seen = snapshot(
        [bundle("b")],
        supervisors=[msgspec.structs.replace(supervisor(h), slots=4) for h in up],
        assigned={id_: [] for id_ in on},
        jobs=[with_workers(job("j", ["b"]), workers)],
    )
    assignments = {
        id_: msgspec.structs.replace(
            entry,
            record=msgspec.structs.replace(
                entry.record, workers=tuple(WorkerAssignment(job=J, worker=k, of=workers) for k in on[id_])
            ),
        )
        for id_, entry in seen.assignments.items()
    }
    return msgspec.structs.replace(seen, assignments=assignments)


def changed(seen: ClusterSnapshot, **changes: Any) -> ClusterSnapshot:
    record = msgspec.structs.replace(seen.jobs[J].record, **changes)
    return msgspec.structs.replace(seen, jobs={J: msgspec.structs.replace(seen.jobs[J], record=record)})
