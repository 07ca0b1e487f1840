"""Decides which grants of barriers to make, to move and to take back.

A grant is the parent of a worker's barrier. The leader makes it for the host that the worker is
assigned to, and only that host can put the barrier below it.
Always: a worker has one grant at most. Moving or removing one is refused by ZooKeeper while the
barrier below it exists, so no two hosts hold a barrier.
Pure: no I/O and no clock.
"""

from collections.abc import Collection, Iterator, Mapping

import msgspec

from torrentdist.cluster import paths
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Create, Delete, Op
from torrentdist.model.ids import SupervisorId


class GrantChange(msgspec.Struct, frozen=True):
    resource: str
    before: str | None
    """The user that has the grant."""
    after: str | None
    """The user that gets it."""

    def ops(self) -> list[Op]:
        path = grant_path(self.resource)
        ops: list[Op] = [] if self.before is None else [Delete(path)]
        return ops if self.after is None else [*ops, Create(path, self.after.encode())]


def grant_path(resource: str) -> str:
    return paths.JOB_GROUP.barrier(resource)


def wanted_of(snapshot: ClusterSnapshot, host: SupervisorId) -> dict[str, str]:
    """Returns the workers of a host that need grants, with its user. A host without a place needs
    none."""
    entry, user = snapshot.assignments.get(host), snapshot.places.get(host)
    if entry is None or not user:
        return {}
    return {paths.worker_resource(worker.job, worker.worker): user for worker in entry.record.workers}


def grant_changes(
    resources: Collection[str], wanted: Mapping[str, str], granted: Mapping[str, str]
) -> Iterator[GrantChange]:
    """Yields what to change about these resources."""
    for resource in sorted(resources):
        before, after = granted.get(resource), wanted.get(resource)
        if before != after:
            yield GrantChange(resource, before, after)
