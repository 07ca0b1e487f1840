"""Decides how many masters must hold a job's bundles before it runs, and how long it waits.

Pure.

Always: the job's own setting overrides those of its bundles and of the cluster.
"""

from __future__ import annotations

from torrentdist.cluster.records.snapshot import ClusterSnapshot, JobEntry
from torrentdist.model.jobs.job import Replication
from torrentdist.model.records import JobRecord, JobStatus
from torrentdist.model.wording import counted


def lacking(snapshot: ClusterSnapshot, job: JobRecord) -> str:
    """Says which bundle of the job, dependencies included, has too few holders; empty if none has
    (A6)."""
    for bundle in job.needs:
        entry = snapshot.bundles.get(bundle)
        if entry is None:
            return f"bundle {bundle} is not there"
        here, wanted = len(snapshot.holders(bundle)), _of(job).min_count or entry.record.min_replicas
        if here < wanted:
            return f"bundle {bundle} has {here} of {counted(wanted, 'replica')}"
    return ""


def wait_ends(entry: JobEntry, max_wait_secs: float) -> float | None:
    """Returns the time, by ZooKeeper's clock, at which the job stops waiting. None: it waits for
    ever, or not at all.

    `max_wait_secs`: the cluster's setting.
    """
    if entry.record.status is not JobStatus.REPLICATING:
        return None
    own = _of(entry.record).max_wait_secs
    secs = max_wait_secs if own is None else own
    return None if secs < 0 else entry.mtime + secs


def _of(job: JobRecord) -> Replication:
    return Replication() if job.spec is None else job.spec.replication
