"""What real daemons answer to Prometheus."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cluster_fixtures import Cluster, make_source, until

from torrentdist.host.telemetry.metric_table import METRICS, PREFIX, FoundOn

MASTERS = {FoundOn.EVERY, FoundOn.MASTER}
NEEDS_TLS = {"certificate_expiry_timestamp_seconds"}

Series = dict[str, float]


def scraped(cluster: Cluster, url: str) -> Series:
    answer = cluster.http.get(f"{url}/metrics", headers=cluster.dev.headers())
    assert answer.status_code == 200
    pairs = (line.rpartition(" ") for line in answer.text.splitlines() if line.startswith(PREFIX))
    bare = ((re.sub(r'cluster="[^"]*",?', "", series).replace("{}", ""), value) for series, _, value in pairs)
    return {series.removeprefix(PREFIX): float(value) for series, value in bare}


def names(series: Series) -> set[str]:
    bare = {re.sub(r"\{.*", "", name) for name in series}
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in bare}


def expected(*places: FoundOn) -> set[str]:
    return {row.name for row in METRICS.values() if row.found_on in places} - NEEDS_TLS


def test_every_daemon_has_the_metrics_of_the_table(cluster: Cluster, tmp_path: Path) -> None:
    """A panel or an alert waits for a metric that no daemon has."""
    bundle = "measured"
    cluster.run("upload", make_source(tmp_path / "source", 77), "--id", bundle).ok()
    cluster.run("bundle", "distribute", bundle, "--wait", "100%").ok()
    leader, standby = cluster.leader(), cluster.standbys()[0]
    supervisors = cluster.get(leader, "/v1/cluster")["supervisors"]
    of_leader, of_standby = scraped(cluster, cluster.url(leader)), scraped(cluster, cluster.url(standby))
    outside = [scraped(cluster, supervisor["url"]) for supervisor in supervisors]

    assert names(of_leader) == expected(*MASTERS, FoundOn.LEADER)
    assert names(of_standby) == expected(*MASTERS)
    assert {frozenset(names(one)) for one in outside} == {frozenset(expected(FoundOn.EVERY, FoundOn.SUPERVISOR))}
    assert of_leader["commit_seconds_count"] >= 1
    assert of_leader["change_queue_seconds_count"] >= 1
    assert of_leader["failover_seconds_count"] <= of_leader["epoch"]
    assert {one['fetch_ends_total{result="finished"}'] >= 1 for one in outside} == {True}
    assert sum(one['fetched_bytes_total{source="masters"}'] for one in outside) > 0
    assert 0 < sum(one["holder_copies_total"] for one in outside)
    for series in (of_leader, of_standby, *outside):
        for name in series:
            for label, value in re.findall(r'(\w+)="([^"]*)"', name):
                row = METRICS[re.sub(r"(_bucket|_sum|_count)?\{.*", "", name)]
                assert label == "le" or value in row.labels[label], name


@pytest.mark.parametrize("path", ["/v1/cluster", "/no-such-page"])
def test_answers_are_counted_by_status(cluster: Cluster, path: str) -> None:
    """The alert on errors would count nothing, or count health checks."""
    url = cluster.url(cluster.leader())
    status = "2xx" if path == "/v1/cluster" else "4xx"
    key = f'http_answers_total{{status="{status}"}}'
    before = scraped(cluster, url)[key]
    cluster.http.get(url + path, headers=cluster.dev.headers())
    cluster.http.get(url + "/livez")

    until(lambda: scraped(cluster, url)[key] > before, "the answer is counted")
