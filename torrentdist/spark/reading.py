"""Events as Spark reads them: the schema of a line, which lines count, and what time it really was.

Always holds: a line that cannot be used is counted under its reason and left out, never guessed at; the schema is made
of the records of model/events.py, so that the two cannot drift apart. Must not do: collect rows.
"""

from __future__ import annotations

import enum
import types
from typing import Any, get_args, get_origin

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, LongType, StringType, StructField, StructType

from torrentdist.model.events import KINDS, NAMES, SCHEMA_VERSION, Writer

PATTERN = "*.jsonl*"
"""Closed files, also compressed or renamed by their shipper; Spark passes over names that start with _ or a dot."""
CORRUPT = "_corrupt"
KEY = ("node", "run", "seq")
"""Names an event, however often it was shipped."""
TORN, OTHER_VERSION, OTHER_KIND, DUPLICATE = "torn or malformed", "unknown version", "unknown kind", "duplicate"


def schema() -> StructType:
    """Every key that any kind of event has; a line has those of its own kind, the others are null."""
    keys: dict[str, DataType] = {"v": LongType(), "event": StringType(), "seq": LongType()}
    keys |= {"at": DoubleType(), "clock": DoubleType()}
    records: tuple[type[msgspec.Struct], ...] = (Writer, *KINDS)
    for record in records:
        for field in msgspec.structs.fields(record):
            found = _type_of(field.type)
            assert keys.setdefault(field.encode_name, found) == found, f"{field.encode_name} has two types"
    return StructType([StructField(name, type_) for name, type_ in keys.items()])


def _type_of(kind: Any) -> DataType:
    if get_origin(kind) is types.UnionType:  # X | None
        (kind,) = (part for part in get_args(kind) if part is not type(None))
    if get_origin(kind) is list:
        return ArrayType(_type_of(get_args(kind)[0]))
    if issubclass(kind, msgspec.Struct):
        return StructType([StructField(f.encode_name, _type_of(f.type)) for f in msgspec.structs.fields(kind)])
    if issubclass(kind, str | enum.StrEnum):
        return StringType()
    return LongType() if issubclass(kind, int) else DoubleType()


def with_corrupt() -> StructType:
    return schema().add(CORRUPT, StringType())


def read_lines(spark: SparkSession, path: str) -> DataFrame:
    """Every line below `path`, a directory, file, pattern or URI; unusable ones too."""
    lines: DataFrame = _options(spark.read).json(path)
    return lines


def stream_lines(spark: SparkSession, path: str, files_at_once: int) -> DataFrame:
    lines: DataFrame = _options(spark.readStream).option("maxFilesPerTrigger", files_at_once).json(path)
    return lines


def _options(reader: Any) -> Any:
    return reader.schema(with_corrupt()).options(
        mode="PERMISSIVE",
        columnNameOfCorruptRecord=CORRUPT,
        recursiveFileLookup="true",
        pathGlobFilter=PATTERN,
    )


def judged(lines: DataFrame) -> DataFrame:
    """With `skipped`: why a line does not count, null if it does."""
    unusable = F.col(CORRUPT).isNotNull()
    for name in ("v", "event", "at", *KEY):
        unusable = unusable | F.col(name).isNull()
    skipped = (
        F.when(F.col("v") != SCHEMA_VERSION, OTHER_VERSION)
        .when(unusable, TORN)
        .when(~F.col("event").isin(*NAMES), OTHER_KIND)
    )
    return lines.withColumn("skipped", skipped)


def usable(lines: DataFrame) -> DataFrame:
    """The lines that count; duplicates are still among them."""
    return judged(lines).where(F.col("skipped").isNull()).drop(CORRUPT, "skipped")


def skip_counts() -> list[Column]:
    """Aggregates over judged lines, one for each reason, named after it."""
    reasons = (TORN, OTHER_VERSION, OTHER_KIND)
    return [F.count(F.when(F.col("skipped") == reason, 1)).alias(reason) for reason in reasons]


def duplicates(events: DataFrame) -> DataFrame:
    """One row, one number: how many events there are more than once."""
    key = F.xxhash64(*KEY)
    return events.select(key.alias("key")).groupBy("key").count().agg(F.coalesce(F.sum(F.col("count") - 1), F.lit(0)))


def of_kind(events: DataFrame, *kinds: str) -> DataFrame:
    """Each event of these kinds once. Pick the columns first where there may be many."""
    return events.where(F.col("event").isin(*kinds)).dropDuplicates(list(KEY))


def clocks(events: DataFrame) -> DataFrame:
    """node, run: what each start of a daemon has to add to its clock, as far as it, or its host, ever told."""
    known = events.where(F.col("clock").isNotNull())
    of_node = known.groupBy("node").agg(F.percentile_approx("clock", 0.5).alias("node_clock"))
    of_run = events.groupBy("node", "run").agg(F.percentile_approx("clock", 0.5).alias("run_clock"))
    clock = F.coalesce("run_clock", "node_clock", F.lit(0.0))
    return of_run.join(of_node, "node", "left").select("node", "run", clock.alias("usual_clock"))


def timed(events: DataFrame, usual: DataFrame) -> DataFrame:
    """With `t`: seconds since 1970 by ZooKeeper's clock, which is the same for all hosts.

    A line carries the difference of the two clocks. Where it doesn't, because ZooKeeper was not reached yet, that of
    the same start of the daemon holds, then that of the same host; a host that never told is taken at its word.
    """
    joined = events.join(F.broadcast(usual), ["node", "run"], "left")
    clock = F.coalesce("clock", "usual_clock", F.lit(0.0))
    return joined.withColumn("t", F.col("at") + clock).drop("usual_clock")
