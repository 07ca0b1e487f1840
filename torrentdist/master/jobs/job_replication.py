"""How many masters must hold a job's bundles before it runs, and for how long that is waited for.
Pure.

Always holds: what a job says of itself stands over what its bundles were uploaded with and over the
cluster's settings.
"""

from __future__ import annotations

from torrentdist.cluster.records.snapshot import ClusterSnapshot, JobEntry
from torrentdist.model.jobs.job import Replication
from torrentdist.model.records import JobRecord, JobStatus
from torrentdist.model.wording import counted


def lacking(snapshot: ClusterSnapshot, job: JobRecord) -> str:
    """Which of its bundles, dependencies too, has fewer holders than it wants, in words; empty if
    none has (A6)."""
    for bundle in job.needs:
        entry = snapshot.bundles.get(bundle)
        if entry is None:
            return f"bundle {bundle} is not there"
        here, wanted = len(snapshot.holders(bundle)), _of(job).min_count or entry.record.min_replicas
        if here < wanted:
            return f"bundle {bundle} has {here} of {counted(wanted, 'replica')}"
    return ""


def wait_ends(entry: JobEntry, max_wait_secs: float) -> float | None:
    """The moment, by ZooKeeper's clock, at which it goes on with what there is; None: never, or it
    waits for nothing.

    `max_wait_secs`: of the cluster.
    """
    if entry.record.status is not JobStatus.REPLICATING:
        return None
    own = _of(entry.record).max_wait_secs
    secs = max_wait_secs if own is None else own
    return None if secs < 0 else entry.mtime + secs


def _of(job: JobRecord) -> Replication:
    return Replication() if job.spec is None else job.spec.replication
