"""The mutations of jobs, as decisions: records in, operations out. Pure.

Always holds: what a user may ask of a job, and what comes of it, is lifecycle.py's table; a name
belongs to one job at a time. Must not do: place workers; that is job_duties.py's.
"""

from __future__ import annotations

from collections.abc import Sequence

from torrentdist.cluster import paths
from torrentdist.cluster.records.snapshot import ClusterSnapshot, JobEntry
from torrentdist.cluster.session.znode_operations import Create, Delete, Op, Set
from torrentdist.master.bundles.bundle_views import not_found
from torrentdist.master.jobs.lifecycle import Event, Gone, Rebalance, apply
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, JobId
from torrentdist.model.jobs.job import JobSpec
from torrentdist.model.jobs.job_overrides import with_overrides
from torrentdist.model.records import BundleState, JobRecord, JobStatus, encode


def find_job(snapshot: ClusterSnapshot, wanted: str) -> JobEntry:
    """By id, else by the name of a job that is not over."""
    entry = snapshot.jobs.get(JobId(wanted))
    if entry is not None:
        return entry
    for job in snapshot.jobs.values():
        if job.record.name == wanted and job.record.live:
            return job
    ended = [job for job in snapshot.jobs.values() if job.record.name == wanted]
    if ended:
        return max(ended, key=lambda job: job.record.created_at)
    raise TorrentdistError("job_not_found", id=wanted)


def submit_ops(
    snapshot: ClusterSnapshot, job: JobId, bundle: BundleId, spec: JobSpec, now: float, *, activate: bool
) -> Sequence[Op]:
    """The record of a new job, if its name is free and its bundles are there."""
    for other in snapshot.jobs.values():
        if other.record.name == spec.name and other.record.live:
            raise TorrentdistError("job_exists", id=spec.name)
    for needed in (bundle, *spec.dependencies):
        entry = snapshot.bundles.get(needed)
        if entry is None or entry.record.state in (BundleState.REMOVED, BundleState.UPLOADING):
            raise not_found(needed, entry)  # an upload that never ends would bar every master
        if entry.record.state is BundleState.LOST:
            raise TorrentdistError("bundle_lost", id=needed)
    record = JobRecord(
        id=job,
        name=spec.name,
        status=JobStatus.SUBMITTED,
        bundle=bundle,
        spec=spec,
        workers=spec.workers,
        activate=activate,
        created_at=now,
        dependencies=spec.dependencies,
    )
    return [Create(paths.job(job), encode(record))]


def event_ops(snapshot: ClusterSnapshot, wanted: str, event: Event) -> Sequence[Op]:
    """What an event makes of the job; nothing if it changes nothing."""
    entry = find_job(snapshot, wanted)
    if isinstance(event, Rebalance) and event.workers > 1 and entry.record.spec is not None:
        with_overrides(entry.record.spec, None, event.workers, {})  # refuses what the job cannot have
    changed = apply(entry.record, event)
    path = paths.job(entry.record.id)
    if isinstance(changed, Gone):
        return [Delete(path, entry.version)]
    return [] if changed is entry.record or changed == entry.record else [Set(path, encode(changed), entry.version)]
