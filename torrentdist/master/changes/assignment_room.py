"""Bounds a host's assignment: how large it may grow by workers and by bundles, and says why it can
name no more. Pure.

Always: an assignment that these bounds allow fits into one write with everything that belongs to
the change.
"""

from torrentdist.cluster import paths
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.model.ids import SupervisorId
from torrentdist.model.records import AssignmentRecord, encode
from torrentdist.model.wire.fleet_messages import DAMAGED, NO_ROOM

ASSIGNMENT_BYTES = 500_000
"""Largest assignment to which workers are added."""
MOST_ASSIGNMENT_BYTES = 800_000
"""Largest assignment that a distribution makes. One that is larger could not be written."""
WORKER_BYTES = 250
BUNDLE_BYTES = 500
"""Most bytes that one worker, and that one bundle with its terms, takes of it."""


def is_surely_below(record: AssignmentRecord, workers: int, most: int) -> bool:
    """Whether a record with so many workers has less than `most` bytes, by a quick estimate."""
    return workers * WORKER_BYTES + len(record.bundles) * BUNDLE_BYTES < most


def is_full(snapshot: ClusterSnapshot, host: SupervisorId) -> bool:
    """Whether a host's assignment has no room for another bundle."""
    entry = snapshot.assignments.get(host)
    if entry is None or is_surely_below(entry.record, len(entry.record.workers) + 2, MOST_ASSIGNMENT_BYTES):
        return False
    return len(encode(entry.record)) + BUNDLE_BYTES > MOST_ASSIGNMENT_BYTES


def why_untold(snapshot: ClusterSnapshot, host: SupervisorId) -> str:
    """Returns why a host's assignment can name no other bundle; empty if it can. A damaged one is
    there, and is not overwritten."""
    if paths.assignment(host) in snapshot.damaged:
        return DAMAGED
    return NO_ROOM if is_full(snapshot, host) else ""
