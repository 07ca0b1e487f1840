"""`torrentdist report`: turns files of events into Parquet tables and a page, once or again and
again.

Always: lines are parsed once. Few lines stay in memory; many go into a store beside the tables.
Never: change the files of events.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from torrentdist.model.errors import TorrentdistError
from torrentdist.spark.reporting import event_reading
from torrentdist.spark.reporting.arrivals import Frames
from torrentdist.spark.reporting.event_files import FEW_BYTES, EventSource
from torrentdist.spark.reporting.event_reading import DUPLICATE, TOO_OLD
from torrentdist.spark.reporting.event_store import EventStore, Stored, absorb
from torrentdist.spark.reporting.report_directory import PAGE, ReportDirectory
from torrentdist.spark.reporting.report_directory import TABLES as FOLDER
from torrentdist.spark.reporting.report_page import render
from torrentdist.spark.reporting.table_files import make_tables, write_skipped
from torrentdist.spark.spark_errors import found_lines, spark_errors
from torrentdist.spark.spark_session import suited_to_few

STORE, CHECKPOINT = "events", "checkpoint"
FEW_LINES = 64_000
"""A report of at most this many lines stays in memory, in one partition."""
FILES_AT_ONCE = 1000
"""Most files in one batch of a followed report."""
LOOK_SECS = 1
"""Seconds between two looks at whether a followed report is to stop."""


class ReportView(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `report`."""

    out: str
    page: str
    events: int
    skipped: dict[str, int]
    bundles: int
    hosts: int
    seconds: float
    incomplete: int = 0
    """Bundles that some host began to fetch and lacks."""
    failures: int = 0
    """Downloads that failed."""
    unclocked: int = 0
    """Daemons without a known clock. Their times are not compared with those of others."""


def run_once(spark: SparkSession, source: EventSource, out: Path) -> ReportView:
    """Reports all events that are there now. Replaces an older report in `out`."""
    began = time.monotonic()
    directory = ReportDirectory(out)
    directory.claim()
    with spark_errors(source.path), directory.work() as work:
        lines = found_lines(
            lambda: event_reading.read_lines(spark, source.path, *source.snapshot(work / "open")), source.path
        )
        size = source.size()
        if size is not None and size <= FEW_BYTES:
            with _few(spark, event_reading.judged(lines)) as judged:
                return make_report(_judged(judged, source.path), directory, work, began, few=True)
        counts = absorb(lines, f"{work}/{STORE}")
        if counts["lines"] == 0:
            raise TorrentdistError("no_events", path=source.path)
        events = spark.read.schema(event_reading.schema()).parquet(f"{work}/{STORE}")
        return _report_of(Stored(events, counts), directory, work, began)


def follow(
    spark: SparkSession,
    source: EventSource,
    out: Path,
    *,
    every_secs: float,
    keep_secs: float,
    say: Callable[[ReportView], None],
    once: bool = False,
    stopping: threading.Event | None = None,
) -> None:
    """Makes a new report whenever files were closed. A later call goes on where this one stopped.

    `keep_secs`: older events are left out of the report and deleted from the store; 0: none are.
    `once`: returns when all present files are in the report. `stopping`: ends the loop when set.
    """
    stopping = stopping or threading.Event()
    directory = ReportDirectory(out)
    directory.claim()
    store = EventStore(out / STORE, keep_secs)
    lines = found_lines(lambda: event_reading.stream_lines(spark, source.path, FILES_AT_ONCE), source.path)

    def on_batch(batch: DataFrame, number: int) -> None:
        began = time.monotonic()
        store.add(batch, number)
        if not stopping.is_set():
            with directory.work() as work:
                stored = _with_open_files(store.stored(batch.sparkSession), source, work)
                say(_report_of(stored, directory, work, began))

    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": f"{every_secs} seconds"}
    writer = lines.writeStream.foreachBatch(on_batch).option("checkpointLocation", str(out / CHECKPOINT))
    with spark_errors(source.path):
        query = writer.trigger(**trigger).start()
        try:
            while not query.awaitTermination(LOOK_SECS) and not stopping.is_set():
                pass
        finally:
            _stop(query)


def _stop(query: Any) -> None:
    """Stops the query quietly. A batch that is cut off logs an error, and runs again with the next
    call."""
    log = logging.getLogger("py4j")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        query.stop()
    finally:
        log.setLevel(level)


def _with_open_files(stored: Stored, source: EventSource, work: Path) -> Stored:
    paths = source.snapshot(work / "open")
    if not paths:
        return stored
    spark = stored.events.sparkSession
    counts = absorb(event_reading.read_lines(spark, *paths), f"{work}/{STORE}")
    open_events = spark.read.schema(event_reading.schema()).parquet(f"{work}/{STORE}")
    summed = {name: stored.counts.get(name, 0) + counts.get(name, 0) for name in stored.counts | counts}
    return Stored(stored.events.unionByName(open_events), summed, stored.oldest)


def _report_of(stored: Stored, directory: ReportDirectory, work: Path, began: float) -> ReportView:
    """Makes a report of stored events, in memory and in one partition if they are few."""
    spark = stored.events.sparkSession
    if stored.counts["lines"] > FEW_LINES:
        return make_report(stored, directory, work, began, few=False)
    with _few(spark, stored.events) as events:
        return make_report(Stored(events, stored.counts, stored.oldest), directory, work, began, few=True)


@contextlib.contextmanager
def _few(spark: SparkSession, frame: DataFrame) -> Iterator[DataFrame]:
    """Keeps the rows in memory, in one partition: no table needs a shuffle then."""
    with suited_to_few(spark):
        kept = frame.coalesce(1).persist()
        try:
            yield kept
        finally:
            kept.unpersist()


def _judged(judged: DataFrame, path: str) -> Stored:
    counted = judged.agg(F.count(F.lit(1)).alias("lines"), *event_reading.skip_counts()).collect()[0].asDict()
    if counted["lines"] == 0:
        raise TorrentdistError("no_events", path=path)
    return Stored(judged.where(F.col("skipped").isNull()).drop(event_reading.CORRUPT, "skipped"), counted)


def make_report(stored: Stored, directory: ReportDirectory, work: Path, began: float, *, few: bool) -> ReportView:
    """Makes tables and page in `work` from usable events, and publishes them in `directory`."""
    with contextlib.ExitStack() as used:
        usual = _kept(used, event_reading.clocks(stored.events))
        twice = event_reading.duplicates(stored.events)
        events = event_reading.unique(event_reading.timed(stored.events, usual), twice.keys())
        events = _kept(used, events.coalesce(1)) if few else events
        recent = events.where(F.col("t") >= stored.oldest) if stored.oldest else events
        frames = Frames.of(recent).persisted(few=few)
        used.callback(frames.unpersist)
        skipped = {name: count for name, count in stored.counts.items() if name != "lines"}
        skipped[DUPLICATE] = sum(twice.values())
        if stored.oldest:
            skipped[TOO_OLD] = skipped.get(TOO_OLD, 0) + events.where(F.col("t") < stored.oldest).count()
        collected = make_tables(frames, work / FOLDER, few=few)
        clocks = event_reading.clock_counts(usual).collect()[0]
    write_skipped(skipped, work / FOLDER / "skipped")
    page = render(collected, skipped, lines=stored.counts["lines"], unclocked=clocks["unclocked"])
    (work / PAGE).write_text(page, encoding="utf-8")
    directory.publish(work)
    total = {name: max((row[name] for row in collected["summary"]), default=0) for name in ("bundles", "incomplete")}
    return ReportView(
        out=str(directory.path),
        page=str(directory.path / PAGE),
        events=sum(row["count"] for row in collected["kinds"]),
        skipped=skipped,
        bundles=total["bundles"],
        hosts=clocks["daemons"],
        seconds=time.monotonic() - began,
        incomplete=total["incomplete"],
        failures=sum(row["failures"] for row in collected["summary"]),
        unclocked=clocks["unclocked"],
    )


def _kept(used: contextlib.ExitStack, frame: DataFrame) -> DataFrame:
    kept = frame.persist()
    used.callback(kept.unpersist)
    return kept
