"""Bundles with Spark Connect: a client without a JVM, a server, and executors on a standalone
Spark."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from cluster_fixtures import Cluster, until
from spark.conftest import APP_SECS, SPARK_HOME, START_SECS, WORKERS, Standalone, small_app
from spark.test_spark_jobs import upload_bundles

APP = """
import json, os, sys
from pyspark.sql import SparkSession
from torrentdist.spark import add_bundle, bundle_path
from torrentdist.spark.bundles import processors
from torrentdist.spark.datasource import register

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
add_bundle(spark, "model-7")
add_bundle(spark, "features", python=True)

def look(batches):
    import featured, pyarrow
    for batch in batches:
        weights = (bundle_path("model-7") / "weights").read_text()
        yield pyarrow.RecordBatch.from_pydict({"said": [f"{featured.NAME} {weights}"], "where": [os.getcwd()]})

seen = spark.range(0, 8, 1, 8).mapInArrow(look, "said string, where string").collect()
register(spark)
masters = spark.read.format("torrentdist").option("config", sys.argv[2]).load("masters").collect()
print(json.dumps({"kind": type(spark).__module__, "said": sorted({row.said for row in seen}),
                  "executors": len({row.where for row in seen}), "here": str(bundle_path("model-7")),
                  "masters": [row.id for row in masters], "processors": processors(spark)}))
spark.stop()
"""


@pytest.fixture
def server(spark: Standalone, job_cluster: Cluster, tmp_path: Path) -> Iterator[str]:
    """Yields the server's URL. The driver runs in it; its executors are those of the standalone
    Spark."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    gateway = job_cluster.url("supervisor-1")
    conf = {"connect.grpc.binding.address": "127.0.0.1", "connect.grpc.binding.port": port}
    conf |= {"executorEnv.TORRENTDIST_GATEWAY": gateway}
    options = [part for key, value in conf.items() for part in ("--conf", f"spark.{key}={value}")]
    program = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    command = [str(SPARK_HOME / "bin/spark-submit"), "--master", spark.url, *small_app(), *options, *program]
    env = spark.environ() | {"SPARK_DAEMON_MEMORY": "600m"}  # spark-submit treats it as a daemon
    with (tmp_path / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)
    try:
        until(lambda: _listens(port), "the Connect server", START_SECS)
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _listens(port: int) -> bool:
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    return False


def test_bundles_reach_tasks_of_connect(job_cluster: Cluster, spark: Standalone, server: str, tmp_path: Path) -> None:
    """With Connect there is no SparkContext: add_bundle would fail, tasks would find neither bundle
    nor packages, or more tasks than there are processors would each start a Python to fetch. It
    takes long: a server of Spark Connect starts."""
    upload_bundles(job_cluster, tmp_path)
    app = tmp_path / "app.py"
    app.write_text(APP)
    env = spark.environ() | {"TORRENTDIST_GATEWAY": job_cluster.url("supervisor-1"), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, str(app), server, str(job_cluster.dir / "client.toml")]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=APP_SECS, check=False)

    assert 0 == ran.returncode, ran.stderr[-3000:] + (tmp_path / "server.log").read_text()[-3000:]
    seen = json.loads(ran.stdout)
    assert "0.5" == (Path(seen.pop("here")) / "weights").read_text()
    expected = {"said": ["featured by the swarm 0.5"], "executors": WORKERS, "masters": ["master-1"]}
    expected |= {"processors": WORKERS}
    assert {"kind": "pyspark.sql.connect.session", **expected} == seen
