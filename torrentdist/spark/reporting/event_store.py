"""Usable events as Parquet. A followed report has one directory per batch; they are merged at
times.

Always: a directory is complete or absent. It records the number of its lines and the directories
that it replaces, so that a crash at any moment neither loses nor doubles an event.
Never: merge a batch that Spark may run again.
"""

import shutil
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from torrentdist.model.wire.view import decode_json
from torrentdist.spark.reporting import event_reading

MERGED_AT_ONCE = 16
LEVELS = 2
"""Number of times that an event is merged. Directories of 256 batches stay until they are too
old."""
_ABOUT = "_about.json"
_FORGOTTEN = "_forgotten.json"


def absorb(lines: DataFrame, store: str) -> dict[str, int]:
    """Writes usable lines to the store, by kind. Returns the number of lines, and of unusable ones
    by reason."""
    seen = Observation()
    watched = event_reading.judged(lines).observe(seen, F.count(F.lit(1)).alias("lines"), *event_reading.skip_counts())
    usable = watched.where(F.col("skipped").isNull()).drop(event_reading.CORRUPT, "skipped")
    usable.write.mode("overwrite").partitionBy("event").parquet(store)
    return dict(seen.get)


class Stored(msgspec.Struct, frozen=True):
    """Usable events, and the number of lines, read and skipped."""

    events: DataFrame
    counts: dict[str, int]
    oldest: float = 0.0
    """Events before this time of ZooKeeper's clock are left out; 0: none are."""


class Forgotten(msgspec.Struct, frozen=True):
    """Number of lines deleted because of their age, up to and including the batch `last`."""

    lines: int = 0
    last: int = -1


class About(msgspec.Struct, frozen=True, kw_only=True):
    counts: dict[str, int]
    newest: float
    """Time of reading; no event is younger."""
    replaces: list[str] = []


class EventPart(msgspec.Struct, frozen=True):
    path: Path
    level: int
    number: int
    about: About


class EventStore:
    def __init__(self, directory: Path, keep_secs: float, merged_at_once: int = MERGED_AT_ONCE) -> None:
        self._directory = directory
        self._keep_secs = keep_secs
        self._merged_at_once = merged_at_once

    def add(self, batch: DataFrame, number: int) -> None:
        """Adds a batch. A batch that runs again after a crash replaces its first result."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._merge(batch.sparkSession, before=number)
        work = self._work()
        counts = absorb(batch, str(work))
        self._publish(work, f"batch=0-{number}", About(counts=counts, newest=time.time()))

    def stored(self, spark: SparkSession) -> Stored:
        """Returns all kept events. Deleted lines are counted as too old."""
        parts = self._parts()
        counts = _summed(parts)
        forgotten = self._forgotten()
        counts["lines"] += forgotten.lines
        counts[event_reading.TOO_OLD] = forgotten.lines
        return Stored(self._read(spark, parts), counts, self._oldest())

    def _read(self, spark: SparkSession, parts: Iterable[EventPart]) -> DataFrame:
        reader = spark.read.schema(event_reading.schema()).option("basePath", str(self._directory))
        return reader.parquet(*(str(part.path) for part in parts)).drop("batch")

    def _oldest(self) -> float:
        return time.time() - self._keep_secs if self._keep_secs else 0.0

    def _parts(self) -> list[EventPart]:
        """Returns the current parts. Deletes parts that were replaced or are too old."""
        parts = [_part(path) for path in self._directory.glob("batch=*")]
        replaced = {name for part in parts for name in part.about.replaces}
        old = [part for part in parts if part.path.name not in replaced and part.about.newest < self._oldest()]
        self._forget(old)
        gone = [part for part in parts if part.path.name in replaced or part in old]
        for part in gone:
            shutil.rmtree(part.path)
        left = [part for part in parts if part not in gone]
        return sorted(left, key=lambda part: (part.number, part.level))

    def _forgotten(self) -> Forgotten:
        path = self._directory / _FORGOTTEN
        return decode_json(path.read_bytes(), Forgotten) if path.exists() else Forgotten()

    def _forget(self, old: Iterable[EventPart]) -> None:
        """Counts the lines of parts before their deletion, each part once, also after a crash."""
        before = self._forgotten()
        new = [part for part in old if part.number > before.last]
        if new:
            lines = before.lines + _summed(new)["lines"]
            self._replace(_FORGOTTEN, Forgotten(lines=lines, last=max(part.number for part in new)))

    def _replace(self, name: str, record: msgspec.Struct) -> None:
        path = self._directory / f"{name}.new"
        path.write_bytes(msgspec.json.encode(record))
        path.rename(self._directory / name)

    def _merge(self, spark: SparkSession, *, before: int) -> None:
        for level in range(LEVELS):
            ripe = [part for part in self._parts() if part.level == level and part.number < before]
            if len(ripe) < self._merged_at_once:
                return
            work = self._work()
            self._read(spark, ripe).coalesce(1).write.partitionBy("event").parquet(str(work))
            newest, names = max(part.about.newest for part in ripe), [part.path.name for part in ripe]
            about = About(counts=_summed(ripe), newest=newest, replaces=names)
            self._publish(work, f"batch={level + 1}-{ripe[-1].number}", about)

    def _work(self) -> Path:
        """Spark passes over what begins with an underscore, and so do we."""
        work = self._directory / "_work"
        shutil.rmtree(work, ignore_errors=True)
        return work

    def _publish(self, work: Path, name: str, about: About) -> None:
        (work / _ABOUT).write_bytes(msgspec.json.encode(about))
        shutil.rmtree(self._directory / name, ignore_errors=True)
        work.rename(self._directory / name)


def _part(path: Path) -> EventPart:
    level, _, number = path.name.removeprefix("batch=").partition("-")
    return EventPart(path, int(level), int(number), decode_json((path / _ABOUT).read_bytes(), About))


def _summed(parts: Iterable[EventPart]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, count in part.about.counts.items():
            total[name] = total.get(name, 0) + count
    return total
