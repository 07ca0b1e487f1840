"""The table of all metrics: name, kind, meaning, labels, and the daemons that have them.

docs/metrics.md and the dashboard in deploy/grafana are generated from it.
Always: a name follows Prometheus: a base unit, and `_total` for a counter. A label has only the
values that the table lists, so that the number of series is fixed.
Never: use a label that names a bundle, a host or an error, since their number grows without bound.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from torrentdist.model.wire.swarm_messages import PeerRole

PREFIX: Final = "torrentdist_"
FETCH_SECS: Final = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
WAIT_SECS: Final = (0.005, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0)
SIZE_CLASSES: Final = {"1MiB": 2**20, "16MiB": 2**24, "256MiB": 2**28, "4GiB": 2**32}
"""The largest size of each class. What is larger is in the class `larger`."""
ATTENTION: Final = (
    *("problem", "leader", "unheard", "lost", "gone", "silent", "stopped", "failing", "elections", "restarting"),
    *("full", "stuck", "filling", "under-replicated", "clock", "expiring"),
)
"""Kinds of what needs attention, the worst first."""
LARGER: Final = "larger"
LOOPS: Final = (
    *("events", "agent", "disk", "certificates", "swarm certificates", "scrub", "audit", "revocations"),
    *("elections", "vacancies", "absences", "records", "replication", "directory", "policies", "presence"),
    *("history", "grants", "places", "jobs", "znode watch", "ids", "keeper", "high mark", "border", "pushes"),
    *("URLs for pods", "assigning", "isolation", "output", "applications", "reporting"),
)
"""Parts of daemons that begin anew when they fail: those of every daemon, of masters, of
supervisors."""


def size_class(size: int) -> str:
    return next((name for name, most in SIZE_CLASSES.items() if size <= most), LARGER)


Labels = Mapping[str, tuple[str, ...]]


class MetricKind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class FoundOn(StrEnum):
    """The daemons that have a metric."""

    EVERY = "every daemon"
    MASTER = "masters"
    LEADER = "the leader"
    SUPERVISOR = "supervisors"


class MetricRow(msgspec.Struct, frozen=True):
    found_on: FoundOn
    name: str
    """The name without PREFIX."""
    kind: MetricKind
    help: str
    labels: Labels = msgspec.field(default_factory=dict)
    """Every label with all its values."""
    buckets: tuple[float, ...] = ()


Meaning = str | tuple[str, Labels]
"""What a metric tells, and its labels if it has some."""


def _rows(
    found_on: FoundOn,
    gauges: Mapping[str, Meaning] = {},
    counters: Mapping[str, Meaning] = {},
    waits: Mapping[str, str] = {},
) -> list[MetricRow]:
    """Returns the rows of metrics. `waits` are histograms of seconds."""
    return [
        *(_row(found_on, name, MetricKind.GAUGE, meaning) for name, meaning in gauges.items()),
        *(_row(found_on, name, MetricKind.COUNTER, meaning) for name, meaning in counters.items()),
        *(MetricRow(found_on, name, MetricKind.HISTOGRAM, text, buckets=WAIT_SECS) for name, text in waits.items()),
    ]


def _row(found_on: FoundOn, name: str, kind: MetricKind, meaning: Meaning) -> MetricRow:
    text, labels = (meaning, {}) if isinstance(meaning, str) else meaning
    return MetricRow(found_on, name, kind, text, labels)


_EVERY: Final = [
    *_rows(
        FoundOn.EVERY,
        gauges={
            "store_bundles": "Bundles published in this host's store",
            "store_published_bytes": "Bytes of published bundles",
            "store_arriving_bytes": "Bytes reserved for arriving bundles",
            "store_disk_free_bytes": "Bytes free on the store's disk",
            "store_limit_bytes": "store.limit_bytes; 0: no limit",
            "store_reserve_bytes": "Bytes of the disk that the store leaves free",
            "store_high_bytes": "store.high, above which unused bundles go; 0: no mark",
            "swarm_torrents": "Swarms this host is in",
            "swarm_peers": "Connected peers",
            "fetches": "Fetches in progress",
            "fetches_failing": "Bundles whose last fetch failed",
            "fetch_silence_seconds": "Longest time since a fetch in progress got its last bytes; 0 without fetches",
            "masters_answering": "Masters that answered the last announce",
            "zookeeper_connected": "1 while this daemon has a session with ZooKeeper",
            "certificate_expiry_timestamp_seconds": "When this daemon's certificate expires; absent without TLS",
        },
        counters={
            "swarm_uploaded_bytes_total": "Payload bytes sent to peers",
            "swarm_downloaded_bytes_total": "Payload bytes received from peers",
            "holder_copies_total": "Copies of bundles that masters sent to this host; half a bundle counts 0.5",
            "hash_failures_total": "Pieces that did not match their digest, and were fetched again",
            "loop_failures_total": ("Failures of parts of this daemon, each of which began anew", {"loop": LOOPS}),
            "log_lines_dropped_total": "Log lines that could not be written",
            "trace_spans_dropped_total": "Spans that could not be sent to the collector of traces.endpoint",
            "fetch_ends_total": (
                "Fetches that ended; `stopped`: the bundle was no longer wanted",
                {"result": ("finished", "failed", "stopped")},
            ),
            "fetched_bytes_total": (
                "Bytes of finished fetches by source; `local`: already on this host",
                {"source": ("masters", "peers", "local")},
            ),
            "outside_bytes_total": "Bytes of finished fetches that came from other zones",
            "http_answers_total": (
                "Answers to HTTP requests, without health checks, by class of status",
                {"status": ("2xx", "3xx", "4xx", "5xx")},
            ),
        },
        waits={"fetch_first_byte_seconds": "Seconds that a finished fetch waited for its first byte"},
    ),
    MetricRow(
        FoundOn.EVERY,
        "fetch_seconds",
        MetricKind.HISTOGRAM,
        "Seconds from the start of a fetch until the bundle was published here, by the bundle's size",
        {"size": (*SIZE_CLASSES, LARGER)},
        FETCH_SECS,
    ),
]

_MASTER: Final = [
    *_rows(
        FoundOn.MASTER,
        gauges={
            "leader": "1 on the master that leads",
            "epoch": "The epoch that this master knows",
            "masters": "Registered masters",
            "supervisors": "Registered supervisors",
            "bundles_under_replicated": "Available bundles with fewer holders than wanted",
            "directory_swarms": "Swarms that some peer is in",
            "directory_fetching": "Peers that are fetching",
            "directory_hosts": "Hosts that peers are on",
            "bundles": ("Bundles by state", {"state": ("available", "uploading", "lost")}),
            "gone": (
                "Daemons that left without a clean stop or a drain, and are not back",
                {"role": ("master", "supervisor")},
            ),
            "attention": (
                "What needs attention, as on the Overview, by kind; the leader knows the most",
                {"what": ATTENTION},
            ),
            "directory_peers": ("Peers by role", {"role": tuple(role.value for role in PeerRole)}),
        },
        counters={
            "directory_announces_total": "Announces heard",
            "directory_refused_total": "Announces refused",
            "directory_expired_total": "Peers forgotten because they were silent",
            "console_parts_total": "Live parts of the console's pages that were made anew",
            "console_seconds_total": "Processor seconds that the live parts of the console's pages took",
        },
        waits={
            "change_queue_seconds": "Seconds that a change waited for the changes before it",
            "commit_seconds": "Seconds that ZooKeeper took to commit a change of this master",
            "failover_seconds": "Seconds without a leader before this master was elected",
        },
    ),
    *_rows(
        FoundOn.LEADER,
        gauges={"supervisors_silent": "Registered supervisors whose heartbeats are overdue"},
    ),
]

_SUPERVISOR: Final = _rows(
    FoundOn.SUPERVISOR,
    gauges={
        "assigned_bundles": "Bundles assigned to this host",
        "archive_bytes": "Bytes of the gateway's archives",
    },
)

METRICS: Final[Mapping[str, MetricRow]] = {row.name: row for row in [*_EVERY, *_MASTER, *_SUPERVISOR]}
