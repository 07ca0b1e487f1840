"""Generates events of an imaginary cluster with Spark, to measure the report.

Always: the same count gives the same events. Every kind that a table needs occurs, roughly in the
proportions of a real cluster, where most lines are progress and peers. Never: call Python for a
row.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

HOSTS = 1000
RACKS = 8
PER_DOWNLOAD = 10
LEAST_BUNDLES = 5
SIZE = 64 << 20
EPOCH = 1.7e9
WORKERS = 200


def generated(spark: SparkSession, count: int, partitions: int) -> DataFrame:
    """Returns about `count` events: downloads of count / 10,000 bundles by 1000 hosts, and other
    events that happen meanwhile.

    Fewer than 50,000 events have fewer hosts and workers, so that there are five bundles at least.
    """
    hosts = min(HOSTS, max(4, count // (PER_DOWNLOAD * LEAST_BUNDLES)))
    bundles = max(1, count // (hosts * PER_DOWNLOAD))
    workers = min(WORKERS, hosts)
    return (
        _downloads(spark, bundles, hosts, partitions)
        .unionByName(_rare(spark, hosts, "daemon_started", _daemons()), allowMissingColumns=True)
        .unionByName(_rare(spark, bundles, "bundle_files", _files()), allowMissingColumns=True)
        .unionByName(_rare(spark, 10, "leader_elected", _elections()), allowMissingColumns=True)
        .unionByName(_rare(spark, workers * 3, "worker_changed", _workers()), allowMissingColumns=True)
    )


def write_events(events: DataFrame, directory: Path) -> None:
    """Writes the events into files that are named like a daemon's."""
    events.write.json(str(directory))
    for number, part in enumerate(sorted(directory.glob("part-*.json"))):
        part.rename(directory / f"events-generated-{number}.jsonl")


def multiply(directory: Path, times: int) -> None:
    """Copies the events `times` times, with other bundles and other starts of the daemons. That is
    quicker than generating them."""
    made = sorted(directory.glob("events-generated-*.jsonl"))
    for number in range(1, times):
        for path in made:
            text = path.read_bytes()
            for key, prefix in (("run", f"{number}-"), ("bundle", f"{number}-"), ("digest", f"{number:02x}")):
                text = text.replace(f'"{key}":"'.encode(), f'"{key}":"{prefix}'.encode())
            path.with_name(f"{path.stem}-{number}.jsonl").write_bytes(text)


def _name(prefix: str, number: Column) -> Column:
    return F.concat(F.lit(prefix), number.cast("string"))


def _address(host: Column) -> Column:
    return F.concat_ws(".", F.lit("10.0"), (host / 256).cast("int").cast("string"), (host % 256).cast("string"))


def _envelope(host: Column, at: Column, seq: Column, run: str) -> list[Column]:
    return [
        F.lit(1).alias("v"),
        _name("host-", host).alias("node"),
        F.lit("supervisor").alias("role"),
        _name("rack-", host % RACKS).alias("rack"),
        F.lit(run).alias("run"),
        seq.alias("seq"),
        # Every clock is off by up to half a minute, and every line says by how much.
        (at + (host % 61 - 30)).alias("at"),
        (F.lit(30.0) - host % 61).alias("clock"),
    ]


def _downloads(spark: SparkSession, bundles: int, hosts: int, partitions: int) -> DataFrame:
    rows = spark.range(0, bundles * hosts * PER_DOWNLOAD, numPartitions=partitions)
    step, host = F.col("id") % PER_DOWNLOAD, (F.col("id") / PER_DOWNLOAD).cast("long") % hosts
    bundle = (F.col("id") / (PER_DOWNLOAD * hosts)).cast("long")
    luck = F.abs(F.xxhash64(host, bundle) % 1000) / 1000
    seconds = 5 + 10 * luck + F.when(host % 97 == 0, 40.0).otherwise(0.0)
    last = PER_DOWNLOAD - 1
    rows = rows.select("id", *(c.alias(n) for c, n in ((step, "step"), (host, "h"), (bundle, "b"), (seconds, "secs"))))
    step, host, bundle, seconds = F.col("step"), F.col("h"), F.col("b"), F.col("secs")
    event = (
        F.when(step == 0, "download_started")
        .when(step == last, "download_finished")
        .when(step == last - 1, "peer_dropped")
        .when(step <= 2, "peer_connected")
        .otherwise("download_progress")
    )
    at = F.lit(EPOCH) + bundle * 60 + seconds * step / last
    is_end, is_peer, is_progress = step == last, event.like("peer%"), event == "download_progress"
    other = (host * 7 + bundle * 13) % hosts
    sent = (F.lit(SIZE) / 2).cast("long")
    source = F.struct(_address(other).alias("host"), F.lit(7071).alias("port"), sent.alias("bytes"))
    near = F.struct(_address((host + RACKS) % hosts).alias("host"), F.lit(7071).alias("port"), sent.alias("bytes"))
    done = (F.lit(SIZE) * step / last).cast("long")
    return rows.select(
        *_envelope(host, at, bundle * PER_DOWNLOAD + step, "r1"),
        event.alias("event"),
        _name("bundle-", bundle).alias("bundle"),
        F.sha2(bundle.cast("string"), 256).alias("digest"),
        F.when(~is_peer, F.lit(SIZE)).alias("size"),
        F.when(is_progress, done).alias("done"),
        F.when(is_progress, 1e7).alias("rate"),
        F.when(is_progress | is_end, 4 + host % 5).alias("peers"),
        F.when(is_end, F.lit(SIZE) / 16).cast("long").alias("from_masters"),
        F.when(is_end, F.lit(SIZE) * 15 / 16).cast("long").alias("from_peers"),
        F.when(is_end, F.lit(0)).alias("local"),
        F.when(is_end, seconds).alias("seconds"),
        F.when(is_end, 0.01).alias("prepare_secs"),
        F.when(is_end, 0.2).alias("wait_secs"),
        F.when(is_end, seconds - 0.31 - F.when(host % 194 == 0, 40.0).otherwise(0.0)).alias("fetch_secs"),
        F.when(is_end, 0.1 + F.when(host % 194 == 0, 40.0).otherwise(0.0)).alias("publish_secs"),
        F.when(is_end, F.when(host % 389 == 1, 3).otherwise(0)).alias("hash_failures"),
        F.when(is_end, F.array(source, near)).alias("sources"),
        F.when(is_peer, _address(other)).alias("host"),
        F.when(is_peer, 7071).alias("port"),
        F.when(event == "peer_dropped", "End of file.").alias("reason"),
    )


def _rare(spark: SparkSession, count: int, event: str, columns: list[Column]) -> DataFrame:
    return spark.range(0, count, numPartitions=1).select(F.lit(event).alias("event"), *columns)


def _daemons() -> list[Column]:
    host = F.col("id")
    started = [_address(host).alias("host"), F.lit(7071).alias("port"), F.lit("0.1.0").alias("version")]
    return [*_envelope(host, F.lit(EPOCH - 60), F.lit(-1), "r1"), *started]


def _files() -> list[Column]:
    """Returns a hundred files per bundle, of which the next bundle changes one in ten."""
    bundle = F.col("id")

    def file(number: Column) -> Column:
        version = F.when(number % 10 == 0, bundle).otherwise(0)
        content = F.concat_ws("-", number.cast("string"), version.cast("string"))
        return F.struct(F.sha2(content, 256).alias("root"), F.lit(SIZE // 100).alias("size"))

    root = F.transform(F.expr("sequence(0, 99)"), file)
    told = [_name("bundle-", bundle).alias("bundle"), F.sha2(bundle.cast("string"), 256).alias("digest")]
    return [*_envelope(F.lit(0), F.lit(EPOCH) + bundle * 60, bundle, "r2"), *told, root.alias("files")]


def _elections() -> list[Column]:
    number = F.col("id")
    previous = F.when(number == 0, "").otherwise(_name("host-", (number - 1) % 3))
    facts = [(number + 1).alias("epoch"), previous.alias("previous"), F.lit("died").alias("reason")]
    return [*_envelope(number % 3, F.lit(EPOCH) + number * 100, number, "r3"), *facts, F.lit(0.4).alias("vacant_secs")]


def _workers() -> list[Column]:
    """Returns the events of workers; each worker starts, ends, and starts again."""
    worker, turn = (F.col("id") / 3).cast("long"), F.col("id") % 3
    return [
        *_envelope(worker, F.lit(EPOCH) + worker + turn * 10, F.col("id"), "r4"),
        F.lit("etl").alias("job"),
        worker.alias("worker"),
        F.when(turn == 1, "backoff").otherwise("running").alias("state"),
        F.when(turn == 1, 1).alias("exit_code"),
        (turn + 1).alias("fencing"),
        F.lit("").alias("detail"),
    ]
