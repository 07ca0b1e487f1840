"""Every query of the dashboard, asked of a real Prometheus that scrapes a real cluster."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_fixtures import Cluster, until
from prometheus_server import PROGRAM, ROOT, PrometheusServer, rules_with

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="prometheus is not installed, and scripts/setup could not")
DASHBOARD = ROOT / "deploy" / "grafana" / "torrentdist.json"
PERIOD_SECS = 0.5
NOTHING_WRONG = re.compile(r"(> 0|== 0\))$|certificate_expiry")
"""Queries that find nothing in a healthy cluster without TLS."""


@pytest.fixture
def prometheus(cluster: Cluster, tmp_path: Path) -> Iterator[PrometheusServer]:
    urls = [process.url for process in cluster.dev.state.processes if process.role in ("master", "supervisor")]
    server = PrometheusServer(tmp_path / "prometheus", {"torrentdist": urls}, cluster.dev.token_file, PERIOD_SECS)
    try:
        server.start(rules_with("1m"))
        yield server
    finally:
        server.stop()


def test_every_panel_of_the_dashboard_shows_something(prometheus: PrometheusServer) -> None:
    """A panel would show an error, or stay empty in the night in which an operator needs it."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    queries = [
        target["expr"].replace("$cluster", ".*").replace("$__rate_interval", "5s")
        for panel in panels
        for target in panel.get("targets", ())
    ]

    def scraped() -> bool:
        times = [int(series["value"][1]) for series in prometheus.query("count_over_time(up[1m])")]
        return len(times) >= 5 and min(times) >= 4 and not prometheus.query("up == 0")

    until(scraped, "Prometheus has scraped every daemon several times")
    empty = [query for query in queries if not prometheus.query(query) and not NOTHING_WRONG.search(query)]

    assert [] == empty
    assert len(queries) > 50
    assert {} == prometheus.firing()
