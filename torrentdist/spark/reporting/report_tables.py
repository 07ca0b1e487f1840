"""The report's tables, each a function from events to a small frame. Longer than most files: one
list.

Always: events are usable, each once, with `t` (event_reading.py). Durations come from one host's
monotonic clock where possible. Large frames aggregate numbers only and use text as a key, because
Spark sorts all rows to find a smallest text.
Never: collect rows, or call Python for a row.
"""

from collections.abc import Callable, Mapping

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from torrentdist.spark.reporting.arrivals import LIFE, SHARES, Frames, of_hosts, of_kind, uploaded
from torrentdist.spark.reporting.event_reading import KEY

ColumnOrName = Column | str

SLOW = 1.5
"""A host is slow when it takes this many times the median of all hosts."""
BYTES = ("from_masters", "from_peers", "local")
ORIGINS = ("from_masters", "from_peers", "from_plugin", "local")
OUTSIDE, UNNAMED = "outside", "unnamed"


def in_order(frame: DataFrame, *columns: ColumnOrName) -> DataFrame:
    """Sorts all rows in one partition. Sorting in several would compute the input twice, to find
    their bounds."""
    return frame.repartition(1).orderBy(*columns)


def spread(frames: Frames) -> DataFrame:
    """Per upload of a bundle and role: seconds until 50, 90 and 100 % of the hosts had it; null:
    not yet.

    `unclocked`: number of hosts without a known clock. They do not set the start, and their seconds
    are those of their own download.
    """
    times = frames.steps.groupBy(*LIFE).agg(*(F.min(name).alias(name) for name in SHARES))
    found = frames.begun.join(times, list(LIFE), "left").select(
        *("bundle", "digest", "role", "size", "hosts", "done", "unclocked"),
        F.timestamp_seconds("began").alias("began"),
        *SHARES,
        uploaded(),
    )
    return in_order(found, "began", "digest", "role")


def curve(frames: Frames) -> DataFrame:
    """At most 51 points per upload of a bundle: seconds, and the share of hosts that had it by
    then."""
    share = (F.col("place") / F.col("hosts")).alias("share")
    points = frames.steps.select("digest", "role", "bundle", "began", "step", "secs", share, uploaded())
    return in_order(points, "began", "digest", "role", "step")


def summary(frames: Frames) -> DataFrame:
    """One row per role: the numbers of complete and incomplete bundles and of failed downloads.

    A bundle is complete when all hosts that began to fetch it have it. An upload that another one
    replaced counts only if it was complete. `slowest_secs`: the longest time that a complete bundle
    took.
    """
    whole = F.col("done") >= F.col("hosts")
    times = frames.steps.groupBy(*LIFE).agg(F.min("secs_100").alias("secs_100"))
    of_role = (
        frames.begun.where(F.col("is_last") | whole)
        .join(times, list(LIFE), "left")
        .groupBy("role")
        .agg(
            F.count(F.lit(1)).alias("bundles"),
            F.count(F.when(whole, 1)).alias("complete"),
            F.count(F.when(~whole, 1)).alias("incomplete"),
            F.sum(F.col("hosts") - F.col("done")).alias("lacking"),
            F.max("hosts").alias("hosts"),
            F.max(F.when(whole, F.col("secs_100"))).alias("slowest_secs"),
        )
    )
    moved = (
        ends(frames.events)
        .groupBy("role")
        .agg(
            F.count(F.when(of_kind("download_failed"), 1)).alias("failures"),
            *(F.sum(F.when(of_kind("download_finished"), F.col(name))).alias(name) for name in BYTES),
        )
    )
    found = of_role.join(moved, "role", "left").fillna(0, ["failures", *BYTES])
    return in_order(found, F.desc("role"))


def incomplete(frames: Frames) -> DataFrame:
    return frames.begun.where(F.col("is_last") & (F.col("done") < F.col("hosts")))


def missing(frames: Frames) -> DataFrame:
    """Hosts that began to fetch a bundle and lack it: their start, number of failures, and last
    reason."""
    lacking = F.broadcast(incomplete(frames).select(*LIFE, "bundle"))
    hosts = of_hosts(frames.downloads.join(F.broadcast(lacking.select(*LIFE)), list(LIFE), "left_semi"))
    failed = frames.downloads.where(of_kind("download_failed")).groupBy(*LIFE, "node")
    last = failed.agg(*(F.max_by(name, "t").alias(name) for name in ("code", "reason", "rack")))
    found = (
        hosts.where(F.col("end").isNull())
        .join(lacking, list(LIFE))
        .join(last, [*LIFE, "node"], "left")
        .select(
            *("bundle", "digest", "role", "node", "rack"),
            F.timestamp_seconds(F.coalesce("start", "end")).alias("since"),
            *("failures", "code", "reason"),
        )
    )
    return in_order(found, F.desc("failures"), "since", "digest", "role", "node")


def failures(frames: Frames) -> DataFrame:
    """Per bundle, role and error: failed downloads, hosts that failed, and hosts that still lack
    the bundle."""
    failed = frames.events.where(of_kind("download_failed"))
    of_node = failed.groupBy("digest", "role", "code", "node").agg(
        F.count(F.lit(1)).alias("failures"),
        *(F.max_by(name, "t").alias(name) for name in ("bundle", "reason")),
        F.max("t").alias("last"),
    )
    finished = frames.events.where(of_kind("download_finished")).select("digest", "role", "node", F.lit(1).alias("has"))
    # Few hosts fail, so the finished downloads are searched once, for these hosts alone.
    whole = finished.join(
        F.broadcast(of_node.select("digest", "role", "node")), ["digest", "role", "node"], "left_semi"
    )
    found = (
        of_node.join(whole.distinct(), ["digest", "role", "node"], "left")
        .groupBy("digest", "role", "code")
        .agg(
            F.max_by("bundle", "last").alias("bundle"),
            F.sum("failures").alias("failures"),
            F.count(F.lit(1)).alias("hosts"),
            F.count(F.when(F.col("has").isNull(), 1)).alias("lacking"),
            F.max_by("reason", "last").alias("reason"),
            F.timestamp_seconds(F.max("last")).alias("last"),
        )
    )
    columns = ("bundle", "digest", "role", "code", "failures", "hosts", "lacking", "reason", "last")
    return in_order(found.select(*columns), F.desc("lacking"), F.desc("failures"), "digest", "role", "code")


def ends(events: DataFrame) -> DataFrame:
    return events.where(F.col("event").isin("download_finished", "download_failed"))


def sources(frames: Frames) -> DataFrame:
    """Per bundle and role: bytes by origin, and as shares."""
    parts = ("masters", "peers", "local")
    sums = [F.sum(column).alias(part) for column, part in zip(BYTES, parts, strict=True)]
    total = F.col("masters") + F.col("peers") + F.col("local")
    shares = [(F.col(part) / F.nullif(total, F.lit(0))).alias(f"{part}_share") for part in parts]
    finished = frames.events.where(F.col("event") == "download_finished")
    of_name = finished.groupBy("digest", "role", "bundle").agg(F.min("t").alias("t"), *sums)
    found = of_name.groupBy("digest", "role").agg(
        F.max_by("bundle", "t").alias("bundle"), F.min("t").alias("t"), *(F.sum(part).alias(part) for part in parts)
    )
    return in_order(found, "t", "digest", "role").select("bundle", "digest", "role", *parts, *shares)


def addresses(events: DataFrame) -> DataFrame:
    """One row per swarm address (host and port): the rack of its daemon, from the last start."""
    starts = events.where(F.col("event") == "daemon_started")
    rack = F.when(F.col("rack") == "", UNNAMED).otherwise(F.col("rack"))
    return starts.groupBy("host", "port").agg(F.max_by(rack, "t").alias("from_rack"))


def flows(some_ends: DataFrame, events: DataFrame) -> DataFrame:
    """One row per sender of each download: the bytes, and the racks of sender and receiver."""
    to_rack = F.when(F.col("rack") == "", UNNAMED).otherwise(F.col("rack"))
    about = (*KEY, "digest", "role")
    rows = some_ends.select(*about, to_rack.alias("to_rack"), F.explode("sources").alias("source"))
    rows = rows.select(*about, "to_rack", "source.host", "source.port", "source.bytes")
    joined = rows.join(F.broadcast(addresses(events)), ["host", "port"], "left")
    return joined.withColumn("from_rack", F.coalesce("from_rack", F.lit(OUTSIDE)))


def racks(frames: Frames) -> DataFrame:
    """Bytes between racks. `outside`: senders that write no events, such as uploaders."""
    grouped = flows(ends(frames.events), frames.events).groupBy("from_rack", "to_rack")
    return in_order(grouped.agg(F.sum("bytes").alias("bytes")), "from_rack", "to_rack")


def slow_hosts(frames: Frames) -> DataFrame:
    """Downloads that took SLOW times the median of their bundle, or failed, each with its likely
    reason."""
    events = frames.events
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
    # Senders are looked up for these few downloads alone.
    found = found.join(flows(found, events).groupBy(*KEY).agg(far.alias("far")), list(KEY), "left")
    late = F.col("seconds") - F.coalesce("usual_seconds", F.lit(0.0))
    return in_order(found, F.desc(late), "node").select(
        *("bundle", "digest", "role", "node", "rack", "seconds", "times"),
        F.when(failed, F.concat(F.lit("failed: "), "code")).otherwise(_reason()).alias("why"),
        *("peers", "hash_failures", "wait_secs", "fetch_secs", "disk_secs", "far"),
    )


def _reason() -> Column:
    """Returns the first of these reasons that explains the delay. A phase must explain most of
    it."""
    most = (F.col("seconds") - F.col("usual_seconds")) / 2
    return (
        F.when(F.col("hash_failures") > 0, "hash failures")
        .when(F.col("disk_secs") - F.col("usual_disk_secs") >= most, "slow disk")
        .when(F.col("wait_secs") - F.col("usual_wait_secs") >= most, "late first byte")
        .when(F.col("peers") < F.col("usual_peers") / 2, "few peers")
        .when(F.col("far") > F.col("usual_far") + 0.25, "far rack")
        .otherwise("slow link")
    )


def failovers(frames: Frames) -> DataFrame:
    """Every change of leader, and how long nobody led.

    `vacant_secs`: measured by the new leader. `silent_secs`: time since the old leader's last
    event, an upper bound for the time that it was dead.
    """
    elected = frames.events.where((F.col("event") == "leader_elected") & (F.col("previous") != ""))
    elected = elected.select("t", "epoch", "previous", F.col("node").alias("current"), "reason", "vacant_secs")
    said = frames.events.select(F.col("node").alias("who"), F.col("t").alias("said"))
    before = (F.col("who") == F.col("previous")) & (F.col("said") <= F.col("t"))
    last = said.join(F.broadcast(elected), before).groupBy("epoch").agg(F.max("said").alias("last"))
    found = elected.join(last, "epoch", "left").withColumn("silent_secs", F.col("t") - F.col("last"))
    columns = ("epoch", "previous", "current", "reason", "vacant_secs", "silent_secs")
    return in_order(found.select(F.timestamp_seconds("t").alias("at"), *columns), "at")


def distributions(frames: Frames) -> DataFrame:
    """Every distribution that is over, as the masters saw it: hosts, times, bytes by source, and
    the first host that lacks the bundle, with its reason.

    A distribution counts once, also if the leader died while it wrote the event.
    """
    told = frames.events.where(of_kind("distribution_ended"))
    columns = ("bundle", "digest", "size", "hosts", "done", "left", "cancelled", *SHARES)
    first = F.get("failures", 0)
    about = F.struct(
        *columns,
        *("began_at", "ended_at"),
        (F.col("hosts") - F.col("done")).alias("lacking"),
        *(
            F.col(column).alias(part)
            for column, part in zip(ORIGINS, ("masters", "peers", "plugin", "local"), strict=True)
        ),
        first["host"].alias("lacking_host"),
        first["reason"].alias("reason"),
    )
    found = told.groupBy("distribution").agg(F.max_by(about, "t").alias("last")).select("distribution", "last.*")
    times = (F.timestamp_seconds(f"{name}_at").alias(name) for name in ("began", "ended"))
    parts = ("masters", "peers", "plugin", "local", "lacking_host", "reason")
    shown = found.select("distribution", *times, *columns, "lacking", *parts)
    return in_order(shown, "began", "distribution")


def restarts(frames: Frames) -> DataFrame:
    """Per worker: number of starts, restarts and hosts, and its last end. A start is a restart
    unless it is the first, or the worker was stopped on purpose before it."""
    changes = frames.events.where(F.col("event") == "worker_changed")
    # A worker without a fencing number is announced, but not started.
    running = (F.col("state") == "running") & (F.col("fencing") > 0)
    worker = ("job", "worker")
    begun = changes.where(running).groupBy(*worker, "node", "fencing").agg(F.min("t").alias("t"))
    idle = changes.where(F.col("state") == "inactive").select(*worker, "t")
    marks = begun.select(*worker, "node", "t").unionByName(idle, allowMissingColumns=True)
    in_time = Window.partitionBy(*worker).orderBy("t")
    after_start = F.lag(F.col("node").isNotNull()).over(in_time)
    starts = (
        marks.withColumn("again", F.col("node").isNotNull() & after_start)
        .groupBy(*worker)
        .agg(
            F.count("node").alias("starts"),
            F.count(F.when(F.col("again"), 1)).alias("restarts"),
            F.count_distinct("node").alias("hosts"),
        )
    )
    lasts = changes.groupBy(*worker).agg(
        F.max_by("state", "t").alias("state"),
        F.max_by("exit_code", F.when(F.col("exit_code").isNotNull(), F.col("t"))).alias("last_exit_code"),
        F.max_by("detail", F.when(F.col("detail") != "", F.col("t"))).alias("last_detail"),
    )
    counts = ("starts", "restarts", "hosts")
    found = lasts.join(starts, list(worker), "left").fillna(0, list(counts))
    found = found.select(*worker, *counts, "state", "last_exit_code", "last_detail")
    return in_order(found, F.desc("restarts"), *worker)


def audit(frames: Frames) -> DataFrame:
    """Every change and every refusal: its sender, time, source and result."""
    told = frames.events.where(F.col("event") == "access_audited")
    columns = ("who", "sender_role", "operation", "target", "bundle", "source", "result", "count")
    return in_order(told.select(F.timestamp_seconds("t").alias("at"), "node", *columns), "at")


def savings(frames: Frames) -> DataFrame:
    """Per bundle: bytes of files that an earlier bundle also had, for one host and for all its
    hosts."""
    told = frames.events.where(F.col("event") == "bundle_files")
    lines = told.select("bundle", "digest", "t", F.explode("files").alias("file"))
    files = lines.groupBy("bundle", "digest", "file.root").agg(F.max("file.size").alias("size"), F.min("t").alias("t"))
    seen_before = F.row_number().over(Window.partitionBy("root").orderBy("t", "digest", "bundle")) > 1
    sums = (
        files.withColumn("same", F.when(seen_before, F.col("size")).otherwise(0))
        .groupBy("bundle", "digest")
        .agg(F.min("t").alias("t"), F.sum("size").alias("bytes"), F.sum("same").alias("same_bytes"))
    )
    reached = frames.begun.groupBy("digest").agg(F.sum("done").alias("hosts"))
    times_hosts = (F.col("same_bytes") * F.col("hosts")).alias("saved_bytes")
    share = (F.col("same_bytes") / F.nullif(F.col("bytes"), F.lit(0))).alias("same_share")
    found = sums.join(reached, "digest", "left").withColumn("hosts", F.coalesce("hosts", F.lit(0)))
    columns = ("bundle", "digest", "bytes", "same_bytes", share, "hosts", times_hosts)
    return in_order(found, "t", "bundle").select(*columns)


def kinds(frames: Frames) -> DataFrame:
    """Per kind of event: number of events and of daemons, first and last time."""
    of_node = frames.events.groupBy("event", "node").agg(
        F.count(F.lit(1)).alias("count"), F.min("t").alias("first"), F.max("t").alias("last")
    )
    found = of_node.groupBy("event").agg(
        F.sum("count").alias("count"),
        F.count("node").alias("nodes"),
        F.timestamp_seconds(F.min("first")).alias("first"),
        F.timestamp_seconds(F.max("last")).alias("last"),
    )
    return in_order(found, "event")


TABLES: Mapping[str, Callable[[Frames], DataFrame]] = {
    "summary": summary,
    "spread": spread,
    "missing": missing,
    "failures": failures,
    "curve": curve,
    "sources": sources,
    "slow_hosts": slow_hosts,
    "racks": racks,
    "failovers": failovers,
    "distributions": distributions,
    "restarts": restarts,
    "savings": savings,
    "audit": audit,
    "kinds": kinds,
}
"""All tables of a report, by name."""
NEWEST_LAST = frozenset({"spread", "curve", "sources", "failovers", "distributions", "savings", "audit"})
