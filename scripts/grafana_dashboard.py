"""Makes the Grafana dashboard: rows for an operator's questions, and one with all other metrics.

Always: every metric of the table is shown, and every query is about the chosen clusters. A panel
has a bounded number of lines with any number of hosts: sums, quantiles, or the ten worst.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from torrentdist.host.telemetry.metric_table import METRICS, PREFIX, MetricKind, MetricRow

COLUMNS, HEIGHT = 3, 7
WORST: Final = 10
SOURCE = {"type": "prometheus", "uid": "${source}"}
CHOSEN = 'cluster=~"$cluster"'


@dataclass(frozen=True)
class Asked:
    """A panel. In its queries a metric stands without its prefix and without the cluster."""

    title: str
    queries: Mapping[str, str]
    """Each with its legend."""
    unit: str = "short"
    kind: str = "timeseries"


def _worst(title: str, query: str, unit: str = "short", by: str = "topk") -> Asked:
    return Asked(title, {f"{by}({WORST}, {query})": "{{instance}}"}, unit)


def _quantiles(title: str, histogram: str) -> Asked:
    buckets = f"sum by (cluster, le) (rate({histogram}_bucket[$__rate_interval]))"
    lines = {f"histogram_quantile({q}, {buckets})": f"{{{{cluster}}}} {q:.0%}" for q in (0.5, 0.95, 0.99)}
    return Asked(title, lines, "s")


def _total(title: str, query: str, by: str = "", unit: str = "ops") -> Asked:
    labels = ["cluster", *([by] if by else [])]
    legend = " ".join(f"{{{{{label}}}}}" for label in labels)
    return Asked(title, {f"sum by ({', '.join(labels)}) ({query})": legend}, unit)


_USED: Final = "(store_published_bytes + store_arriving_bytes)"
_FILL: Final = f"{_USED} / ({_USED} + store_disk_free_bytes)"
_TOMORROW: Final = "predict_linear(store_disk_free_bytes[7d], 86400)"
_EXPIRES: Final = "certificate_expiry_timestamp_seconds"
_LEFT: Final = "(store_disk_free_bytes - store_reserve_bytes)"
QUESTIONS: Final[Mapping[str, Sequence[Asked]]] = {
    "Is all well?": (
        Asked("Leaders", {"sum by (cluster) (leader)": "{{cluster}}"}, kind="stat"),
        Asked("Needs attention", {"max by (cluster, what) (attention) > 0": "{{cluster}} {{what}}"}, kind="stat"),
        Asked("Gone", {"max by (cluster, role) (gone)": "{{cluster}} {{role}}"}, kind="stat"),
        Asked("Masters", {"max by (cluster) (masters)": "{{cluster}}"}, kind="stat"),
        Asked("Hosts", {"max by (cluster) (supervisors)": "{{cluster}}"}, kind="stat"),
        Asked("Bundles", {"max by (cluster, state) (bundles)": "{{cluster}} {{state}}"}, kind="stat"),
    ),
    "What happened?": (
        Asked("Epoch: each step is an election", {"max by (cluster) (epoch)": "{{cluster}}"}),
        Asked("Hosts and masters that are gone or silent", {
            "max by (cluster, role) (gone)": "{{cluster}} gone {{role}}s",
            "max by (cluster) (supervisors_silent)": "{{cluster}} silent",
        }),
        _total("Fetches that ended", "rate(fetch_ends_total[$__rate_interval])", "result"),
        _total("Answers", "rate(http_answers_total[$__rate_interval])", "status"),
        _quantiles("Time without a leader", "failover_seconds"),
        Asked("Too few copies", {"max by (cluster) (bundles_under_replicated)": "{{cluster}}"}),
    ),
    "Are distributions fast?": (
        Asked("Fetches by duration", {
            "sum by (le) (increase(fetch_seconds_bucket[$__rate_interval]))": "{{le}}",
        }, "s", "heatmap"),
        _quantiles("Seconds of a fetch", "fetch_seconds"),
        _quantiles("Seconds to the first byte", "fetch_first_byte_seconds"),
        _total("Bytes by source", "rate(fetched_bytes_total[$__rate_interval])", "source", "Bps"),
        _total("Copies that masters sent", "rate(holder_copies_total[$__rate_interval])"),
        _total("Fetches in progress", "fetches", unit="short"),
    ),
    "Will the disk fill?": (
        Asked("Share of the disk that bundles may take and do", {
            f"quantile by (cluster) ({q}, {_FILL})": f"{{{{cluster}}}} {q:.0%}" for q in (0.5, 0.9, 1)
        }, "percentunit"),
        _worst("Fullest", _FILL, "percentunit"),
        _worst("Least room above the reserve", _LEFT, "bytes", "bottomk"),
        _worst("Room in a day, at the week's pace", _TOMORROW, "bytes", "bottomk"),
        _total("Bytes of bundles", "store_published_bytes", unit="bytes"),
        _worst("Gateway's archives", "archive_bytes", "bytes"),
    ),
    "Which hosts are in trouble?": (
        _worst("No bytes for", "fetch_silence_seconds", "s"),
        _worst("Fetches that fail", "fetches_failing"),
        _worst("Wrong pieces within an hour", "increase(hash_failures_total[1h])"),
        _worst("Fewest masters that answer", "masters_answering", by="bottomk"),
        Asked("Daemons without ZooKeeper", {"count by (cluster) (zookeeper_connected == 0)": "{{cluster}}"}),
        _worst("Days until a certificate expires", f"({_EXPIRES} - time()) / 86400", "d", "bottomk"),
    ),
    "Do masters keep up?": (
        _quantiles("Seconds of a commit in ZooKeeper", "commit_seconds"),
        _quantiles("Seconds that a change waits", "change_queue_seconds"),
        _total("Announces", "rate(directory_announces_total[$__rate_interval])"),
    ),
}  # fmt: skip
"""The questions, each with the panels that answer it."""


def expression(query: str) -> str:
    """Returns a query with the names and the clusters filled in."""
    names = "|".join(sorted(METRICS, key=len, reverse=True))
    return re.sub(rf"\b({names})(_bucket)?\b", rf"{PREFIX}\1\2{{{CHOSEN}}}", query)


def _other(row: MetricRow) -> Asked:
    """Returns the panel of a metric that no question names."""
    unit = "bytes" if "_bytes" in row.name else "s" if row.name.endswith("_seconds") else "short"
    if row.kind is MetricKind.HISTOGRAM:
        return _quantiles(row.help, row.name)
    query = f"rate({row.name}[$__rate_interval])" if row.kind is MetricKind.COUNTER else row.name
    return _worst(row.help, query, "Bps" if unit == "bytes" and row.kind is MetricKind.COUNTER else unit)


def _rows() -> Iterator[tuple[str, Sequence[Asked]]]:
    yield from QUESTIONS.items()
    named = " ".join(query for asked in QUESTIONS.values() for panel in asked for query in panel.queries)
    words = {re.sub(r"_bucket$", "", word) for word in re.findall(r"[a-z_]+", named)}
    yield "Everything else: the ten highest", [_other(row) for row in METRICS.values() if row.name not in words]


def panels() -> Iterator[dict[str, Any]]:
    numbers, top = count(1), 0
    for title, asked in _rows():
        yield {"id": next(numbers), "type": "row", "title": title, "gridPos": {"x": 0, "y": top, "w": 24, "h": 1}}
        is_small = all(panel.kind == "stat" for panel in asked)
        columns, height = (len(asked), 4) if is_small else (COLUMNS, HEIGHT)
        for number, panel in enumerate(asked):
            place = {"x": number % columns * 24 // columns, "y": top + 1 + number // columns * height}
            yield _panel(next(numbers), panel, {**place, "w": 24 // columns, "h": height})
        top += 1 + -(-len(asked) // columns) * height


def _panel(number: int, asked: Asked, place: Mapping[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": asked.kind,
        "title": asked.title,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": asked.unit}, "overrides": []},
        "targets": [
            {"refId": chr(65 + n), "datasource": SOURCE, "expr": expression(query), "legendFormat": legend}
            for n, (query, legend) in enumerate(asked.queries.items())
        ],
    }


def dashboard() -> str:
    cluster = {
        "name": "cluster",
        "label": "Cluster",
        "type": "query",
        "datasource": SOURCE,
        "query": "label_values(torrentdist_fetches, cluster)",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
    }
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    made = {
        "title": "torrentdist",
        "uid": "torrentdist",
        "tags": ["torrentdist"],
        "schemaVersion": 39,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [source, cluster]},
        "panels": [*panels()],
    }
    return json.dumps(made, indent=1) + "\n"
