"""Decides the changes of jobs that users ask for, and for which copies a job waits. Pure.

Always: lifecycle.py says what a user may ask of a job, and the result. A name belongs to one live
job at a time. A job's own setting for copies overrides those of its bundles and of the cluster.
Never: place workers. job_duties.py does.
"""

from collections.abc import Sequence

import msgspec

from torrentdist.cluster import paths
from torrentdist.cluster.records.snapshot import ClusterSnapshot, JobEntry
from torrentdist.cluster.session.znode_operations import Create, Delete, Op, Set
from torrentdist.master.bundles.bundle_operations import check_can_sign
from torrentdist.master.bundles.bundle_views import not_found
from torrentdist.master.jobs.lifecycle import Event, Gone, Rebalance, apply
from torrentdist.model.access.envelope import Envelope
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, JobId
from torrentdist.model.jobs.job import JobSpec, Replication
from torrentdist.model.jobs.job_overrides import with_overrides
from torrentdist.model.records import BundleState, JobRecord, JobStatus, encode
from torrentdist.model.wording import counted
from torrentdist.security.signing.signatures import JobStatement, SignedContent, check_job, parse_statement


def find_job(snapshot: ClusterSnapshot, wanted: str) -> JobEntry:
    """Returns the job with this id, else the live job with this name, else the newest job that had
    it."""
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


class NewJob(msgspec.Struct, frozen=True):
    """A checked job that is to be recorded."""

    id: JobId
    bundle: BundleId
    spec: JobSpec
    activate: bool = True
    signature: Envelope | None = None


def submit_ops(snapshot: ClusterSnapshot, job: NewJob, now: float) -> Sequence[Op]:
    """Returns the creation of a job's record. Raises an error if its id or name is taken, a bundle
    is missing, or its signature is about something else."""
    spec = job.spec
    if job.id in snapshot.jobs:
        raise TorrentdistError("job_exists", id=job.id)
    for other in snapshot.jobs.values():
        if other.record.name == spec.name and other.record.live:
            raise TorrentdistError("job_exists", id=spec.name)
    for needed in (job.bundle, *spec.dependencies):
        entry = snapshot.bundles.get(needed)
        if entry is None or entry.record.state in (BundleState.REMOVED, BundleState.UPLOADING):
            raise not_found(needed, entry)  # an upload that never ends would bar every master
        if entry.record.state is BundleState.LOST:
            raise TorrentdistError("bundle_lost", id=needed)
    if job.signature is not None:
        check_can_sign(snapshot)
        _check_statement(snapshot, job, job.signature)
    record = JobRecord(
        id=job.id,
        name=spec.name,
        status=JobStatus.SUBMITTED,
        bundle=job.bundle,
        spec=spec,
        workers=spec.workers,
        activate=job.activate,
        created_at=now,
        dependencies=spec.dependencies,
        signature=job.signature,
    )
    return [Create(paths.job(job.id), encode(record))]


def _check_statement(snapshot: ClusterSnapshot, job: NewJob, signature: Envelope) -> None:
    """Refuses a signature that no host would accept, as far as this can be seen without keys."""
    what = f"job {job.id!r}"
    said = parse_statement(signature, JobStatement, what)
    digests = {id_: snapshot.bundles[id_].record.digest for id_ in (job.bundle, *job.spec.dependencies)}
    detail = check_job(said, job.id, SignedContent(job.bundle, digests[job.bundle]), digests, said.cluster)
    if detail:
        raise TorrentdistError("bad_signature", what=what, detail=detail)


def event_ops(snapshot: ClusterSnapshot, wanted: str, event: Event) -> Sequence[Op]:
    """Returns the change that an event makes to a job, if any."""
    entry = find_job(snapshot, wanted)
    if isinstance(event, Rebalance) and event.workers > 1 and entry.record.spec is not None:
        with_overrides(entry.record.spec, None, event.workers, {})  # refuses what the job cannot have
    changed = apply(entry.record, event)
    path = paths.job(entry.record.id)
    if isinstance(changed, Gone):
        return [Delete(path, entry.version)]
    return [] if changed is entry.record or changed == entry.record else [Set(path, encode(changed), entry.version)]


def lacking(snapshot: ClusterSnapshot, job: JobRecord) -> str:
    """Says which bundle of the job, dependencies included, has too few holders; empty if none has
    (A6)."""
    for bundle in job.needs:
        entry = snapshot.bundles.get(bundle)
        if entry is None:
            return f"bundle {bundle} is not there"
        here, wanted = len(snapshot.holders(bundle)), _replication_of(job).min_count or entry.record.min_replicas
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
    own = _replication_of(entry.record).max_wait_secs
    secs = max_wait_secs if own is None else own
    return None if secs < 0 else entry.mtime + secs


def _replication_of(job: JobRecord) -> Replication:
    return Replication() if job.spec is None else job.spec.replication
