"""Events as Spark reads them: the schema of a line, which lines count, and what time it really was.

Always holds: a line that cannot be used is counted under its reason and left out, never guessed at; the schema is made
of the records of model/events.py, so that the two cannot drift apart. Must not do: collect rows.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Collection
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
TOO_OLD = "older than --keep"


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


def read_lines(spark: SparkSession, *paths: str) -> DataFrame:
    """Every line below `paths`, each a directory, file, pattern or URI; unusable ones too."""
    lines: DataFrame = _options(spark.read).json(list(paths))
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


def duplicates(events: DataFrame) -> dict[str, int]:
    """The kinds of which there are events more than once, and how many too many. Rows go nowhere unless there are."""
    # A daemon counts its events: 64 of them are the bits of one number, instead of 64 keys to be compared with all.
    word, bit = F.shiftright("seq", 6), F.expr("shiftleft(1L, cast(pmod(seq, 64) as int))")
    of_word = events.groupBy("node", "run", word.alias("word")).agg(
        F.count(F.lit(1)).alias("count"), F.bit_count(F.bit_or(bit)).alias("different")
    )
    repeated = of_word.where(F.col("count") > F.col("different")).select("node", "run", "word")
    if repeated.isEmpty():
        return {}
    keyed = events.select("event", *KEY, word.alias("word"))
    doubtful = keyed.join(repeated, ["node", "run", "word"], "left_semi")
    counted = doubtful.groupBy("event", *KEY).count().where(F.col("count") > 1)
    found = counted.groupBy("event").agg(F.sum(F.col("count") - 1).alias("twice"))
    return {row["event"]: row["twice"] for row in found.collect()}


def unique(events: DataFrame, repeated: Collection[str]) -> DataFrame:
    """Each event once, of these kinds, which have some more than once. To look for them in others costs a sort."""
    if not repeated:
        return events
    doubtful = F.col("event").isin(*repeated)
    # By the kind too, so that who wants another one need not wait for this.
    return events.where(~doubtful).unionByName(events.where(doubtful).dropDuplicates(["event", *KEY]))


def clocks(events: DataFrame) -> DataFrame:
    """node, run: what each start of a daemon has to add to its clock: what it knew first, or its host knew last."""
    known = F.when(F.col("clock").isNotNull(), F.col("at"))
    of_run = events.groupBy("node", "run").agg(
        F.min_by("clock", known).alias("run_clock"), F.max_by("clock", known).alias("last"), F.max(known).alias("at")
    )
    of_node = of_run.groupBy("node").agg(F.max_by("last", "at").alias("node_clock"))
    clock = F.coalesce("run_clock", "node_clock")
    return of_run.join(of_node, "node", "left").select("node", "run", clock.alias("usual_clock"))


def clock_counts(usual: DataFrame) -> DataFrame:
    """One row: how many daemons there are, and for how many of them no clock is known."""
    of_node = usual.groupBy("node").agg(F.count("usual_clock").alias("known"))
    unknown = F.count(F.when(F.col("known") == 0, 1))
    return of_node.agg(F.count(F.lit(1)).alias("daemons"), unknown.alias("unclocked"))


def timed(events: DataFrame, usual: DataFrame) -> DataFrame:
    """With `t`: seconds since 1970 by ZooKeeper's clock, which is the same for all hosts; and whether that is `known`.

    A line carries the difference of the two clocks. Where it doesn't, because ZooKeeper was not reached yet, that of
    the same start of the daemon holds, then that of the same host. A host that never told has its own clock as `t`.
    """
    joined = events.join(F.broadcast(usual), ["node", "run"], "left")
    clock = F.coalesce("clock", "usual_clock")
    timed = joined.withColumn("t", F.col("at") + F.coalesce(clock, F.lit(0.0)))
    return timed.withColumn("known", clock.isNotNull()).drop("usual_clock")
