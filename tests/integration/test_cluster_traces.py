"""What an OpenTelemetry collector sees of a real cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_fixtures import Cluster, make_source, running_cluster, until
from patience import patient
from trace_collector import SeenSpan, TraceCollector, trace_collector

MASTERS, HOSTS = 2, 2
WHOLE = Counter({"upload": 1, "intake": 1, "publish on master": MASTERS, "distribute": 1, "publish on host": HOSTS})
CLOCKS_SECS = patient(2.0)
"""The client goes by its own clock, and the daemons by ZooKeeper's, each as far off as an answer of
ZooKeeper took."""


@pytest.fixture(scope="module")
def collector() -> Iterator[TraceCollector]:
    with trace_collector() as collector:
        yield collector


@pytest.fixture(scope="module")
def traced(collector: TraceCollector) -> Iterator[Cluster]:
    settings = {"traces": {"endpoint": collector.url}}
    with running_cluster(settings, masters=MASTERS, supervisors=HOSTS) as cluster:
        yield cluster


def kinds(spans: list[SeenSpan]) -> Counter[str]:
    return Counter(span.name for span in spans)


def test_one_trace_shows_the_whole_way_of_a_bundle(traced: Cluster, collector: TraceCollector, tmp_path: Path) -> None:
    """An operator could not see where the time went between an upload and the last host."""
    bundle, source = "traced", make_source(tmp_path / "source", 91)
    view = traced.run("upload", source, "--id", bundle, "--min-replicas", MASTERS, traces__endpoint=collector.url).ok()
    traced.run("bundle", "distribute", bundle, "--wait", "100%").ok()
    until(lambda: kinds(collector.spans(bundle)) == WHOLE, "every span is there", 40.0)
    spans = collector.spans(bundle)
    named = {span.name: span for span in spans}
    upload, intake, distribute = named["upload"], named["intake"], named["distribute"]
    on_hosts = [span for span in spans if span.name == "publish on host"]
    hosts = {span.attributes["torrentdist.host"] for span in on_hosts}
    moved = [
        sum(span.attributes[f"torrentdist.bytes.{source}"] for source in ("masters", "peers", "local"))
        for span in on_hosts
    ]

    assert 1 == len({span.trace for span in spans})
    assert ("", upload.id) == (upload.parent, intake.parent)
    assert {intake.id} == {span.parent for span in spans} - {"", upload.id}
    assert len(spans) == len({span.id for span in spans})
    assert {view["digest"]} == {span.attributes["torrentdist.digest"] for span in spans}
    assert {*traced.supervisors()} == hosts
    assert [view["size"]] * HOSTS == moved
    assert upload.began < intake.began + CLOCKS_SECS < intake.ended + CLOCKS_SECS < upload.ended + 2 * CLOCKS_SECS
    assert distribute.began < min(span.began for span in on_hosts) + CLOCKS_SECS
    assert max(span.ended for span in on_hosts) < distribute.ended + CLOCKS_SECS
    assert {"torrentdist-client", "torrentdist-master", "torrentdist-supervisor"} == {span.service for span in spans}
    assert "" == "".join(span.error for span in spans)


def test_no_secret_leaves_with_a_trace(traced: Cluster, collector: TraceCollector, tmp_path: Path) -> None:
    """A reader of traces could act as the user whose upload they show."""
    bundle = "secretive"
    traced.run("upload", make_source(tmp_path / "source", 92), "--id", bundle, traces__endpoint=collector.url).ok()
    until(lambda: {"upload", "intake"} <= kinds(collector.spans(bundle)).keys(), "the spans are there")
    (credentials,) = traced.dev.headers().values()
    token = credentials.removeprefix("Bearer ").encode()

    assert token
    assert [] == [body for body in collector.bodies if token in body]


def test_a_client_without_traces_lets_the_leader_begin_one(
    traced: Cluster, collector: TraceCollector, tmp_path: Path
) -> None:
    """Uploads of most users would have no trace, or one without a begin."""
    bundle = "silent-client"
    traced.run("upload", make_source(tmp_path / "source", 93), "--id", bundle, "--min-replicas", MASTERS).ok()
    wanted = WHOLE - Counter(["upload", "distribute", *["publish on host"] * HOSTS])
    until(lambda: kinds(collector.spans(bundle)) == wanted, "every span is there", 40.0)

    assert [""] == [span.parent for span in collector.spans(bundle) if span.name == "intake"]


def dropped(cluster: Cluster, name: str) -> float:
    text = cluster.http.get(f"{cluster.url(name)}/metrics", headers=cluster.dev.headers()).text
    (value,) = [line.split()[1] for line in text.splitlines() if line.startswith("torrentdist_trace_spans_dropped")]
    return float(value)


def test_a_collector_that_hangs_delays_nothing(traced: Cluster, collector: TraceCollector, tmp_path: Path) -> None:
    """A collector's outage would be the cluster's."""
    bundle, leader = "undelayed", traced.leader()
    collector.answers.clear()
    try:
        traced.run("upload", make_source(tmp_path / "source", 94), "--id", bundle, traces__endpoint=collector.url).ok()
        traced.run("bundle", "distribute", bundle, "--wait", "100%").ok()

        until(lambda: dropped(traced, leader) >= 1, "the leader counts what it could not send", 40.0)
        assert [] == collector.spans(bundle)
    finally:
        collector.answers.set()


def test_the_doctor_looks_for_the_collector(traced: Cluster, collector: TraceCollector) -> None:
    """An operator would wait for traces that never come, and not learn why."""
    right = traced.run("doctor", traces__endpoint=collector.url)
    wrong = traced.run("doctor", traces__endpoint=f"{collector.url}/elsewhere")
    absent = traced.run("doctor", traces__endpoint="http://127.0.0.1:1")
    none = traced.run("doctor")

    assert ["ok", "warn", "warn", None] == [
        next((finding["verdict"] for finding in ran.json["findings"] if finding["check"] == "traces"), None)
        for ran in (right, wrong, absent, none)
    ]
