"""The metrics of a master, read from its records and its directory of swarms."""

from collections.abc import Iterator

from torrentdist.host.telemetry.host_metrics import host_samples
from torrentdist.host.telemetry.metric_table import ATTENTION
from torrentdist.host.telemetry.metrics import Sample
from torrentdist.master.jobs.heartbeats import Heartbeats
from torrentdist.master.master_core import MasterCore
from torrentdist.master.presence.attention_sight import AttentionSight
from torrentdist.master.swarm.swarms import Swarms

COUNTED = ("change_queue_seconds", "commit_seconds", "failover_seconds", "console_parts_total", "console_seconds_total")
"""The metrics that a master counts as things happen."""


def master_samples(core: MasterCore, sight: AttentionSight, heartbeats: Heartbeats, swarms: Swarms) -> Iterator[Sample]:
    yield from host_samples(core.host)
    snapshot = core.session.mirror.snapshot
    cluster = sight.outline(snapshot)
    counts = cluster.bundles
    yield Sample("leader", float(sight.leadership.is_leader()))
    yield Sample("epoch", snapshot.epoch)
    yield Sample("masters", len(snapshot.masters))
    yield Sample("supervisors", len(snapshot.supervisors))
    silent = heartbeats.silent_secs(snapshot)
    if silent is not None:
        yield Sample("supervisors_silent", sum(1 for secs in silent.values() if secs))
    for role in ("master", "supervisor"):
        yield Sample("gone", sum(view.role == role for view in cluster.gone), {"role": role})
    for what in ATTENTION:
        yield Sample("attention", sum(e.count for e in cluster.attention if e.what == what), {"what": what})
    yield Sample("bundles", counts.available, {"state": "available"})
    yield Sample("bundles", counts.uploading, {"state": "uploading"})
    yield Sample("bundles", counts.lost, {"state": "lost"})
    yield Sample("bundles_under_replicated", counts.under_replicated)
    directory = swarms.directory.statistics()
    yield Sample("directory_swarms", directory.swarms)
    yield Sample("directory_fetching", directory.fetching)
    yield Sample("directory_hosts", directory.hosts)
    for role, count in directory.peers.items():
        yield Sample("directory_peers", count, {"role": role.value})
    yield Sample("directory_announces_total", directory.announces)
    yield Sample("directory_refused_total", directory.refused)
    yield Sample("directory_expired_total", directory.expired)
