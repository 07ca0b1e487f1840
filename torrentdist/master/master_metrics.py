"""The metrics of a master, read from its records and its directory of swarms."""

from __future__ import annotations

from collections.abc import Iterator

from torrentdist.cluster.records.mirror import Mirror
from torrentdist.host.runtime import HostRuntime
from torrentdist.host.telemetry.host_metrics import host_samples
from torrentdist.host.telemetry.metrics import Sample
from torrentdist.master.bundles.bundle_views import bundle_counts
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.swarm.swarms import Swarms


def master_samples(runtime: HostRuntime, mirror: Mirror, leadership: Leadership, swarms: Swarms) -> Iterator[Sample]:
    yield from host_samples(runtime)
    snapshot = mirror.snapshot
    counts = bundle_counts(snapshot)
    yield Sample("leader", "1 on the master that leads", float(leadership.is_leader()))
    yield Sample("epoch", "The epoch that this master knows", snapshot.epoch)
    yield Sample("masters", "Registered masters", len(snapshot.masters))
    yield Sample("supervisors", "Registered supervisors", len(snapshot.supervisors))
    yield Sample("bundles", "Bundles by state", counts.available, {"state": "available"})
    yield Sample("bundles", "Bundles by state", counts.uploading, {"state": "uploading"})
    yield Sample("bundles", "Bundles by state", counts.lost, {"state": "lost"})
    yield Sample("bundles_under_replicated", "Available with fewer holders than wanted", counts.under_replicated)
    directory = swarms.directory.statistics()
    yield Sample("directory_swarms", "Swarms that some peer is in", directory.swarms)
    yield Sample("directory_fetching", "Peers that are fetching", directory.fetching)
    yield Sample("directory_hosts", "Hosts that peers are on", directory.hosts)
    for role, count in directory.peers.items():
        yield Sample("directory_peers", "Peers by role", count, {"role": role.value})
    yield Sample("directory_announces_total", "Announces heard", directory.announces)
    yield Sample("directory_refused_total", "Announces refused", directory.refused)
    yield Sample("directory_expired_total", "Peers forgotten because they were silent", directory.expired)
