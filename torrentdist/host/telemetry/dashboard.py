"""Makes the Grafana dashboard from the table of metrics.

Always: every metric of the table has a panel, so the dashboard lacks nothing and asks for nothing
that does not exist.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import Any

from torrentdist.host.telemetry.metric_table import METRICS, PREFIX, FoundOn, MetricKind, MetricRow

WIDTH, HEIGHT, COLUMNS = 8, 7, 3
SOURCE = {"type": "prometheus", "uid": "${source}"}
PLACE = 'instance=~"$instance"'
OVERVIEW: Mapping[str, str] = {
    "Leaders": "sum(torrentdist_leader)",
    "Lost bundles": 'max(torrentdist_bundles{state="lost"})',
    "Under-replicated bundles": "max(torrentdist_bundles_under_replicated)",
    "Silent supervisors": "max(torrentdist_supervisors_silent)",
    "Hosts that fail to fetch": "count(torrentdist_fetches_failing > 0) or vector(0)",
    "Days until a certificate expires": "(min(torrentdist_certificate_expiry_timestamp_seconds) - time()) / 86400",
}
"""The first row: a title and a query for each figure that needs attention first."""
ROWS = {
    FoundOn.EVERY: "Every daemon",
    FoundOn.MASTER: "Masters",
    FoundOn.LEADER: "The leader",
    FoundOn.SUPERVISOR: "Supervisors",
}


def query(row: MetricRow) -> str:
    name, by = PREFIX + row.name, ", ".join(["instance", *row.labels])
    if row.kind is MetricKind.GAUGE:
        return f"{name}{{{PLACE}}}"
    if row.kind is MetricKind.COUNTER:
        return f"sum by ({by}) (rate({name}{{{PLACE}}}[$__rate_interval]))"
    buckets = ", ".join(["le", *row.labels])
    return f"histogram_quantile(0.95, sum by ({buckets}) (rate({name}_bucket{{{PLACE}}}[$__rate_interval])))"


def legend(row: MetricRow) -> str:
    labels = [*row.labels] if row.kind is MetricKind.HISTOGRAM else ["instance", *row.labels]
    return " ".join(f"{{{{{label}}}}}" for label in labels) or "95 %"


def unit(row: MetricRow) -> str:
    if row.name.endswith("_timestamp_seconds"):
        return "dateTimeFromNow"
    if "_bytes" in row.name:
        return "Bps" if row.kind is MetricKind.COUNTER else "bytes"
    if row.name.endswith("_seconds"):
        return "s"
    return "ops" if row.kind is MetricKind.COUNTER else "short"


def panels() -> Iterator[dict[str, Any]]:
    numbers, top = count(1), 0
    for column, (title, expression) in enumerate(OVERVIEW.items()):
        place = {"x": column * 4, "y": top, "w": 4, "h": 4}
        yield _panel(next(numbers), "stat", title, place, expression, "", "short")
    top += 4
    for found_on, title in ROWS.items():
        yield {"id": next(numbers), "type": "row", "title": title, "gridPos": {"x": 0, "y": top, "w": 24, "h": 1}}
        top += 1
        rows = [row for row in METRICS.values() if row.found_on is found_on]
        for number, row in enumerate(rows):
            place = {
                "x": number % COLUMNS * WIDTH,
                "y": top + number // COLUMNS * HEIGHT,
                "w": WIDTH,
                "h": HEIGHT,
            }
            scale = " * 1000" if unit(row) == "dateTimeFromNow" else ""
            kind = "stat" if scale else "timeseries"
            panel = _panel(next(numbers), kind, row.name, place, query(row) + scale, legend(row), unit(row))
            yield {**panel, "description": row.help}
        top += -(-len(rows) // COLUMNS) * HEIGHT


def _panel(
    number: int, kind: str, title: str, place: Mapping[str, int], expression: str, name: str, measure: str
) -> dict[str, Any]:
    return {
        "id": number,
        "type": kind,
        "title": title,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": measure}, "overrides": []},
        "targets": [{"refId": "A", "datasource": SOURCE, "expr": expression, "legendFormat": name}],
    }


def dashboard() -> str:
    variables: Iterable[dict[str, Any]] = (
        {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
        {
            "name": "instance",
            "label": "Daemon",
            "type": "query",
            "datasource": SOURCE,
            "query": "label_values(torrentdist_fetches, instance)",
            "refresh": 2,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
        },
    )
    made = {
        "title": "torrentdist",
        "uid": "torrentdist",
        "tags": ["torrentdist"],
        "schemaVersion": 39,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [*variables]},
        "panels": [*panels()],
    }
    return json.dumps(made, indent=1) + "\n"
