"""The metrics of every host: its store, engine, transfers and log.

Always: values come from memory, so that a scrape never waits for the disk.
"""

from __future__ import annotations

from collections.abc import Iterator

from torrentdist.host.process.logs import dropped_lines
from torrentdist.host.runtime import HostRuntime
from torrentdist.host.telemetry.metrics import Sample


def host_samples(runtime: HostRuntime) -> Iterator[Sample]:
    usage = runtime.store.usage()
    yield Sample("store_bundles", "Bundles published in this host's store", len(runtime.store.published()))
    yield Sample("store_published_bytes", "Bytes of published bundles", usage.published_bytes)
    yield Sample("store_arriving_bytes", "Bytes reserved for arriving bundles", usage.arriving_bytes)
    yield Sample("store_disk_free_bytes", "Bytes free on the store's disk", usage.free_bytes)
    stats = runtime.engine.statistics()
    yield Sample("swarm_torrents", "Swarms this host is in", stats.torrents)
    yield Sample("swarm_peers", "Connected peers", stats.peers)
    yield Sample("swarm_uploaded_bytes_total", "Payload bytes sent to peers", stats.uploaded)
    yield Sample("swarm_downloaded_bytes_total", "Payload bytes received from peers", stats.downloaded)
    yield Sample("fetches", "Fetches in progress", len(runtime.fetches.under_way()))
    yield Sample("log_lines_dropped_total", "Log lines that could not be written", dropped_lines())
