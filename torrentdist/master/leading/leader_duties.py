"""What the leader owes the records, as a pure function: state, swarms and ZooKeeper's time in,
changes out.

Always holds: a bundle becomes available only by a live holder's replica record; an upload is
forgotten only when nobody has been in its swarm for long and no copy exists; a tombstone goes only
after its time, when no registered master still has to act on it. Ages are ZooKeeper's times (the
mtime of writes), never a host's clock.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.model.configuration.config import ReplicationConfig
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.records import BundleState


@dataclass(frozen=True)
class MarkAvailable:
    bundle: BundleId


@dataclass(frozen=True)
class ForgetUpload:
    bundle: BundleId


@dataclass(frozen=True)
class TrimTombstone:
    bundle: BundleId


@dataclass(frozen=True)
class MarkLost:
    bundle: BundleId


UNFINISHED = (BundleState.UPLOADING, BundleState.LOST)
"""States that a change anywhere may end. A tombstone's end takes time, and only one that is absent
becomes lost."""

Duty = MarkAvailable | ForgetUpload | TrimTombstone | MarkLost


def duties(
    snapshot: ClusterSnapshot,
    *,
    active: Collection[Digest],
    lost: Collection[BundleId],
    led_for: float,
    server_now: float,
    config: ReplicationConfig,
    among: Collection[BundleId] | None = None,
) -> list[Duty]:
    """`among`: the bundles to look at, if not all. `active`: digests that some peer is in the swarm
    of. `lost`: bundles that nobody has had for too long. `led_for`: a new leader has not heard the
    peers yet."""
    due: list[Duty] = []
    for bundle in snapshot.bundles if among is None else sorted(among):
        entry = snapshot.bundles[bundle]
        age = server_now - entry.mtime
        state = entry.record.state
        if state in (BundleState.UPLOADING, BundleState.LOST) and snapshot.holders(bundle):
            due.append(MarkAvailable(bundle))
        elif state is BundleState.UPLOADING:
            silent = entry.record.digest not in active and led_for > config.abandon_secs
            if silent and age > config.abandon_secs and not entry.replicas:
                due.append(ForgetUpload(bundle))
        elif state is BundleState.AVAILABLE and bundle in lost and not snapshot.holders(bundle):
            due.append(MarkLost(bundle))
        elif state is BundleState.REMOVED:
            unseen = any(master in snapshot.masters for master in entry.replicas)
            if age > config.tombstone_secs and not unseen:
                due.append(TrimTombstone(bundle))
    return due
