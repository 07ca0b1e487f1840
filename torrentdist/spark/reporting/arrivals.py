"""When each host had a bundle: the frames that several tables of the report share.

A bundle that was removed and uploaded again has a second life, which is a row of its own.

Always: a host whose clock is unknown does not set a bundle's start. Its own arrival counts from its
own start, by its monotonic clock.
Never: collect rows, or call Python for a row.
"""

from __future__ import annotations

import msgspec
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

CURVE_STEPS = 50
SHARES = {"secs_50": 0.5, "secs_90": 0.9, "secs_100": 1.0}
"""Columns of the table `spread`, each with its share of hosts."""
LIFE = ("digest", "role", "life")
"""Columns that identify one life of a bundle: `life` is when its upload began, by ZooKeeper's
clock; 0: not known."""
EARLY_SECS = 0.1
"""How much earlier than its upload a download may seem to begin, since known clocks still differ by
milliseconds."""


class Frames(msgspec.Struct, frozen=True):
    """The usable events, each once and with `t`; those of downloads, with `life`; and two small
    frames that several tables need."""

    events: DataFrame
    downloads: DataFrame
    begun: DataFrame
    steps: DataFrame

    @classmethod
    def of(cls, events: DataFrame) -> Frames:
        downloads = of_lives(events)
        begun = beginnings(downloads)
        return cls(events, downloads, begun, curve_steps(downloads, begun))

    def persisted(self, *, few: bool) -> Frames:
        """`few`: keeps the downloads too, which makes the plans of the tables shorter."""
        downloads = self.downloads.persist() if few else self.downloads
        begun = beginnings(downloads).persist()
        return Frames(self.events, downloads, begun, curve_steps(downloads, begun).persist())

    def unpersist(self) -> None:
        for frame in (self.steps, self.begun, self.downloads):
            frame.unpersist()


def of_kind(*kinds: str) -> Column:
    return F.col("event").isin(*kinds)


def of_lives(events: DataFrame) -> DataFrame:
    """Returns the events of downloads with their `life`. A host without a known clock counts for
    the newest one."""
    ends = events.where(of_kind("bundle_uploaded") & (F.col("seconds") > 0))
    births = ends.groupBy("bundle", "digest").agg(F.collect_list(F.col("t") - F.col("seconds")).alias("births"))
    downloads = events.where(of_kind("download_started", "download_finished", "download_failed"))
    life = F.expr(f"array_max(filter(births, birth -> birth - {EARLY_SECS} <= t or not known))")
    told = downloads.join(F.broadcast(births), ["bundle", "digest"], "left")
    return told.withColumn("life", F.coalesce(life, F.lit(0.0))).drop("births")


def uploaded() -> Column:
    """When the upload of a life began; null: not known."""
    return F.timestamp_seconds(F.nullif(F.col("life"), F.lit(0.0))).alias("uploaded")


def of_hosts(downloads: DataFrame) -> DataFrame:
    """One row per host and life of a bundle: start, end (null: not yet), and number of
    failures."""
    started, finished, failed = (of_kind(f"download_{kind}") for kind in ("started", "finished", "failed"))
    return downloads.groupBy(*LIFE, "node").agg(
        F.min(F.when(started, F.col("t"))).alias("start"),
        F.min(F.when(finished, F.col("t"))).alias("end"),
        F.min(F.when(finished, F.col("seconds"))).alias("own_secs"),
        F.count(F.when(failed, 1)).alias("failures"),
        F.max("size").alias("size"),
        F.min("known").alias("known"),
    )


def beginnings(downloads: DataFrame) -> DataFrame:
    """One row per life and role: name, first start, number of hosts, and of hosts without a known
    clock. `is_last`: the bundle was not uploaded again since."""
    start = F.coalesce("start", "end")
    found = (
        of_hosts(downloads)
        .groupBy(*LIFE)
        .agg(
            F.coalesce(F.min(F.when(F.col("known"), start)), F.min(start)).alias("began"),
            F.max("size").alias("size"),
            F.count(F.lit(1)).alias("hosts"),
            F.count("end").alias("done"),
            F.count(F.when(~F.col("known"), 1)).alias("unclocked"),
        )
    )
    of_name = downloads.groupBy(*LIFE, "bundle").agg(F.max("t").alias("t"))
    names = of_name.groupBy(*LIFE).agg(F.max_by("bundle", "t").alias("bundle"))
    newest = F.max("life").over(Window.partitionBy("bundle", "digest", "role"))
    return found.join(F.broadcast(names), list(LIFE)).withColumn("is_last", F.col("life") == newest)


def curve_steps(downloads: DataFrame, begun: DataFrame) -> DataFrame:
    """At most 51 steps per life of a bundle: the last host of each step, and the times when shares
    of hosts were reached."""
    # Known clocks still differ by milliseconds, so that a host may seem to end before the start.
    after = F.greatest(F.col("end") - F.col("began"), F.lit(0.0))
    order = Window.partitionBy(*LIFE).orderBy("secs", "node")
    arrived = (
        of_hosts(downloads)
        .where(F.col("end").isNotNull())
        .select(*LIFE, "node", "end", "own_secs", "known")
        .join(F.broadcast(begun.select(*LIFE, "bundle", "began", "hosts")), list(LIFE))
        .withColumn("secs", F.round(F.when(F.col("known"), after).otherwise(F.col("own_secs")), 3))
        .withColumn("place", F.row_number().over(order))
    )
    step = F.ceil(F.col("place") * CURVE_STEPS / F.col("hosts")).alias("step")
    return arrived.groupBy(*LIFE, "bundle", "began", "hosts", step).agg(
        F.max("secs").alias("secs"),
        F.max("place").alias("place"),
        *(F.min(F.when(_is_share(share), F.col("secs"))).alias(name) for name, share in SHARES.items()),
    )


def _is_share(share: float) -> Column:
    return F.col("place") >= F.ceil(F.col("hosts") * F.lit(share))
