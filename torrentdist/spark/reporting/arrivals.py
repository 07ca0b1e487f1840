"""When each host had a bundle: the frames that several tables of the report share.

Always: a host whose clock is unknown does not set a bundle's start. Its own arrival counts from its
own start, by its monotonic clock.
Never: collect rows, or call Python for a row.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

CURVE_STEPS = 50
SHARES = {"secs_50": 0.5, "secs_90": 0.9, "secs_100": 1.0}
"""Columns of the table `spread`, each with its share of hosts."""


@dataclass(frozen=True)
class Frames:
    """The usable events, each once and with `t`, and two small frames that several tables need."""

    events: DataFrame
    begun: DataFrame
    steps: DataFrame

    @classmethod
    def of(cls, events: DataFrame) -> Frames:
        begun = beginnings(events)
        return cls(events, begun, curve_steps(events, begun))

    def persisted(self) -> Frames:
        begun = self.begun.persist()
        return Frames(self.events, begun, curve_steps(self.events, begun).persist())

    def unpersist(self) -> None:
        self.steps.unpersist()
        self.begun.unpersist()


def of_kind(*kinds: str) -> Column:
    return F.col("event").isin(*kinds)


def of_hosts(events: DataFrame) -> DataFrame:
    """One row per host and bundle: start, end (null: not yet), and number of failures."""
    started, finished, failed = (of_kind(f"download_{kind}") for kind in ("started", "finished", "failed"))
    return (
        events.where(of_kind("download_started", "download_finished", "download_failed"))
        .groupBy("digest", "role", "node")
        .agg(
            F.min(F.when(started, F.col("t"))).alias("start"),
            F.min(F.when(finished, F.col("t"))).alias("end"),
            F.min(F.when(finished, F.col("seconds"))).alias("own_secs"),
            F.count(F.when(failed, 1)).alias("failures"),
            F.max("size").alias("size"),
            F.min("known").alias("known"),
        )
    )


def beginnings(events: DataFrame) -> DataFrame:
    """One row per digest and role: name, first start, number of hosts, and of hosts without a known
    clock."""
    start = F.coalesce("start", "end")
    found = (
        of_hosts(events)
        .groupBy("digest", "role")
        .agg(
            F.coalesce(F.min(F.when(F.col("known"), start)), F.min(start)).alias("began"),
            F.max("size").alias("size"),
            F.count(F.lit(1)).alias("hosts"),
            F.count("end").alias("done"),
            F.count(F.when(~F.col("known"), 1)).alias("unclocked"),
        )
    )
    named = events.where(of_kind("download_started", "download_finished", "download_failed"))
    of_name = named.groupBy("digest", "role", "bundle").agg(F.max("t").alias("t"))
    names = of_name.groupBy("digest", "role").agg(F.max_by("bundle", "t").alias("bundle"))
    return found.join(F.broadcast(names), ["digest", "role"])


def curve_steps(events: DataFrame, begun: DataFrame) -> DataFrame:
    """At most 51 steps per bundle: the last host of each step, and the times when shares of hosts
    were reached."""
    # Known clocks still differ by milliseconds, so that a host may seem to end before the start.
    after = F.greatest(F.col("end") - F.col("began"), F.lit(0.0))
    order = Window.partitionBy("digest", "role").orderBy("secs", "node")
    arrived = (
        of_hosts(events)
        .where(F.col("end").isNotNull())
        .select("digest", "role", "node", "end", "own_secs", "known")
        .join(F.broadcast(begun.select("digest", "role", "bundle", "began", "hosts")), ["digest", "role"])
        .withColumn("secs", F.round(F.when(F.col("known"), after).otherwise(F.col("own_secs")), 3))
        .withColumn("place", F.row_number().over(order))
    )
    step = F.ceil(F.col("place") * CURVE_STEPS / F.col("hosts")).alias("step")
    return arrived.groupBy("digest", "role", "bundle", "began", "hosts", step).agg(
        F.max("secs").alias("secs"),
        F.max("place").alias("place"),
        *(F.min(F.when(_is_share(share), F.col("secs"))).alias(name) for name, share in SHARES.items()),
    )


def _is_share(share: float) -> Column:
    return F.col("place") >= F.ceil(F.col("hosts") * F.lit(share))
