"""What the events say, as tables: pure functions from the frame of events to small frames.

Always holds: `events` are usable lines with `t`, each once (reading.py). Durations come from one host's monotonic clock
wherever there is one. Where there are many rows, only numbers are aggregated and text is a key: Spark sorts all rows to
find a smallest text. Must not do: collect, or call Python for a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from torrentdist.spark.reading import KEY

SLOW = 1.5
"""A host is slow when it takes this many times as long as half of the hosts do."""
CURVE_STEPS = 50
OUTSIDE, UNNAMED = "outside", "unnamed"


def first_finishes(events: DataFrame) -> DataFrame:
    """digest, role, node, t: when each host had a bundle for the first time."""
    ends = events.where(F.col("event") == "download_finished")
    return ends.groupBy("digest", "role", "node").agg(F.min("t").alias("t"))


def beginnings(events: DataFrame) -> DataFrame:
    """digest, role: when the first host began, and how many hosts did."""
    starts = events.where(F.col("event") == "download_started")
    of_node = starts.groupBy("digest", "role", "node").agg(F.min("t").alias("t"), F.max("size").alias("size"))
    found = of_node.groupBy("digest", "role").agg(
        F.min("t").alias("began"), F.max("size").alias("size"), F.count(F.lit(1)).alias("hosts")
    )
    of_name = starts.groupBy("digest", "role", "bundle").agg(F.max("t").alias("t"))
    names = of_name.groupBy("digest", "role").agg(F.max_by("bundle", "t").alias("bundle"))
    return found.join(F.broadcast(names), ["digest", "role"])


def arrivals(events: DataFrame) -> DataFrame:
    """One row for each host that got a bundle: after how many seconds, as the how-manieth."""
    # A host whose clock could not be corrected may seem to have it before anybody began.
    after = F.round(F.greatest(F.col("t") - F.col("began"), F.lit(0.0)), 3)
    order = Window.partitionBy("digest", "role").orderBy("secs", "node")
    return (
        first_finishes(events)
        .join(F.broadcast(beginnings(events)), ["digest", "role"])
        .withColumn("early", F.col("t") < F.col("began"))
        .withColumn("secs", after)
        .withColumn("place", F.row_number().over(order))
    )


def spread(events: DataFrame) -> DataFrame:
    """Per bundle and kind of host: seconds until 50, 90 and 100 % of the hosts had it; null: not yet."""

    def reached(share: float) -> Column:
        enough = F.col("place") >= F.ceil(F.col("hosts") * F.lit(share))
        return F.min(F.when(enough, F.col("secs"))).alias(f"secs_{share:.0%}".rstrip("%"))

    done = arrivals(events).groupBy("digest", "role")
    times = done.agg(F.count("node").alias("done"), reached(0.5), reached(0.9), reached(1.0))
    return (
        beginnings(events)
        .join(times, ["digest", "role"], "left")
        .select(
            *("bundle", "digest", "role", "size", "hosts"),
            F.coalesce("done", F.lit(0)).alias("done"),
            F.timestamp_seconds("began").alias("began"),
            *("secs_50", "secs_90", "secs_100"),
        )
        .orderBy("began", "digest", "role")
    )


def curve(events: DataFrame) -> DataFrame:
    """The way of each bundle in at most 51 points: seconds, and the share of hosts that had it by then."""
    step = F.ceil(F.col("place") * CURVE_STEPS / F.col("hosts")).alias("step")
    points = arrivals(events).groupBy("digest", "role", "bundle", "began", step)
    return points.agg(F.max("secs").alias("secs"), (F.max("place") / F.max("hosts")).alias("share")).orderBy(
        "began", "digest", "role", "step"
    )


def ends(events: DataFrame) -> DataFrame:
    return events.where(F.col("event").isin("download_finished", "download_failed"))


def sources(events: DataFrame) -> DataFrame:
    """Per bundle and kind of host: bytes by where they came from, and as shares."""
    parts = ("masters", "peers", "local")
    columns = ("from_masters", "from_peers", "local")
    sums = [F.sum(column).alias(part) for column, part in zip(columns, parts, strict=True)]
    total = F.col("masters") + F.col("peers") + F.col("local")
    shares = [(F.col(part) / F.nullif(total, F.lit(0))).alias(f"{part}_share") for part in parts]
    finished = events.where(F.col("event") == "download_finished")
    of_name = finished.groupBy("digest", "role", "bundle").agg(F.min("t").alias("t"), *sums)
    found = of_name.groupBy("digest", "role").agg(
        F.max_by("bundle", "t").alias("bundle"), F.min("t").alias("t"), *(F.sum(part).alias(part) for part in parts)
    )
    return found.select("bundle", "digest", "role", *parts, *shares).orderBy("t", "digest", "role")


def addresses(events: DataFrame) -> DataFrame:
    """host, port, rack: whose swarm listens where, as told last."""
    starts = events.where(F.col("event") == "daemon_started")
    rack = F.when(F.col("rack") == "", UNNAMED).otherwise(F.col("rack"))
    return starts.groupBy("host", "port").agg(F.max_by(rack, "t").alias("from_rack"))


def flows(some_ends: DataFrame, events: DataFrame) -> DataFrame:
    """One row for each sender of each of these downloads: the bytes, and the racks that they went from and to."""
    to_rack = F.when(F.col("rack") == "", UNNAMED).otherwise(F.col("rack"))
    about = (*KEY, "digest", "role")
    rows = some_ends.select(*about, to_rack.alias("to_rack"), F.explode("sources").alias("source"))
    rows = rows.select(*about, "to_rack", "source.host", "source.port", "source.bytes")
    joined = rows.join(F.broadcast(addresses(events)), ["host", "port"], "left")
    return joined.withColumn("from_rack", F.coalesce("from_rack", F.lit(OUTSIDE)))


def racks(events: DataFrame) -> DataFrame:
    """The traffic between racks; `outside` are uploaders and whoever else writes no events."""
    grouped = flows(ends(events), events).groupBy("from_rack", "to_rack")
    return grouped.agg(F.sum("bytes").alias("bytes")).orderBy("from_rack", "to_rack")


def slow_hosts(events: DataFrame) -> DataFrame:
    """Downloads that took SLOW times the median of their bundle, or failed, with the reason that the numbers give."""
    far = F.sum(F.when(F.col("from_rack") != F.col("to_rack"), F.col("bytes")).otherwise(0)) / F.sum("bytes")
    all_ends = ends(events).withColumn("disk_secs", F.col("prepare_secs") + F.col("publish_secs"))
    finished = all_ends.where(F.col("event") == "download_finished")
    usual = finished.groupBy("digest", "role").agg(
        F.count("node").alias("others"),
        *(F.percentile_approx(c, 0.5).alias(f"usual_{c}") for c in ("seconds", "disk_secs", "wait_secs", "peers")),
    )
    usual_far = flows(finished, events).groupBy("digest", "role").agg(far.alias("usual_far"))
    usual = usual.join(F.broadcast(usual_far), ["digest", "role"], "left").fillna(0.0, ["usual_far"])
    times = F.col("seconds") / F.greatest(F.col("usual_seconds"), F.lit(1e-3))
    failed = F.col("event") == "download_failed"
    found = all_ends.join(F.broadcast(usual), ["digest", "role"], "left").withColumn("times", times)
    found = found.where(failed | ((F.col("others") >= 3) & (F.col("times") >= SLOW)))
    # Who sent what is only looked at for those few.
    found = found.join(flows(found, events).groupBy(*KEY).agg(far.alias("far")), list(KEY), "left")
    return found.select(
        *("bundle", "digest", "role", "node", "rack", "seconds", "times"),
        F.when(failed, F.concat(F.lit("failed: "), "code")).otherwise(_reason()).alias("why"),
        *("peers", "hash_failures", "wait_secs", "fetch_secs", "disk_secs", "far"),
    ).orderBy(F.desc(F.col("seconds") - F.coalesce("usual_seconds", F.lit(0.0))), "node")


def _reason() -> Column:
    """The first of these that accounts for the delay: most of it, where a phase can be blamed."""
    most = (F.col("seconds") - F.col("usual_seconds")) / 2
    return (
        F.when(F.col("hash_failures") > 0, "hash failures")
        .when(F.col("disk_secs") - F.col("usual_disk_secs") >= most, "slow disk")
        .when(F.col("wait_secs") - F.col("usual_wait_secs") >= most, "late first byte")
        .when(F.col("peers") < F.col("usual_peers") / 2, "few peers")
        .when(F.col("far") > F.col("usual_far") + 0.25, "far rack")
        .otherwise("slow link")
    )


def failovers(events: DataFrame) -> DataFrame:
    """Every change of leader, and for how long nobody led.

    `vacant_secs`: as the new leader saw it. `silent_secs`: since the old one's last event: at most that long it may
    have been dead.
    """
    elected = events.where((F.col("event") == "leader_elected") & (F.col("previous") != ""))
    elected = elected.select("t", "epoch", "previous", F.col("node").alias("current"), "reason", "vacant_secs")
    said = events.select(F.col("node").alias("who"), F.col("t").alias("said"))
    before = (F.col("who") == F.col("previous")) & (F.col("said") <= F.col("t"))
    last = said.join(F.broadcast(elected), before).groupBy("epoch").agg(F.max("said").alias("last"))
    return (
        elected.join(last, "epoch", "left")
        .withColumn("silent_secs", F.col("t") - F.col("last"))
        .select(
            F.timestamp_seconds("t").alias("at"), "epoch", "previous", "current", "reason", "vacant_secs", "silent_secs"
        )
        .orderBy("at")
    )


def restarts(events: DataFrame) -> DataFrame:
    """Per worker: how often it was started, on how many hosts, and how it ended last."""
    changes = events.where(F.col("event") == "worker_changed")
    # Before it has its fencing number it is announced, and not started.
    running = (F.col("state") == "running") & (F.col("fencing") > 0)
    found = changes.groupBy("job", "worker").agg(
        F.count_distinct(F.when(running, F.struct("node", "fencing"))).alias("starts"),
        F.count_distinct(F.when(running, F.col("node"))).alias("hosts"),
        F.max_by("state", "t").alias("state"),
        F.max_by("exit_code", F.when(F.col("exit_code").isNotNull(), F.col("t"))).alias("last_exit_code"),
        F.max_by("detail", F.when(F.col("detail") != "", F.col("t"))).alias("last_detail"),
    )
    again = F.greatest(F.col("starts") - 1, F.lit(0)).alias("restarts")
    return found.select("job", "worker", "starts", again, "hosts", "state", "last_exit_code", "last_detail").orderBy(
        F.desc("restarts"), "job", "worker"
    )


def savings(events: DataFrame) -> DataFrame:
    """Per bundle: bytes of files that an earlier bundle had too, which need not have travelled, and times its hosts."""
    lines = events.where(F.col("event") == "bundle_files").select(
        "bundle", "digest", "t", F.explode("files").alias("file")
    )
    files = lines.groupBy("bundle", "digest", "file.root").agg(F.max("file.size").alias("size"), F.min("t").alias("t"))
    seen_before = F.row_number().over(Window.partitionBy("root").orderBy("t", "digest", "bundle")) > 1
    sums = (
        files.withColumn("same", F.when(seen_before, F.col("size")).otherwise(0))
        .groupBy("bundle", "digest")
        .agg(F.min("t").alias("t"), F.sum("size").alias("bytes"), F.sum("same").alias("same_bytes"))
    )
    reached = first_finishes(events).groupBy("digest").agg(F.count("node").alias("hosts"))
    times_hosts = (F.col("same_bytes") * F.coalesce("hosts", F.lit(0))).alias("saved_bytes")
    share = (F.col("same_bytes") / F.nullif(F.col("bytes"), F.lit(0))).alias("same_share")
    return (
        sums.join(reached, "digest", "left")
        .orderBy("t", "bundle")
        .select("bundle", "digest", "bytes", "same_bytes", share, "hosts", times_hosts)
    )


def kinds(events: DataFrame) -> DataFrame:
    """How many events of each kind, from how many daemons, and from when to when."""
    of_node = events.groupBy("event", "node").agg(
        F.count(F.lit(1)).alias("count"), F.min("t").alias("first"), F.max("t").alias("last")
    )
    return (
        of_node.groupBy("event")
        .agg(
            F.sum("count").alias("count"),
            F.count("node").alias("nodes"),
            F.timestamp_seconds(F.min("first")).alias("first"),
            F.timestamp_seconds(F.max("last")).alias("last"),
        )
        .orderBy("event")
    )


TABLES: Mapping[str, Callable[[DataFrame], DataFrame]] = {
    "spread": spread,
    "curve": curve,
    "sources": sources,
    "slow_hosts": slow_hosts,
    "racks": racks,
    "failovers": failovers,
    "restarts": restarts,
    "savings": savings,
    "kinds": kinds,
}
"""What a report consists of, in its order."""
