"""Predicts the cluster's records as they will be after a transaction, so that the transaction can
contain the answer that shows them.

Pure.
Always: a section that the operations do not write stays the same object.
Never: judge whether the transaction will succeed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from torrentdist.cluster import paths
from torrentdist.cluster.records.snapshot import (
    AssignmentEntry,
    BundleEntry,
    ClusterSnapshot,
    DistributionEntry,
    HostEntry,
    InvitationEntry,
    JobEntry,
    RetentionEntry,
    TokenEntry,
)
from torrentdist.cluster.session.znode_operations import Check, Create, Delete, Op, Set
from torrentdist.model.access.host_record import HostRecord, InvitationRecord
from torrentdist.model.access.token_record import TokenRecord
from torrentdist.model.ids import BundleId, JobId, SupervisorId
from torrentdist.model.policies.distribution_record import DistributionRecord
from torrentdist.model.policies.retention_record import RetentionRecord
from torrentdist.model.records import AssignmentRecord, BundleRecord, JobRecord, decode


def predicted(snapshot: ClusterSnapshot, ops: Sequence[Op]) -> ClusterSnapshot:
    """Returns the snapshot with the bundle, assignment and job records that `ops` write."""
    bundles: dict[BundleId, BundleEntry] = {}
    assignments: dict[SupervisorId, AssignmentEntry] = {}
    jobs: dict[JobId, JobEntry] = {}
    tokens: dict[str, TokenEntry] = {}
    hosts: dict[str, HostEntry] = {}
    invitations: dict[str, InvitationEntry] = {}
    for op in ops:
        match op:
            case Create(path=path, data=data) | Set(path=path, data=data):
                if paths.parent(path) == paths.BUNDLES:
                    record = decode(data, BundleRecord, path=path)
                    bundles[record.id] = _bundle(bundles.get(record.id) or snapshot.bundles.get(record.id), record)
                elif paths.parent(path) == paths.ASSIGNMENTS:
                    id_ = SupervisorId(paths.name(path))
                    assigned = decode(data, AssignmentRecord, path=path)
                    assignments[id_] = _assignment(assignments.get(id_) or snapshot.assignments.get(id_), assigned)
                elif paths.parent(path) == paths.JOBS:
                    job = decode(data, JobRecord, path=path)
                    known = jobs.get(job.id) or snapshot.jobs.get(job.id)
                    jobs[job.id] = JobEntry(job, version=known.version + 1 if known else 0, mtime=0.0)
                elif paths.parent(path) == paths.TOKENS:
                    token = decode(data, TokenRecord, path=path)
                    before = tokens.get(token.name) or snapshot.tokens.get(token.name)
                    tokens[token.name] = TokenEntry(token, version=before.version + 1 if before else 0)
                elif paths.parent(path) == paths.HOSTS:
                    host = decode(data, HostRecord, path=path)
                    hosts[host.id] = HostEntry(host, version=0)
                elif paths.parent(path) == paths.INVITATIONS:
                    invitation = decode(data, InvitationRecord, path=path)
                    invitations[invitation.id] = InvitationEntry(invitation, version=0)
    return dataclasses.replace(
        _with_policies(snapshot, ops),
        bundles={**snapshot.bundles, **bundles} if bundles else snapshot.bundles,
        assignments={**snapshot.assignments, **assignments} if assignments else snapshot.assignments,
        jobs={**snapshot.jobs, **jobs} if jobs else snapshot.jobs,
        tokens={**snapshot.tokens, **tokens} if tokens else snapshot.tokens,
        hosts={**snapshot.hosts, **hosts} if hosts else snapshot.hosts,
        invitations={**snapshot.invitations, **invitations} if invitations else snapshot.invitations,
    )


def _with_policies(snapshot: ClusterSnapshot, ops: Sequence[Op]) -> ClusterSnapshot:
    """Returns the snapshot with the distributions and rules that `ops` write or delete."""
    distributions, retention = {**snapshot.distributions}, {**snapshot.retention}
    found = False
    for op in ops:
        parent, name = paths.parent(op.path), paths.name(op.path)
        if isinstance(op, Check) or parent not in (paths.DISTRIBUTIONS, paths.RETENTION):
            continue
        found = True
        if isinstance(op, Delete):
            distributions.pop(BundleId(name), None) if parent == paths.DISTRIBUTIONS else retention.pop(name, None)
        elif parent == paths.DISTRIBUTIONS:
            record = decode(op.data, DistributionRecord, path=op.path)
            told = distributions.get(record.bundle)
            distributions[record.bundle] = DistributionEntry(record, version=told.version + 1 if told else 0)
        else:
            known = retention.get(name)
            rule = decode(op.data, RetentionRecord, path=op.path)
            retention[name] = RetentionEntry(rule, version=known.version + 1 if known else 0)
    return dataclasses.replace(snapshot, distributions=distributions, retention=retention) if found else snapshot


def _bundle(old: BundleEntry | None, record: BundleRecord) -> BundleEntry:
    if old is None:
        return BundleEntry(record, version=0, mtime=0.0, replicas={})
    return dataclasses.replace(old, record=record, version=old.version + 1)


def _assignment(old: AssignmentEntry | None, record: AssignmentRecord) -> AssignmentEntry:
    return AssignmentEntry(record, version=0 if old is None else old.version + 1)
