"""Measures a scan of Parquet files by Spark: through S3A from the gateway, against the same files
on this disk.

Spark runs in one JVM on this host. Every column is read. Both sides are in the page cache, and take
turns after one scan of each that is not counted.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from bench.results import Row, paired
from bench.stage import cluster_of, torrentdist

BAR = 1.3
FILES = 8
COLUMNS = 16
CLASSES = Path(__file__).parents[2] / "build" / "engines" / "s3a"
"""Where scripts/engines puts S3A."""


def measure(directory: Path, *, mib: int, pairs: int) -> list[Row]:
    if not CLASSES.exists():
        raise RuntimeError("S3A is missing; scripts/engines fetches it")
    source = directory / "table"
    size = write_table(source, mib)
    with cluster_of(directory / "cluster", masters=1, supervisors=1) as cluster:
        torrentdist(cluster, "upload", str(source), "--id", "table-1", "--min-replicas", "1")
        torrentdist(cluster, "bundle", "distribute", "table-1")
        spark = _session(directory, cluster.member("supervisor-1").gateway)
        try:
            sides = ("s3a://table-1/", f"file://{source}/")
            if len({_scan(spark, side)[1] for side in sides}) != 1:
                raise RuntimeError("the two sides have different rows")
            taken = [(_scan(spark, sides[0])[0], _scan(spark, sides[1])[0]) for _ in range(pairs)]
        finally:
            spark.stop()
    what = f"Spark's scan of {size / 2**20:.0f} MiB of Parquet through S3A"
    return [paired("parquet-scan", what, taken, against="the same files on this disk", bar=BAR)]


def write_table(folder: Path, mib: int) -> int:
    """Writes files of random numbers, and returns their size."""
    folder.mkdir()
    dice = np.random.default_rng(1)
    rows = mib * 2**20 // FILES // COLUMNS // 8
    for number in range(FILES):
        columns = {f"c{column}": dice.random(rows) for column in range(COLUMNS)}
        pq.write_table(pa.table(columns), folder / f"part-{number:03}.parquet", use_dictionary=False)
    return sum(file.stat().st_size for file in folder.iterdir())


def _session(directory: Path, gateway: str) -> SparkSession:
    s3a = {
        "endpoint": f"{gateway}/s3",
        "endpoint.region": "us-east-1",
        "path.style.access": "true",
        "access.key": "any",
        "secret.key": "any",
        "connection.ssl.enabled": "false",
    }
    conf = {f"spark.hadoop.fs.s3a.{key}": value for key, value in s3a.items()}
    conf |= {
        "spark.driver.extraClassPath": f"{CLASSES}/*",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(directory / "spark"),
    }
    builder = SparkSession.builder.master("local[2]").appName("parquet-scan")
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _scan(spark: SparkSession, path: str) -> tuple[float, str]:
    """Returns the seconds, and the sum of everything."""
    began = time.perf_counter()
    sums = [f.sum(f"c{column}").alias(f"c{column}") for column in range(COLUMNS)]
    [row] = spark.read.parquet(path).agg(f.count("*"), *sums).collect()
    return time.perf_counter() - began, " ".join(f"{value:.3f}" for value in row)
