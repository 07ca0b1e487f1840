"""The table of metrics, what counts them, and the alert rules and the dashboard that ask for
them."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from torrentdist.host.telemetry.event_counts import RETRIED_SECS, EventCounts
from torrentdist.host.telemetry.metric_table import METRICS, PREFIX, MetricKind, size_class
from torrentdist.host.telemetry.metrics import Metrics, Sample
from torrentdist.model.events import DownloadFailed, DownloadFinished, DownloadProgress, DownloadStarted, HashFailed

ROOT = Path(__file__).parent.parent.parent
RULES = ROOT / "deploy" / "prometheus" / "rules.yml"
RULE_TESTS = RULES.with_name("rules_test.yml")
DASHBOARD = ROOT / "deploy" / "grafana" / "torrentdist.json"
PROMTOOL = shutil.which("promtool") or shutil.which("promtool", path=ROOT / ".venv" / "bin")
DIGEST = "ab" * 32
END: dict[str, object] = {
    "bundle": "b",
    "digest": DIGEST,
    "size": 1000,
    "seconds": 2.0,
    "prepare_secs": 0.0,
    "wait_secs": 0.5,
    "fetch_secs": 1.0,
    "publish_secs": 0.5,
    "from_masters": 250,
    "from_peers": 650,
    "local": 100,
    "peers": 3,
    "hash_failures": 0,
    "sources": [],
}

needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed, and scripts/setup could not")


def promtool(*arguments: str, text: str | None = None) -> tuple[int, str]:
    assert PROMTOOL is not None
    run = subprocess.run(
        [PROMTOOL, *arguments], cwd=RULES.parent, input=text, capture_output=True, text=True, timeout=60
    )
    return run.returncode, run.stdout + run.stderr


def names_in(path: Path) -> set[str]:
    """Returns the metrics that a file asks for, without the endings of a histogram's series."""
    found = re.findall(rf"\b{PREFIX}([a-z0-9_]+)", path.read_text(encoding="utf-8"))
    return {
        base if METRICS.get(base := re.sub(r"_(bucket|sum|count)$", "", name)) and base != name else name
        for name in found
    }


@pytest.mark.parametrize("path", [RULES, RULE_TESTS, DASHBOARD], ids=lambda path: path.name)
def test_every_query_names_an_existing_metric(path: Path) -> None:
    """An alert on a metric that was renamed never fires, and its panel stays empty."""
    assert names_in(path) - METRICS.keys() == set()


def test_the_dashboard_shows_every_metric() -> None:
    """An operator would look in vain for a new metric."""
    assert METRICS.keys() - names_in(DASHBOARD) == set()


def test_the_failures_of_every_loop_that_begins_anew_have_a_series() -> None:
    """An operator would not find which loop fails in the list of metrics, or the number of series
    would not be the one that is told there."""
    names: set[str] = set()
    for path in (ROOT / "torrentdist").rglob("*.py"):
        calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
        for call in calls:
            called = getattr(call.func, "id", getattr(call.func, "attr", ""))
            is_repeated = called in ("Loop", "repeat") and all(word.arg != "ends_daemon" for word in call.keywords)
            if is_repeated and call.args and isinstance(call.args[0], ast.Constant):
                names.add(str(call.args[0].value))

    assert names == set(METRICS["loop_failures_total"].labels["loop"])


def test_names_follow_prometheus() -> None:
    """Tools take a counter for a gauge, or seconds for milliseconds."""
    wrong = [
        row.name
        for row in METRICS.values()
        if (row.kind is MetricKind.COUNTER) != row.name.endswith("_total")
        or (row.kind is MetricKind.HISTOGRAM) != bool(row.buckets)
        or (row.kind is MetricKind.HISTOGRAM and not row.name.endswith("_seconds"))
        or re.search(r"_(ms|secs|minutes|kb|mb|percent)(_|$)", row.name)
    ]

    assert [] == wrong


def test_a_daemon_has_a_bounded_number_of_series() -> None:
    """A label that grows without bound fills the memory of Prometheus."""
    series = 0
    for row in METRICS.values():
        values = 1
        for allowed in row.labels.values():
            values *= len(allowed)
        series += values * (len(row.buckets) + 3 if row.buckets else 1)

    assert series < 300


def test_every_alert_is_tested_and_leads_to_a_page() -> None:
    """Somebody is woken at night by a rule that nobody has seen fire, and finds no word of what to
    do."""
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    anchors = {line.lstrip("# ").lower().replace(" ", "-") for line in page.splitlines() if line.startswith("#")}
    tests = RULE_TESTS.read_text(encoding="utf-8")

    assert [] == [rule["alert"] for rule in rules if rule["alert"] not in tests]
    assert set() == {rule["annotations"]["runbook"].partition("#")[2] for rule in rules} - anchors


def test_every_rule_tells_clusters_apart() -> None:
    """Two clusters in one Prometheus: the leader of one would hide that the other has none."""
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    mixing = re.compile(r"\b(sum|max|min|count|group|avg)\s*(\(|by \((?!cluster\b))")

    assert [] == [rule["alert"] for rule in rules if mixing.search(rule["expr"])]


def test_every_series_names_its_cluster() -> None:
    """The alert rules could not tell whose leader is missing."""
    metrics, events, _ = counted()
    metrics.cluster = "prod"
    events.hear(DownloadFinished(**END))  # type: ignore[arg-type]
    shown = [line for line in lines(metrics) if not line.startswith("#")]

    assert [] == [line for line in shown if 'cluster="prod"' not in line]
    assert 'torrentdist_fetched_bytes_total{cluster="prod",source="masters"} 250.0' in shown


@needs_promtool
def test_every_query_of_the_dashboard_is_one_that_prometheus_understands(tmp_path: Path) -> None:
    """A panel would show an error instead of an answer."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    filled = [query.replace("$cluster", ".*").replace("$__rate_interval", "5m") for query in queries]
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(filled)]
    (tmp_path / "panels.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))

    assert (0, True) == (promtool("check", "rules", str(tmp_path / "panels.yml"))[0], len(queries) > 50)


def test_a_panel_is_readable_with_500_hosts() -> None:
    """A line for each of 500 hosts is a grey block, in which nobody finds the one that is ill."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    bounded = re.compile(r"^(sum|max|quantile|count) by \(|^(topk|bottomk)\(10, |^histogram_quantile\(")
    queries = [target["expr"] for panel in panels for target in panel.get("targets", ())]

    assert [] == [query for query in queries if not bounded.match(query)]
    assert 6 <= sum(panel["type"] == "row" for panel in panels) <= 8


def counted() -> tuple[Metrics, EventCounts, list[float]]:
    clock = [0.0]
    metrics = Metrics(lambda: [Sample("fetches", 1.0)])
    return metrics, EventCounts(metrics, lambda: clock[0]), clock


def lines(metrics: Metrics) -> list[str]:
    return metrics.render().decode().splitlines()


def test_a_finished_fetch_is_counted_once_with_its_sources() -> None:
    """The dashboard would show another share of the holders than the one that was sent."""
    metrics, events, _ = counted()
    events.hear(DownloadFinished(**END))  # type: ignore[arg-type]
    shown = lines(metrics)

    assert 'torrentdist_fetched_bytes_total{source="masters"} 250.0' in shown
    assert 'torrentdist_fetched_bytes_total{source="peers"} 650.0' in shown
    assert "torrentdist_holder_copies_total 0.25" in shown
    assert 'torrentdist_fetch_seconds_bucket{le="3.0",size="1MiB"} 1.0' in shown
    assert 'torrentdist_fetch_seconds_bucket{le="1.0",size="1MiB"} 0.0' in shown
    assert 'torrentdist_fetch_ends_total{result="finished"} 1.0' in shown
    assert 'torrentdist_fetch_ends_total{result="failed"} 0.0' in shown


def test_a_fetch_that_nobody_wants_any_more_is_no_failure() -> None:
    """Every removal of an arriving bundle would raise the alert on errors."""
    metrics, events, _ = counted()
    events.hear(DownloadFailed(**END, code="stopped", reason=""))  # type: ignore[arg-type]
    events.hear(DownloadFailed(**END, code="disk_full", reason=""))  # type: ignore[arg-type]
    events.hear(HashFailed(digest=DIGEST, piece=1))
    shown = lines(metrics)

    assert 'torrentdist_fetch_ends_total{result="stopped"} 1.0' in shown
    assert 'torrentdist_fetch_ends_total{result="failed"} 1.0' in shown
    assert "torrentdist_hash_failures_total 1.0" in shown
    assert not [line for line in shown if "disk_full" in line or "_created" in line]


def progress(done: int) -> DownloadProgress:
    figures = {"rate": 0.0, "peers": 1, "from_masters": done, "from_peers": 0, "local": 0}
    return DownloadProgress(bundle="b", digest=DIGEST, size=1000, done=done, **figures)  # type: ignore[arg-type]


def test_silence_goes_on_over_tries_that_fail() -> None:
    """A fetch that nobody serves fails after two minutes and is tried again. The alert after five
    minutes would never come."""
    _, events, clock = counted()
    silences = []
    for at in range(0, 600, 150):
        clock[0] = float(at)
        events.hear(DownloadStarted(bundle="b", digest=DIGEST, size=1000))
        events.hear(progress(5 if at == 0 else 0))
        clock[0] = at + 120.0
        events.hear(DownloadFailed(**END, code="no_peers", reason=""))  # type: ignore[arg-type]
        silences.append(events.silence_secs())
    events.hear(progress(1))
    moving = events.silence_secs()
    clock[0] += 60.0
    events.hear(DownloadFailed(**END, code="no_peers", reason=""))  # type: ignore[arg-type]
    clock[0] += RETRIED_SECS + 1

    assert [120.0, 270.0, 420.0, 570.0] == silences
    assert (0.0, 0.0) == (moving, events.silence_secs())


def test_silence_is_the_time_since_bytes_came() -> None:
    """A stalled distribution would raise no alert, or one that makes progress would."""
    _, events, clock = counted()
    before = events.silence_secs()
    events.hear(DownloadStarted(bundle="b", digest=DIGEST, size=1000))
    clock[0] = 10.0
    events.hear(progress(5))
    clock[0] = 25.0
    events.hear(progress(5))
    during = events.silence_secs()
    events.hear(DownloadFinished(**END))  # type: ignore[arg-type]

    assert (before, during, events.silence_secs()) == (0.0, 15.0, 0.0)


@pytest.mark.parametrize(
    ("size", "name"), [(0, "1MiB"), (2**20, "1MiB"), (2**20 + 1, "16MiB"), (2**32, "4GiB"), (2**50, "larger")]
)
def test_a_size_has_one_class(size: int, name: str) -> None:
    """Times of small and large bundles would be mixed."""
    assert size_class(size) == name
