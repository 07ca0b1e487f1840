"""The metrics of every host: its store, engine, transfers, certificate and log.

Always: values come from memory, so that a scrape never waits for the disk.
"""

from collections.abc import Iterator

from torrentdist.cluster.session.znode_operations import SessionState
from torrentdist.host.process.host_daemon import HostDaemon
from torrentdist.host.process.logs import dropped_lines
from torrentdist.host.telemetry.metrics import Sample


def host_samples(host: HostDaemon) -> Iterator[Sample]:
    runtime = host.runtime
    usage = runtime.store.usage()
    yield Sample("store_bundles", len(runtime.store.published()))
    yield Sample("store_published_bytes", usage.published_bytes)
    yield Sample("store_arriving_bytes", usage.arriving_bytes)
    yield Sample("store_disk_free_bytes", usage.free_bytes)
    yield Sample("store_limit_bytes", usage.limit_bytes)
    yield Sample("store_reserve_bytes", usage.reserve_bytes)
    yield Sample("store_high_bytes", host.marks.high)
    stats = runtime.engine.statistics()
    yield Sample("swarm_torrents", stats.torrents)
    yield Sample("swarm_peers", stats.peers)
    yield Sample("swarm_uploaded_bytes_total", stats.uploaded)
    yield Sample("swarm_downloaded_bytes_total", stats.downloaded)
    yield Sample("fetches", len(runtime.fetches.under_way()))
    yield Sample("fetches_failing", len(runtime.fetches.failures()))
    yield Sample("fetch_silence_seconds", host.event_counts.silence_secs())
    yield Sample("log_lines_dropped_total", dropped_lines())
    yield Sample("trace_spans_dropped_total", host.traces.dropped)
    for name, count in host.background.failures.items():
        yield Sample("loop_failures_total", count, {"loop": name})
    yield Sample("masters_answering", host.agent.picture.answered)
    yield Sample("zookeeper_connected", float(host.zookeeper.state is SessionState.CONNECTED))
    if host.guard.tls is not None:
        yield Sample("certificate_expiry_timestamp_seconds", host.guard.tls.facts.expires_at)
