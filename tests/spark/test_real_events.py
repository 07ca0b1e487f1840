"""The report over what real daemons wrote, some of which were killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster_fixtures import Cluster, NewCluster
from spark.conftest import WORKERS, Standalone, small_app

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIZE = 3_000_000


def test_a_report_of_a_real_cluster_by_a_real_cluster(
    new_cluster: NewCluster, spark: Standalone, local_spark: SparkSession, tmp_path: Path
) -> None:
    """Events that the daemons write and the pipeline that reads them would each be right, and not fit; or it would do
    on one machine alone."""
    cluster = new_cluster(masters=2)
    old, new = live_through_a_failover(cluster, tmp_path)
    before = spark.stderrs()
    view = make_report(spark, f"{cluster.dir}/*/events", tmp_path / "out")
    executors = spark.executor_logs(before)

    def table(name: str, *columns: str) -> list[tuple[Any, ...]]:
        found = local_spark.read.parquet(f"{tmp_path}/out/tables/{name}").collect()
        return [tuple(row[column] for column in columns) for row in found]

    assert (1, 4, 0) == (view["bundles"], view["hosts"], sum(view["skipped"].values()))
    assert [True] * WORKERS == ["Finished task" in log for log in executors.values()]
    assert {("master", 2, 2, SIZE), ("supervisor", 2, 2, SIZE)} == set(table("spread", "role", "hosts", "done", "size"))
    assert all(0 <= secs < 60 for (secs,) in table("spread", "secs_100"))
    assert {2 * SIZE} == {sum(parts) for parts in table("sources", "masters", "peers", "local")}
    assert [(old, new)] == table("failovers", "previous", "current")
    assert [("etl-1", SIZE, 0)] == table("savings", "bundle", "bytes", "same_bytes")
    assert {"outside", "unnamed"} >= {rack for pair in table("racks", "from_rack", "to_rack") for rack in pair}


def make_report(spark: Standalone, events: str, out: Path) -> Any:
    """As a user with a Spark cluster does."""
    command = [sys.executable, "-m", "torrentdist_cli", "report", events, "--out", str(out), "-o", "json"]
    ran = subprocess.run(
        [*command, "--spark-master", spark.url, *small_app()],
        env=spark.environ(), capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip

    assert 0 == ran.returncode, ran.stderr[-3000:]
    return json.loads(ran.stdout)


def live_through_a_failover(cluster: Cluster, work: Path) -> tuple[str, str]:
    """A bundle goes everywhere, the leader and a supervisor are killed, all come back. Who led, before and after."""
    (work / "bundle").mkdir()
    (work / "bundle" / "data").write_bytes(bytes(range(250)) * (SIZE // 250))
    cluster.upload(work / "bundle", "etl-1", replicas=2)
    cluster.run("bundle", "distribute", "etl-1", "--wait", "100%").ok()
    old = cluster.leader()
    cluster.kill(old, "supervisor-1")
    new = cluster.leader()
    cluster.start(old, "supervisor-1")
    cluster.dev.down()
    return old, new
