"""The report from files to the page: odd lines, counts and refusals."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet  # type: ignore[import-untyped]
import pytest
from event_fixtures import line, small_data, write_lines
from pyspark.sql import SparkSession

from bench.spark.generated_events import generated, write_events
from torrentdist.model.errors import TorrentdistError
from torrentdist.spark.reporting import report
from torrentdist.spark.reporting.event_files import find_events
from torrentdist.spark.reporting.event_reading import DUPLICATE, OTHER_KIND, OTHER_VERSION, TORN

MANY = 250_000
LONGEST_SECS = 300.0
"""A bound that only means: not for hours. It takes 12 s alone."""


def story(node: str, *, digest: str = "d" * 64, at: float = 100.0) -> list[dict[str, Any] | str]:
    about = {"node": node, "bundle": "<b>&", "digest": digest, "size": 100}
    figures = dict.fromkeys(("prepare_secs", "wait_secs", "fetch_secs", "publish_secs"), 1.0)
    counts = {"from_masters": 25, "from_peers": 75, "local": 0, "peers": 2, "hash_failures": 0, "sources": []}
    end = line("download_finished", **about, at=at + 4, seconds=4.0, **figures, **counts)
    return [line("download_started", **about, at=at), end]


@pytest.fixture(scope="module")
def odd(local_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> report.ReportView:
    """The report over a good story, a file that is still being written, and lines with every
    possible error."""
    top = tmp_path_factory.mktemp("odd")
    lines: list[dict[str, Any] | str] = [
        *story("h1"),
        '{"v":1,"event":"download_fini',
        '{"v":1,"event":"hash_failed"}',
        line("hash_failed", v=2, digest=["another", "type"]),
        line("coffee_made"),
        {**line("download_started", bundle="b", digest="e" * 64, size=1), "unknown": {"field": 1}},
        {**story("h1")[1], "seq": 1},  # type: ignore[dict-item]
    ]
    write_lines(top / "in" / "host-1", lines)
    write_lines(top / "in" / "host-1", story("h9"), name="_events-h9-1.jsonl")
    write_lines(top / "in" / "host-1", story("h8"), name="_other-program.jsonl")
    with small_data(local_spark):
        return report.run_once(local_spark, find_events(str(top / "in"), {}), top / "out")


def test_what_cannot_be_used_is_left_out_and_counted(local_spark: SparkSession, odd: report.ReportView) -> None:
    """A torn line would end the report, or a line of another release would be misread."""
    table = {row["reason"]: row["lines"] for row in local_spark.read.parquet(f"{odd.out}/tables/skipped").collect()}

    assert {TORN: 2, OTHER_VERSION: 1, OTHER_KIND: 1, DUPLICATE: 1} == odd.skipped == table
    assert (5, 2, 2) == (odd.events, odd.hosts, odd.bundles)


def test_the_page_needs_nothing_else_and_believes_no_name(odd: report.ReportView) -> None:
    """A page that loads something shows nothing on a cut-off host; a bundle's name could run a
    script in it."""
    page = Path(odd.page).read_text()

    assert [] == re.findall(r"<script|<link|https?://|<b>&(?!amp)", page)
    assert "&lt;b&gt;&amp;" in page
    assert page.count("<svg") >= 2
    assert {"report.html", "tables", "torrentdist-report.json"} == {path.name for path in Path(odd.out).iterdir()}


def test_small_and_large_reports_write_tables_of_the_same_types(
    local_spark: SparkSession, odd: report.ReportView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, a program that reads the tables breaks when its cluster grows, or times change
    their meaning."""
    write_lines(tmp_path / "in", story("h1"))
    monkeypatch.setattr(report, "FEW_BYTES", 0)
    monkeypatch.setattr(report, "FEW_LINES", 0)
    with small_data(local_spark):
        large = report.run_once(local_spark, find_events(str(tmp_path / "in"), {}), tmp_path / "out")

    assert column_types(odd.out) == column_types(large.out)


def column_types(out: str) -> dict[str, dict[str, str]]:
    found = {}
    for table in Path(out, "tables").iterdir():
        schema = pyarrow.parquet.read_schema(next(table.glob("*.parquet")))
        found[table.name] = {field.name: str(field.type) for field in schema}
    return found


def test_following_goes_on_where_it_was(local_spark: SparkSession, tmp_path: Path) -> None:
    """A report that is continued would forget, or count twice, what it read before it was
    stopped."""
    views: list[report.ReportView] = []
    for node in ("h1", "h2"):
        write_lines(tmp_path / "in", story(node), name=f"events-{node}.jsonl")
        options: dict[str, Any] = {"every_secs": 1, "keep_secs": 0, "say": views.append, "once": True}
        with small_data(local_spark):
            report.follow(local_spark, find_events(str(tmp_path / "in"), {}), tmp_path / "out", **options)

    assert [(2, 1), (4, 2)] == [(view.events, view.hosts) for view in views]
    assert {0} == {count for view in views for count in view.skipped.values()}


def test_a_file_system_without_its_jar_is_named_in_a_line(local_spark: SparkSession, tmp_path: Path) -> None:
    """The user would get `internal` and three screens of Java for a missing setting."""
    with pytest.raises(TorrentdistError) as caught:
        report.run_once(local_spark, find_events("s3a://bucket/events", {}), tmp_path / "out")

    assert "report_failed" == caught.value.code
    assert "S3AFileSystem not found" in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.__cause__ is None


def test_a_quarter_million_events_are_read_in_minutes(local_spark: SparkSession, tmp_path: Path) -> None:
    """A cluster of a thousand hosts writes this many events in three hours. A report that takes
    hours is not read."""
    write_events(generated(local_spark, MANY, partitions=8), tmp_path / "in")
    began = time.monotonic()
    view = report.run_once(local_spark, find_events(str(tmp_path / "in"), {}), tmp_path / "out")
    seconds = time.monotonic() - began
    print(f"{view.events} events in {seconds:.1f} s", file=sys.stderr)

    assert seconds < LONGEST_SECS
    assert (25, 1000, 0) == (view.bundles, view.hosts, sum(view.skipped.values()))
    assert view.events >= MANY
