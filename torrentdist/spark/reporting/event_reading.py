"""Events as Spark reads them: the schema of a line, which lines are usable, and their true time.

Always: an unusable line is left out and counted by its reason. The schema follows from the records
of model/events.py, so that the two cannot drift apart.
Never: bring rows of events to the driver.
"""

import enum
import types
from collections.abc import Collection
from typing import Any, get_args, get_origin

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from torrentdist.model.events import KINDS, NAMES, SCHEMA_VERSION, Writer

PATTERN = "*.jsonl*"
"""Closed files, also compressed or renamed ones. Spark skips names that start with _ or a dot."""
CORRUPT = "_corrupt"
KEY = ("node", "run", "seq")
"""Columns that identify an event, however often it was shipped."""
TORN, OTHER_VERSION, OTHER_KIND, DUPLICATE = "torn or malformed", "unknown version", "unknown kind", "duplicate"
TOO_OLD = "older than --keep"


def schema() -> StructType:
    """Returns all fields of all kinds of events. In a line, the fields of other kinds are null."""
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
    if kind is bool:
        return BooleanType()
    return LongType() if issubclass(kind, int) else DoubleType()


def with_corrupt() -> StructType:
    return schema().add(CORRUPT, StringType())


def read_lines(spark: SparkSession, *paths: str) -> DataFrame:
    """Reads all lines below `paths` (directories, files, patterns or URIs), unusable ones too."""
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
    """Adds `skipped`: the reason why a line is unusable; null if it is usable."""
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
    """Returns the usable lines. Duplicates are still among them."""
    return judged(lines).where(F.col("skipped").isNull()).drop(CORRUPT, "skipped")


def skip_counts() -> list[Column]:
    """Returns one aggregate over judged lines for each reason, named after it."""
    reasons = (TORN, OTHER_VERSION, OTHER_KIND)
    return [F.count(F.when(F.col("skipped") == reason, 1)).alias(reason) for reason in reasons]


def duplicates(events: DataFrame) -> dict[str, int]:
    """Returns the kinds that have duplicates, with their number. Shuffles rows only if there are
    some."""
    # Daemons number their events, so 64 of them fit into the bits of one number instead of 64 keys.
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
    """Drops duplicates of the kinds in `repeated`. To look for them in all kinds would cost a
    sort."""
    if not repeated:
        return events
    doubtful = F.col("event").isin(*repeated)
    # The kind is part of the key, so that a query for another kind skips this step.
    return events.where(~doubtful).unionByName(events.where(doubtful).dropDuplicates(["event", *KEY]))


def clocks(events: DataFrame) -> DataFrame:
    """One row per node and run: the correction of its clock, first known in the run or last known
    on the host."""
    known = F.when(F.col("clock").isNotNull(), F.col("at"))
    of_run = events.groupBy("node", "run").agg(
        F.min_by("clock", known).alias("run_clock"), F.max_by("clock", known).alias("last"), F.max(known).alias("at")
    )
    of_node = of_run.groupBy("node").agg(F.max_by("last", "at").alias("node_clock"))
    clock = F.coalesce("run_clock", "node_clock")
    return of_run.join(of_node, "node", "left").select("node", "run", clock.alias("usual_clock"))


def clock_counts(usual: DataFrame) -> DataFrame:
    """One row: the number of daemons, and of daemons without a known clock."""
    of_node = usual.groupBy("node").agg(F.count("usual_clock").alias("known"))
    unknown = F.count(F.when(F.col("known") == 0, 1))
    return of_node.agg(F.count(F.lit(1)).alias("daemons"), unknown.alias("unclocked"))


def timed(events: DataFrame, usual: DataFrame) -> DataFrame:
    """Adds `t`, seconds since 1970 by ZooKeeper's clock, and `known`: whether the correction is
    known.

    A line carries the difference of the two clocks. A line from before ZooKeeper was reached takes
    it from the same run of the daemon, or else from the same host. Without any, `t` is the host's
    clock.
    """
    joined = events.join(F.broadcast(usual), ["node", "run"], "left")
    clock = F.coalesce("clock", "usual_clock")
    timed = joined.withColumn("t", F.col("at") + F.coalesce(clock, F.lit(0.0)))
    return timed.withColumn("known", clock.isNotNull()).drop("usual_clock")
