"""A streaming job whose checkpoint is in HDFS: its host is cut off, and the next one goes on from
where it was."""

from __future__ import annotations

import json
from typing import Any

import fsspec
from engines.engine_hosts import EngineLab
from engines.hadoop import CONF, NAMENODE_WEB, Hadoop
from engines.spark_programs import SparkPrograms
from engines.standalone import SparkCluster
from engines.standalone_jobs import StandaloneJob
from engines.torrentdist_site import TorrentdistSite

from bench.lab.namespaces import wait_until

PLACE = "/streams"
WORKS_SECS, MOVES_SECS, MISSED_SECS = 900.0, 900.0, 300.0
DRIVER = """
import socket, sys
from pyspark.sql import SparkSession, functions

home, place = sys.argv[1:]

def write(rows, batch):
    [row] = rows.collect()
    with open(home + "/lines", "a") as file:
        file.write(f"{batch} {row.total} {socket.gethostname()}\\n")

spark = SparkSession.builder.getOrCreate()
total = spark.readStream.schema("n long").json(place + "/in").agg(functions.sum("n").alias("total"))
writes = total.writeStream.outputMode("complete").foreachBatch(write).trigger(processingTime="1 second")
writes.option("checkpointLocation", place + "/checkpoint").start().awaitTermination()
"""


def put(hdfs: Any, name: str, number: int) -> None:
    """Puts a file among those that the job reads, complete from the first moment."""
    hdfs.pipe_file(f"{PLACE}/in/_{name}", json.dumps({"n": number}).encode())
    hdfs.mv(f"{PLACE}/in/_{name}", f"{PLACE}/in/{name}")


def test_a_streaming_job_goes_on_from_its_checkpoint_in_hdfs(
    engine_lab: EngineLab, hadoop: Hadoop, standalone: SparkCluster, site: TorrentdistSite, spark: SparkPrograms
) -> None:
    """The first input is gone when the second host begins: only the checkpoint knows its sum. If
    this fails, a lost host costs a stream what it has counted. It takes long: a session of
    ZooKeeper ends, and two drivers start."""
    hdfs = fsspec.filesystem("webhdfs", host=hadoop.head.name, port=NAMENODE_WEB, user="root")
    hdfs.makedirs(f"{PLACE}/in")
    put(hdfs, "first.json", 10)
    job = StandaloneJob(engine_lab, site, spark, "streams")
    job.write(
        standalone,
        DRIVER,
        f"hdfs://{hadoop.head.name}:8020{PLACE}",
        restart="always",
        variables={"HADOOP_CONF_DIR": CONF},
        conf={"spark.cores.max": 2, "spark.scheduler.minRegisteredResourcesRatio": "0.0"},
    )
    job.submit()
    wait_until(lambda: hdfs.exists(f"{PLACE}/checkpoint/commits/0"), f"a first batch: {job.lines()}", WORKS_SECS)
    [[_, _, first]] = before = job.lines()
    every = {host.name for host in hadoop.workers}
    engine_lab.cut(engine_lab.named(first))
    try:
        wait_until(lambda: set(hadoop.live_datanodes()) == every - {first}, "HDFS to miss the host", MISSED_SECS)
        hdfs.rm_file(f"{PLACE}/in/first.json")
        put(hdfs, "second.json", 32)
        wait_until(lambda: len(job.lines()) > 1, "a batch on another host", MOVES_SECS)
        job.kill()
    finally:
        engine_lab.plug(engine_lab.named(first))
    wait_until(lambda: set(hadoop.live_datanodes()) == every, "the DataNode", MISSED_SECS)
    [*_, second] = after = job.lines()
    print(f"streaming: {after}")

    assert [["0", "10", first]] == before
    assert [*before, ["1", "42", second[2]]] == after
    assert first != second[2]
