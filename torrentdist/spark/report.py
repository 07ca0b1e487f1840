"""`torrentdist report`: from files of events to Parquet tables and one page, once or for as long as more of them come.

Always holds: lines are parsed once, into a store of usable events beside the tables, and everything else reads that;
only tables of a few rows come to the driver. Must not do: change what it reads.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from torrentdist.model.errors import TorrentdistError
from torrentdist.spark import reading
from torrentdist.spark.page import render
from torrentdist.spark.reading import DUPLICATE
from torrentdist.spark.session import suited_to
from torrentdist.spark.store import EventStore, absorb
from torrentdist.spark.tables import TABLES

STORE, CHECKPOINT, PAGE = "events", "checkpoint", "report.html"
MOST_ROWS = 2000
"""Of a table on the page. The Parquet files have them all."""
FILES_AT_ONCE = 1000
TABLES_AT_ONCE = 3


class ReportView(msgspec.Struct, frozen=True, kw_only=True):
    """`report`"""

    out: str
    page: str
    events: int
    skipped: dict[str, int]
    bundles: int
    hosts: int
    seconds: float


def run_once(spark: SparkSession, path: str, out: Path) -> ReportView:
    """Everything below `path`, once. What an earlier report left in `out` is replaced."""
    began = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".work-", dir=out) as work:
        counts = absorb(_found(lambda: reading.read_lines(spark, path), path), f"{work}/{STORE}")
        if counts["lines"] == 0:
            raise TorrentdistError("no_events", path=path)
        return make_report(spark.read.schema(reading.schema()).parquet(f"{work}/{STORE}"), out, counts, began)


def follow(
    spark: SparkSession,
    path: str,
    out: Path,
    *,
    every_secs: float,
    keep_secs: float,
    say: Callable[[ReportView], None],
    once: bool = False,
) -> None:
    """The same over and over, whenever new files have come. Stopped and run again it goes on where it was.

    `keep_secs`: older events are left out, and deleted from what it keeps; 0: none are.
    `once`: until all that is there now is in the report.
    """
    store = EventStore(out / STORE, keep_secs)
    out.mkdir(parents=True, exist_ok=True)
    lines = _found(lambda: reading.stream_lines(spark, path, FILES_AT_ONCE), path)

    def on_batch(batch: DataFrame, number: int) -> None:
        began = time.monotonic()
        store.add(batch, number)
        say(make_report(store.events(batch.sparkSession), out, store.counts(), began))

    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": f"{every_secs} seconds"}
    query = (
        lines.writeStream.foreachBatch(on_batch)
        .option("checkpointLocation", str(out / CHECKPOINT))
        .trigger(**trigger)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()


def make_report(stored: DataFrame, out: Path, counts: Mapping[str, int], began: float) -> ReportView:
    """Tables and page over usable events."""
    with suited_to(stored.sparkSession, counts["lines"]):
        usual = reading.clocks(stored).persist()
        try:
            twice = reading.duplicates(stored)
            events = reading.unique(reading.timed(stored, usual), twice.keys())
            collected = _make_tables(events, out / "tables")
            hosts = usual.select("node").distinct().count()
        finally:
            usual.unpersist()
        skipped = {name: count for name, count in counts.items() if name != "lines"} | {DUPLICATE: sum(twice.values())}
        _write(_counted(stored.sparkSession, skipped), out / "tables" / "skipped")
    page = out / PAGE
    _replace(page, render(collected, skipped, lines=counts["lines"]))
    return ReportView(
        out=str(out),
        page=str(page),
        events=sum(row["count"] for row in collected["kinds"]),
        skipped=skipped,
        bundles=len({row["digest"] for row in collected["spread"]}),
        hosts=hosts,
        seconds=time.monotonic() - began,
    )


def _counted(spark: SparkSession, skipped: Mapping[str, int]) -> DataFrame:
    """Not from Python values, which needs Python on the executors."""
    rows = (F.struct(F.lit(reason).alias("reason"), F.lit(count).alias("lines")) for reason, count in skipped.items())
    counted: DataFrame = spark.range(1).select(F.inline(F.array(*rows)))
    return counted


def _make_tables(events: DataFrame, directory: Path) -> dict[str, list[dict[str, Any]]]:
    """Some at a time: most of them keep only some of the cores busy, or the driver."""
    with ThreadPoolExecutor(TABLES_AT_ONCE) as pool:
        written = {name: pool.submit(_write, table(events), directory / name) for name, table in TABLES.items()}
        return {name: rows.result() for name, rows in written.items()}


def _write(table: DataFrame, target: Path) -> list[dict[str, Any]]:
    """As Parquet; and its first rows, for the page."""
    table.coalesce(1).write.mode("overwrite").parquet(f"{target}")
    written = table.sparkSession.read.schema(table.schema).parquet(f"{target}")
    return [row.asDict(recursive=True) for row in written.limit(MOST_ROWS).collect()]


def _replace(page: Path, text: str) -> None:
    """Who has the page open never reads half of it."""
    new = page.with_name(f".{page.name}")
    new.write_text(text, encoding="utf-8")
    new.rename(page)


def _found(read: Callable[[], DataFrame], path: str) -> DataFrame:
    try:
        return read()
    except AnalysisException as exc:
        raise TorrentdistError("events_not_found", path=path, detail=str(exc).splitlines()[0]) from None
