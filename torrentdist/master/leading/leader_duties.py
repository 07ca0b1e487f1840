"""Decides what the leader must change in the records of bundles. Pure.

Always: a bundle becomes available only by the replica record of a live holder. An upload is
forgotten only when no peer has been in its swarm for long and no copy exists. A tombstone is
deleted only after its time, and when no registered master must still act on it, nor a host that
has its content. Ages are by ZooKeeper's clock.
"""

from collections.abc import Collection

import msgspec

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.model.configuration.config import ReplicationConfig
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.records import BundleState


class Duty(msgspec.Struct, frozen=True):
    bundle: BundleId


class MarkAvailable(Duty, frozen=True): ...


class ForgetUpload(Duty, frozen=True): ...


class TrimTombstone(Duty, frozen=True): ...


class MarkLost(Duty, frozen=True): ...


LISTEN_SECS = 60.0
UNFINISHED = (BundleState.UPLOADING, BundleState.LOST)
"""States that a change of any record may end. A tombstone ends only by its age, and an available
bundle becomes lost only after it was absent for a while."""


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
    """Returns what is due.

    `among`: the bundles to look at; None: all. `active`: digests with a peer in their swarm, which
    uploads or still has what was removed.
    `lost`: bundles that were absent for too long. `led_for`: seconds since the election; a new
    leader has not heard the peers yet, and hears those that are there within LISTEN_SECS.
    """
    due: list[Duty] = []
    for bundle in snapshot.bundles if among is None else sorted(among):
        entry = snapshot.bundles[bundle]
        age = server_now - entry.mtime
        heard = led_for > min(LISTEN_SECS, config.abandon_secs)
        state = entry.record.state
        if state in (BundleState.UPLOADING, BundleState.LOST) and snapshot.holders(bundle):
            due.append(MarkAvailable(bundle))
        elif state is BundleState.UPLOADING:
            silent = heard and entry.record.digest not in active
            if silent and age > config.abandon_secs and not entry.replicas:
                due.append(ForgetUpload(bundle))
        elif state is BundleState.AVAILABLE and bundle in lost and not snapshot.holders(bundle):
            due.append(MarkLost(bundle))
        elif state is BundleState.REMOVED:
            unseen = any(master in snapshot.masters for master in entry.replicas)
            if age > config.tombstone_secs and not unseen and heard and entry.record.digest not in active:
                due.append(TrimTombstone(bundle))
    return due
