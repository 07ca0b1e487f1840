"""`torrentdist report`: from files of events to Parquet tables and one page, once or for as long as more of them come.

Always: lines are parsed once, and everything else reads what came of that; few lines stay in memory, many go into a
store beside the tables. Never: change what it reads, or bring a large table to the driver.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet  # type: ignore[import-untyped]
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException
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
from torrentdist.spark.reporting.report_tables import NEWEST_LAST, TABLES
from torrentdist.spark.spark_session import suited_to_few

STORE, CHECKPOINT = "events", "checkpoint"
MOST_ROWS = 2000
"""Rows of a table that the page gets. The Parquet files have them all."""
FEW_LINES = 64_000
FILES_AT_ONCE = 1000
TABLES_AT_ONCE = 3
LOOK_SECS = 1


class ReportView(msgspec.Struct, frozen=True, kw_only=True):
    """`report`"""

    out: str
    page: str
    events: int
    skipped: dict[str, int]
    bundles: int
    hosts: int
    seconds: float
    incomplete: int = 0
    """Bundles that some host began with and doesn't have."""
    failures: int = 0
    """Downloads that failed."""
    unclocked: int = 0
    """Daemons whose clock is unknown: no time that hosts compare comes from them."""


def run_once(spark: SparkSession, source: EventSource, out: Path) -> ReportView:
    """Everything that is there now. What an earlier report left in `out` is replaced."""
    began = time.monotonic()
    directory = ReportDirectory(out)
    directory.claim()
    with _spark_errors(source.path), directory.work() as work:
        lines = _found(
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
    """The same over and over, whenever files were closed. Stopped and run again it goes on where it was.

    `keep_secs`: older events are left out, and deleted from what it keeps; 0: none are. `once`: until all that is there
    now is in the report. `stopping`: ends it.
    """
    stopping = stopping or threading.Event()
    directory = ReportDirectory(out)
    directory.claim()
    store = EventStore(out / STORE, keep_secs)
    lines = _found(lambda: event_reading.stream_lines(spark, source.path, FILES_AT_ONCE), source.path)

    def on_batch(batch: DataFrame, number: int) -> None:
        began = time.monotonic()
        store.add(batch, number)
        if not stopping.is_set():
            with directory.work() as work:
                stored = _with_open_files(store.stored(batch.sparkSession), source, work)
                say(_report_of(stored, directory, work, began))

    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": f"{every_secs} seconds"}
    writer = lines.writeStream.foreachBatch(on_batch).option("checkpointLocation", str(out / CHECKPOINT))
    with _spark_errors(source.path):
        query = writer.trigger(**trigger).start()
        try:
            while not query.awaitTermination(LOOK_SECS) and not stopping.is_set():
                pass
        finally:
            _stop(query)


def _stop(query: Any) -> None:
    """A batch that runs now ends with an error, which is no news: it is run again when the report is followed again."""
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
    """In memory and in one partition if it turned out to be little."""
    spark = stored.events.sparkSession
    if stored.counts["lines"] > FEW_LINES:
        return make_report(stored, directory, work, began, few=False)
    with _few(spark, stored.events) as events:
        return make_report(Stored(events, stored.counts, stored.oldest), directory, work, began, few=True)


@contextlib.contextmanager
def _few(spark: SparkSession, frame: DataFrame) -> Iterator[DataFrame]:
    """Rows that are all in one partition are never sent around: a table is one task."""
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
    """Tables and page over usable events."""
    with contextlib.ExitStack() as used:
        usual = _kept(used, event_reading.clocks(stored.events))
        twice = event_reading.duplicates(stored.events)
        events = event_reading.unique(event_reading.timed(stored.events, usual), twice.keys())
        events = _kept(used, events.coalesce(1)) if few else events
        recent = events.where(F.col("t") >= stored.oldest) if stored.oldest else events
        frames = Frames.of(recent).persisted()
        used.callback(frames.unpersist)
        skipped = {name: count for name, count in stored.counts.items() if name != "lines"}
        skipped[DUPLICATE] = sum(twice.values())
        if stored.oldest:
            skipped[TOO_OLD] = skipped.get(TOO_OLD, 0) + events.where(F.col("t") < stored.oldest).count()
        collected = _make_tables(frames, work / FOLDER, few=few)
        clocks = event_reading.clock_counts(usual).collect()[0]
    _write_skipped(skipped, work / FOLDER / "skipped")
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


def _make_tables(frames: Frames, directory: Path, *, few: bool) -> dict[str, list[dict[str, Any]]]:
    """Some at a time: most of them keep only some of the cores busy, or the driver."""
    write = _write_few if few else _write
    with ThreadPoolExecutor(TABLES_AT_ONCE) as pool:
        written = {name: pool.submit(write, table(frames), directory / name) for name, table in TABLES.items()}
        for rows in written.values():
            rows.result()
    return {name: _rows_for_page(directory / name, newest_last=name in NEWEST_LAST) for name in TABLES}


def _write(table: DataFrame, target: Path) -> None:
    table.write.parquet(f"{target}")


def _write_few(table: DataFrame, target: Path) -> None:
    """As Parquet, without a job of Spark that writes."""
    _write_arrow(table.toArrow(), target)


def _rows_for_page(target: Path, *, newest_last: bool) -> list[dict[str, Any]]:
    """The first rows of a table, or the last ones."""
    rows: list[dict[str, Any]] = []
    for path in target.glob("*.parquet"):
        with pyarrow.parquet.ParquetFile(path) as file:
            groups = range(file.num_row_groups)
            for group in reversed(groups) if newest_last else groups:
                more = file.read_row_group(group).to_pylist()
                rows = [*more, *rows] if newest_last else [*rows, *more]
                if len(rows) >= MOST_ROWS:
                    break
    return rows[-MOST_ROWS:] if newest_last else rows[:MOST_ROWS]


def _write_skipped(skipped: Mapping[str, int], target: Path) -> None:
    columns = {"reason": pyarrow.array(skipped.keys(), "string"), "lines": pyarrow.array(skipped.values(), "int64")}
    _write_arrow(pyarrow.table(columns), target)


def _write_arrow(rows: Any, target: Path) -> None:
    target.mkdir(parents=True)
    pyarrow.parquet.write_table(rows, target / "part-00000.snappy.parquet")


def _found(read: Callable[[], DataFrame], path: str) -> DataFrame:
    try:
        return read()
    except AnalysisException as exc:
        raise TorrentdistError("events_not_found", path=path, detail=_first_line(exc)) from None


@contextlib.contextmanager
def _spark_errors(path: str) -> Iterator[None]:
    """What Spark says in a stack trace of Java, in a line."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as exc:
        raise TorrentdistError("report_failed", path=path, detail=_cause(exc)) from None


def _cause(exc: Exception) -> str:
    """The innermost exception of Java's, which names what is wrong."""
    text = str(exc)
    causes = [line for line in text.splitlines() if line.startswith("Caused by: ")]
    if causes:
        return causes[-1].removeprefix("Caused by: ")
    lines: Sequence[str] = [line.strip() for line in text.splitlines() if line.strip()]
    said = (line.removeprefix(": ") for line in lines if line.startswith(": "))
    return next(said, lines[0] if lines else type(exc).__name__)


def _first_line(exc: Exception) -> str:
    return str(exc).splitlines()[0]
