"""Predicts the cluster's records as they will be after a transaction, so that the transaction can
contain the answer that shows them.

Pure.
Always: a section that the operations do not write stays the same object.
Never: judge whether the transaction will succeed.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from torrentdist.cluster import paths
from torrentdist.cluster.records import snapshot as entries
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Check, Delete, Op
from torrentdist.model.access.host_record import HostRecord, InvitationRecord
from torrentdist.model.access.token_messages import TokenRecord
from torrentdist.model.policies.distribution_record import DistributionRecord
from torrentdist.model.policies.retention_record import RetentionRecord
from torrentdist.model.records import AssignmentRecord, BundleRecord, JobRecord, decode

_SECTIONS: Final[dict[str, tuple[str, type[Any], type[Any], dict[str, Any]]]] = {
    paths.BUNDLES: ("bundles", BundleRecord, entries.BundleEntry, {"mtime": 0.0, "replicas": {}}),
    paths.ASSIGNMENTS: ("assignments", AssignmentRecord, entries.AssignmentEntry, {}),
    paths.JOBS: ("jobs", JobRecord, entries.JobEntry, {"mtime": 0.0}),
    paths.TOKENS: ("tokens", TokenRecord, entries.TokenEntry, {}),
    paths.HOSTS: ("hosts", HostRecord, entries.HostEntry, {}),
    paths.INVITATIONS: ("invitations", InvitationRecord, entries.InvitationEntry, {}),
    paths.DISTRIBUTIONS: ("distributions", DistributionRecord, entries.DistributionEntry, {}),
    paths.RETENTION: ("retention", RetentionRecord, entries.RetentionEntry, {}),
}
"""For each section: its name in a snapshot, its record, its entry, and what a new entry has."""
_FORGOTTEN: Final = (paths.DISTRIBUTIONS, paths.RETENTION)
"""Sections in which a deletion is predicted. Elsewhere an answer still shows what it deletes."""


def predicted(snapshot: ClusterSnapshot, ops: Sequence[Op]) -> ClusterSnapshot:
    """Returns the snapshot with the records that `ops` write or delete."""
    changed: dict[str, Any] = {}
    for op in ops:
        parent, name = paths.parent(op.path), paths.name(op.path)
        if parent not in _SECTIONS or isinstance(op, Check) or (isinstance(op, Delete) and parent not in _FORGOTTEN):
            continue
        section, kind, entry, fresh = _SECTIONS[parent]
        if section not in changed:
            changed[section] = {**getattr(snapshot, section)}
        found = changed[section]
        old = found.get(name)
        if not isinstance(op, Delete):
            record = decode(op.data, kind, path=op.path)
            found[name] = (
                entry(record, version=0, **fresh)
                if old is None
                else msgspec.structs.replace(old, record=record, version=old.version + 1)
            )
        else:
            found.pop(name, None)
    return msgspec.structs.replace(snapshot, **changed) if changed else snapshot
