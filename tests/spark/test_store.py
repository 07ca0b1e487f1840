"""The store of a followed report: complete after every crash, few directories, nothing too old."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from event_fixtures import line, small_data, write_lines
from pyspark.sql import SparkSession

from torrentdist.spark.reporting.event_reading import TOO_OLD, read_lines
from torrentdist.spark.reporting.event_store import EventStore

AT_ONCE = 2
NOW = time.time()


def add(spark: SparkSession, store: EventStore, top: Path, number: int, at: float = NOW) -> None:
    lines: list[dict[str, Any] | str] = [
        line("download_started", node=f"h{number}", at=at, bundle="b", digest="d", size=1)
    ]
    lines.append("torn")
    store.add(read_lines(spark, str(write_lines(top / f"in-{number}", lines))), number)


def nodes(spark: SparkSession, store: EventStore) -> list[str]:
    return sorted(row["node"] for row in store.stored(spark).events.select("node").collect())


@pytest.fixture(autouse=True)
def _small(local_spark: SparkSession) -> Iterator[None]:
    with small_data(local_spark):
        yield


def test_batches_are_merged_and_none_counts_twice(local_spark: SparkSession, tmp_path: Path) -> None:
    """A report that is followed for a month would have a directory for every half minute, and read
    all of them."""
    store, kept = EventStore(tmp_path / "store", 0, AT_ONCE), tmp_path / "kept"
    for number in range(5):
        add(local_spark, store, tmp_path, number)
    shutil.copytree(tmp_path / "store" / "batch=0-4", kept)
    add(local_spark, store, tmp_path, 4)  # again, as after a crash
    add(local_spark, store, tmp_path, 5)
    add(local_spark, store, tmp_path, 6)
    shutil.copytree(kept, tmp_path / "store" / "batch=0-4")  # a crash between the merge and the removal

    assert [f"h{number}" for number in range(7)] == nodes(local_spark, store)
    assert {"lines": 14, "torn or malformed": 7} == {
        name: n for name, n in store.stored(local_spark).counts.items() if n
    }
    assert ["batch=0-6", "batch=1-5", "batch=2-3"] == sorted(path.name for path in (tmp_path / "store").iterdir())


def test_what_is_too_old_goes_and_is_counted(local_spark: SparkSession, tmp_path: Path) -> None:
    """The disk would fill up, or a reader would think that the report covers everything."""
    store = EventStore(tmp_path / "store", 3600.0, AT_ONCE + 2)
    for number in range(3):
        add(local_spark, store, tmp_path, number)
    for number in range(2):
        about = tmp_path / "store" / f"batch=0-{number}" / "_about.json"
        about.write_text(json.dumps({**json.loads(about.read_text()), "newest": NOW - 7200.0}))
    found = [store.stored(local_spark) for _ in range(2)]

    assert ["h2"] == nodes(local_spark, store)
    assert ["batch=0-2"] == [path.name for path in (tmp_path / "store").glob("batch=*")]
    assert [(6, 4), (6, 4)] == [(stored.counts["lines"], stored.counts[TOO_OLD]) for stored in found]
    assert all(0 <= time.time() - 3600 - stored.oldest < 60 for stored in found)


def test_a_wrong_clock_does_not_make_an_event_old(local_spark: SparkSession, tmp_path: Path) -> None:
    """Events of a host without a clock battery, with dates of 1970, would never be in a followed
    report."""
    store = EventStore(tmp_path / "store", 3600.0, AT_ONCE)
    for number, at in enumerate([60.0, NOW, NOW]):
        add(local_spark, store, tmp_path, number, at)

    assert ["h0", "h1", "h2"] == nodes(local_spark, store)
