"""Traces: which span each event becomes, and how spans reach the collector, or do not."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec
import pytest
from cluster_fixtures import until
from trace_collector import trace_collector

from torrentdist.model.configuration.config import TracesConfig
from torrentdist.model.events import (
    BundleUploaded,
    DistributionEnded,
    DownloadFailed,
    DownloadFinished,
    HashFailed,
    UploadOpened,
)
from torrentdist.traces import event_spans
from torrentdist.traces.event_spans import EventSpans, intake_of
from torrentdist.traces.span_exporter import MOST_AT_ONCE, MOST_WAITING, SpanExporter
from torrentdist.traces.spans import SpanPlace, TraceSpan, header_of, is_kept, place_in, span_of, trace_of

BUNDLE, DIGEST = "etl-42", "d" * 64
TRACE = trace_of(BUNDLE, DIGEST)
OPENED = UploadOpened(bundle=BUNDLE, digest=DIGEST, size=100)
UPLOADED = BundleUploaded(bundle=BUNDLE, digest=DIGEST, size=100, seconds=3.0)
END: dict[str, Any] = {
    "bundle": BUNDLE,
    "digest": DIGEST,
    "size": 100,
    "seconds": 4.0,
    "prepare_secs": 0.5,
    "wait_secs": 0.5,
    "fetch_secs": 2.0,
    "publish_secs": 1.0,
    "from_masters": 60,
    "from_peers": 30,
    "local": 10,
    "peers": 2,
    "hash_failures": 1,
    "sources": [],
}
DISTRIBUTED = DistributionEnded(
    distribution="etl-42@1000",
    bundle=BUNDLE,
    digest=DIGEST,
    size=100,
    began_at=10.0,
    ended_at=25.0,
    hosts=2,
    done=2,
    left=0,
    cancelled=False,
    secs_50=8.0,
    secs_90=12.0,
    secs_100=12.5,
    from_masters=100,
    from_peers=90,
    from_plugin=0,
    local=10,
    failures=[],
)


def spans(*, is_master: bool = True, share: float = 1.0, node: str = "n1") -> EventSpans:
    return EventSpans(node, is_master=is_master, share=share)


def made(span: TraceSpan | None) -> TraceSpan:
    assert span is not None
    return span


def test_all_daemons_put_a_bundle_into_the_same_trace() -> None:
    """The spans of an upload, a distribution and a host would lie in three traces."""
    leader, standby, host = spans(node="m1"), spans(node="m2"), spans(is_master=False, node="h1")
    finished = DownloadFinished(**END)
    intake = made(leader.of_event(UPLOADED, 100.0))
    rest = [
        made(standby.of_event(finished, 100.0)),
        made(host.of_event(finished, 100.0)),
        made(leader.of_event(DISTRIBUTED, 100.0)),
    ]

    assert {TRACE} == {span.place.trace_id for span in (intake, *rest)}
    assert {intake.place.span_id} == {span.parent for span in rest}
    assert ["publish on master", "publish on host", "distribute"] == [span.name for span in rest]
    assert 4 == len({span.place for span in (intake, *rest)})


def test_another_content_or_name_is_another_trace() -> None:
    """Two bundles would be mixed up in one trace."""
    assert 3 == len({TRACE, trace_of(BUNDLE, "e" * 64), trace_of("etl-43", DIGEST)})


def test_an_intake_follows_the_span_of_the_client_that_asked() -> None:
    """The client's span would stand alone, and the trace would not begin with the upload."""
    sender = span_of(TRACE, "upload", "1")
    leader = spans()
    leader.of_event(msgspec.structs.replace(OPENED, traceparent=header_of(sender)), 96.0)
    intake = made(leader.of_event(UPLOADED, 100.0))
    again = made(leader.of_event(UPLOADED, 101.0))

    assert (intake_of(BUNDLE, DIGEST), sender.span_id, None) == (intake.place, intake.parent, intake.link)
    assert (97.0, 100.0) == (intake.began, intake.ended)
    assert again.parent is None


def test_a_client_without_traces_lets_the_leader_begin_one() -> None:
    """A collector would show a trace whose first span is missing."""
    leader = spans()
    leader.of_event(OPENED, 96.0)

    assert made(leader.of_event(UPLOADED, 100.0)).parent is None


def test_a_span_of_another_trace_becomes_a_link() -> None:
    """A program that traces its own work would not find the upload that it caused."""
    foreign = SpanPlace(7, 8)
    leader = spans()
    leader.of_event(msgspec.structs.replace(OPENED, traceparent=header_of(foreign)), 96.0)
    intake = made(leader.of_event(UPLOADED, 100.0))

    assert (None, foreign) == (intake.parent, intake.link)


def test_open_uploads_are_remembered_within_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A master would keep a client's span for each upload that never ends."""
    monkeypatch.setattr(event_spans, "MOST_UPLOADS", 2)
    leader, senders = spans(), {}
    for name in ("a", "b", "c"):
        senders[name] = span_of(trace_of(name, DIGEST), "upload")
        opened = UploadOpened(bundle=name, digest=DIGEST, size=1, traceparent=header_of(senders[name]))
        leader.of_event(opened, 1.0)
    parents = [
        made(leader.of_event(BundleUploaded(bundle=name, digest=DIGEST, size=1), 2.0)).parent for name in senders
    ]

    assert [None, senders["b"].span_id, senders["c"].span_id] == parents


def test_a_publication_says_when_where_and_from_whom() -> None:
    """Nobody could see from a trace which host was slow, and why."""
    span = made(spans(is_master=False, node="h1").of_event(DownloadFinished(**END), 100.0))
    said = {key.removeprefix("torrentdist."): value for key, value in span.attributes.items()}

    assert (96.0, 100.0, "") == (span.began, span.ended, span.error)
    assert ("etl-42", DIGEST, "h1") == (said["bundle"], said["digest"], said["host"])
    assert (60, 30, 10) == (said["bytes.masters"], said["bytes.peers"], said["bytes.local"])
    assert (0.5, 2.0, "finished") == (said["wait_secs"], said["fetch_secs"], said["result"])


@pytest.mark.parametrize(("code", "error"), [("corrupt", "corrupt: a piece is bad"), ("stopped", "")])
def test_only_a_failed_fetch_is_an_error(code: str, error: str) -> None:
    """A fetch that nobody wants any more would raise an alarm, or a failure would raise none."""
    span = made(spans().of_event(DownloadFailed(**END, code=code, reason="a piece is bad"), 100.0))

    assert (error, code) == (span.error, span.attributes["torrentdist.result"])


def test_a_distribution_lasts_until_the_last_host_has_the_bundle() -> None:
    """It would seem to last until the leader looked again."""
    whole = made(spans().of_event(DISTRIBUTED, 100.0))
    short = msgspec.structs.replace(DISTRIBUTED, done=1, secs_100=None)
    cancelled = made(spans().of_event(msgspec.structs.replace(short, cancelled=True), 100.0))
    partly = made(spans().of_event(short, 100.0))

    assert (10.0, 22.5, "") == (whole.began, whole.ended, whole.error)
    assert (25.0, "1 of 2 hosts have it") == (partly.ended, partly.error)
    assert ("", "cancelled") == (cancelled.error, cancelled.attributes["torrentdist.result"])
    assert 100 == whole.attributes["torrentdist.bytes.masters"]


def test_other_events_are_no_spans() -> None:
    """A trace would be full of what is no operation."""
    assert spans().of_event(HashFailed(digest=DIGEST, piece=1), 1.0) is None


def test_a_share_of_the_traces_is_kept_by_all_or_by_none() -> None:
    """Traces would have gaps, or too many would be kept."""
    traces = [trace_of(f"etl-{number}", DIGEST) for number in range(1000)]
    kept = sum(is_kept(trace, 0.3) for trace in traces)

    assert 200 < kept < 400
    assert (1000, 0) == (sum(is_kept(trace, 1.0) for trace in traces), sum(is_kept(trace, 0.0) for trace in traces))
    assert [] == [trace for trace in traces if is_kept(trace, 0.3) and not is_kept(trace, 0.6)]
    assert spans(share=0.0).of_event(UPLOADED, 1.0) is None
    assert spans(share=0.0).of_event(DISTRIBUTED, 100.0) is None


@pytest.mark.parametrize(
    "header",
    [
        "",
        "00-" + "0" * 32 + "-" + "1" * 16 + "-01",
        "00-" + "1" * 32 + "-" + "0" * 16 + "-01",
        "ff-" + "1" * 32 + "-" + "1" * 16 + "-01",
        "00-" + "1" * 32 + "-" + "1" * 16 + "-01-more",
        "00-" + "G" * 32 + "-" + "1" * 16 + "-01",
        "00-" + "1" * 31 + "-" + "1" * 16 + "-01",
    ],
)
def test_a_header_that_names_no_span_is_ignored(header: str) -> None:
    """A client with a broken header would get a broken trace, or an error."""
    assert place_in(header) is None


def test_a_header_names_the_span_that_it_was_made_of() -> None:
    """The leader would hang its span below another one."""
    later_version = header_of(SpanPlace(TRACE, 5)).replace("00-", "01-", 1) + "-more"

    assert SpanPlace(TRACE, 5) == place_in(header_of(SpanPlace(TRACE, 5))) == place_in(later_version)


# sending


@pytest.mark.parametrize(
    "endpoint", ["http://c:4318", "http://c:4318/", "http://c:4318/v1/traces", "http://c:4318/v1/traces/"]
)
def test_an_endpoint_may_or_may_not_name_the_path(endpoint: str) -> None:
    """A user who copies the endpoint from another program would get no traces."""
    assert "http://c:4318/v1/traces" == TracesConfig(endpoint=endpoint).url


def one_span(number: int = 1) -> TraceSpan:
    place = span_of(TRACE, str(number))
    return TraceSpan(
        name="test", place=place, parent=7, link=SpanPlace(1, 2), began=1.5, ended=2.5, attributes={"n": 1}
    )


def test_a_collector_gets_what_was_added() -> None:
    """Spans would arrive in another trace, at another time, or not at all."""
    with trace_collector() as collector:
        exporter = SpanExporter(TracesConfig(endpoint=f"{collector.url}/"), "torrentdist-test", "n1")
        exporter.add(one_span())
        exporter.close()
        until(lambda: collector.spans(), "the span is there")
        (seen,) = collector.spans()

    assert (f"{TRACE:032x}", f"{one_span().place.span_id:016x}", f"{7:016x}") == (seen.trace, seen.id, seen.parent)
    assert ("test", "torrentdist-test", 1.5, 2.5, {"n": 1}) == (
        seen.name,
        seen.service,
        seen.began,
        seen.ended,
        seen.attributes,
    )
    assert ((f"{1:032x}", f"{2:016x}"),) == seen.links
    assert 0 == exporter.dropped


def test_a_silent_collector_costs_spans_and_no_time() -> None:
    """A collector that hangs would stop the masters, or fill their memory."""
    with trace_collector() as collector:
        collector.answers.clear()
        exporter = SpanExporter(TracesConfig(endpoint=collector.url), "torrentdist-test", "n1")
        count = MOST_WAITING + 3 * MOST_AT_ONCE
        for number in range(count):
            exporter.add(one_span(number))
        # All calls have returned, and the collector has not answered the first request yet.
        refused, asked = exporter.dropped, collector.asked
        collector.answers.set()
        until(lambda: len(collector.spans()) + exporter.dropped >= count, "all are sent or dropped")
        exporter.close()

    assert refused >= 2 * MOST_AT_ONCE
    assert asked <= 1


def test_what_a_collector_does_not_take_is_counted() -> None:
    """An operator would not learn that traces are missing."""
    with trace_collector() as collector:
        endpoint = f"{collector.url}/elsewhere"
        exporter = SpanExporter(TracesConfig(endpoint=endpoint), "torrentdist-test", "n1")
        exporter.add(one_span())
        until(lambda: exporter.dropped == 1, "it is counted")
        exporter.close()


def test_without_the_packages_spans_are_counted_and_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon whose host lacks the packages would not start."""
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", None)
    exporter = SpanExporter(TracesConfig(endpoint="http://127.0.0.1:1"), "torrentdist-test", "n1")
    exporter.add(one_span())
    until(lambda: exporter.dropped == 1, "it is counted")
    exporter.close()


OFF = """
import asyncio, sys, threading
from pathlib import Path
import torrentdist.master.daemon, torrentdist.supervisor.daemon, torrentdist.client.bundles.upload
from torrentdist.traces.upload_trace import traced_upload
from torrentdist.host.telemetry.event_log import EventLog
from torrentdist.host.telemetry.event_traces import EventTraces
from torrentdist.model.configuration.config import Config, EventsConfig, TracesConfig
from torrentdist.model.events import BundleUploaded, Writer
from torrentdist.model.wire.swarm_messages import PeerRole

async def upload():
    async with traced_upload(Config().traces) as trace:
        assert trace is None

writer = Writer(node="m1", role="master", rack="", run="1")
events = EventLog(Path(sys.argv[1]), EventsConfig(enabled=False), writer, lambda: None)
traces = EventTraces(Config().traces, PeerRole.MASTER, "m1", lambda: None)
traces.follow(events)
events.emit(BundleUploaded(bundle="b", digest="d" * 64, size=1))
asyncio.run(upload())
asyncio.run(traces.close())
print([name for name in sys.modules if "opentelemetry" in name], [t.name for t in threading.enumerate()])
print(len(events._listeners))
"""


def test_without_an_endpoint_nothing_is_imported_started_or_heard(tmp_path: Any) -> None:
    """Everybody would pay for what only a few use."""
    ran = subprocess.run([sys.executable, "-c", OFF, str(tmp_path)], capture_output=True, text=True, timeout=60)

    assert "[] ['MainThread']\n0\n" == ran.stdout, ran.stderr
