"""A Spark job as a bundle: a supervisor runs it on a standalone Spark, and it uses bundles and
tables."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from cluster_fixtures import Cluster, until
from spark.conftest import BRIEF, WORKERS, Standalone

import torrentdist.spark

FOUND = Path(torrentdist.spark.__file__).parent
"""Where Spark finds the data source: in an installation this is where all packages are, in a clone
it is not."""

APP = """
import json, os, sys, time

if not os.path.exists("tried"):
    open("tried", "w").close()
    sys.exit(3)

from pyspark.sql import SparkSession
from torrentdist.spark import add_bundle, bundle_path

spark = SparkSession.builder.getOrCreate()
add_bundle(spark, "model-7")
add_bundle(spark, "features", python=True)

def look(_):
    import featured
    return [(featured.NAME, (bundle_path("model-7") / "weights").read_text(), open("extra/inside").read(), os.getcwd())]

seen = spark.sparkContext.parallelize(range(8), 8).mapPartitions(look).collect()
tables = {
    name: [row.asDict() for row in spark.read.format("torrentdist").option("config", sys.argv[1]).load(name).collect()]
    for name in ("masters", "supervisors", "bundles", "replicas", "jobs", "workers")
}

def error(table, option, value):
    try:
        return spark.read.format("torrentdist").option(option, value).load(table).collect()
    except Exception as exc:
        return str(exc)

errors = [error("nope", "config", sys.argv[1]), error("bundles", "masters", "http://127.0.0.1:9")]
print(json.dumps({"seen": sorted({s[:3] for s in seen}), "executors": len({s[3] for s in seen}), "tables": tables,
                  "errors": errors, "here": str(bundle_path("model-7"))}, default=str), flush=True)
while not os.path.exists("go"):
    time.sleep(0.05)
spark.stop()
"""

JOB = """
name = "scores"
kind = "spark"
command = ["app.py", "{config}"]

[restart]
backoff_secs = 0.1

[env]
SPARK_LOCAL_IP = "127.0.0.1"
PYTHONWARNINGS = "ignore"
SPARK_LOCAL_DIRS = "{local}"
PYTHONPATH = "{found}"

[spark]
master = "{spark}"
archives = ["extra.tar#extra"]

[spark.conf]
"spark.executor.memory" = "512m"
"spark.driver.memory" = "512m"
"spark.cores.max" = {cores}
"spark.driver.extraJavaOptions" = "{brief}"
"spark.executor.extraJavaOptions" = "{brief}"
"""


@pytest.fixture
def cluster(job_cluster: Cluster) -> Cluster:
    return job_cluster


def upload_bundles(cluster: Cluster, work: Path) -> None:
    (work / "model").mkdir()
    (work / "model/weights").write_text("0.5")
    (work / "features/featured").mkdir(parents=True)
    (work / "features/featured/__init__.py").write_text("NAME = 'featured by the swarm'")
    cluster.upload(work / "model", "model-7", replicas=1)
    cluster.upload(work / "features", "features", replicas=1)


def write_job(directory: Path, spark: Standalone, config: Path) -> Path:
    directory.mkdir()
    text = JOB.format(
        config=config, local=directory.parent / "local", spark=spark.url, cores=WORKERS, found=FOUND, brief=BRIEF
    )
    (directory / "job.toml").write_text(text)
    (directory / "app.py").write_text(APP)
    with tarfile.open(directory / "extra.tar", "w") as tar:
        info = tarfile.TarInfo("inside")
        info.size = 5
        tar.addfile(info, io.BytesIO(b"extra"))
    return directory


def worker(cluster: Cluster) -> Any:
    return cluster.run("job", "show", "scores").ok()["workers"][0]


def printed(cluster: Cluster, job: str, stream: str = "stdout") -> str:
    url = f"{cluster.url('supervisor-1')}/v1/host/jobs/{job}/0/log"
    response = cluster.http.get(url, params={"stream": stream})
    return response.text if response.status_code == 200 else ""


def test_a_spark_job_runs_from_its_bundle(cluster: Cluster, spark: Standalone, tmp_path: Path) -> None:
    """A driver would run without its files, get lost, or not be restarted as its policy says. It
    takes long: drivers of Spark start several times."""
    upload_bundles(cluster, tmp_path)
    job = cluster.run("job", "submit", write_job(tmp_path / "job", spark, cluster.dir / "client.toml")).ok()["id"]
    try:
        until(lambda: printed(cluster, job).startswith("{"), "what the driver prints", 300)
        until(lambda: worker(cluster)["application"], "the application's id", 60)
    except BaseException:
        print(worker(cluster), *(printed(cluster, job, stream)[-6000:] for stream in ("stdout", "stderr")), sep="\n")
        cluster.run("job", "kill", job, "--wait", "0")  # it would start its driver again and again
        raise
    said, running = json.loads(printed(cluster, job)), worker(cluster)
    pages = cluster.http.get(f"{running['ui']}/api/v1/applications").json()
    work = cluster.store("supervisor-1") / "workers" / job / "0"
    (work / "go").touch()
    until(lambda: cluster.run("job", "show", "scores").ok()["status"] == "finished", "the job's end", 60)
    ended = worker(cluster)

    assert [["featured by the swarm", "0.5", "extra"]] == said["seen"]
    assert WORKERS == said["executors"]
    assert [("running", 1), ("ended", 0)] == [
        (running["state"], running["restarts"]),
        (ended["state"], ended["exit_code"]),
    ]
    assert running["application"] == ended["application"] == pages[0]["id"]
    check_tables(said["tables"], job)
    check_errors(said["errors"])


def check_tables(tables: dict[str, list[dict[str, Any]]], job: str) -> None:
    """The cluster as Spark sees it would not be the cluster."""
    assert ["master-1"] == [row["id"] for row in tables["masters"] if row["is_leader"]]
    assert ["supervisor-1"] == [row["id"] for row in tables["supervisors"]]
    assert {"model-7", "features"} < {row["id"] for row in tables["bundles"]}
    assert ("model-7", "master-1") in {(row["bundle"], row["master"]) for row in tables["replicas"]}
    jobs = {row["id"]: (row["name"], row["wanted"]) for row in tables["jobs"]}
    places = [(row["worker"], row["supervisor"]) for row in tables["workers"] if row["job"] == job]
    assert (("scores", 1), [(0, "supervisor-1")]) == (jobs[job], places)


def check_errors(errors: list[str]) -> None:
    """A page of a Python traceback would stand before what is wrong and what to do."""
    words = ["error[usage]: there is no table 'nope'", "error[unreachable]: no master"]

    assert [True, True] == [
        any(word in line for line in error.splitlines()[:2]) for word, error in zip(words, errors, strict=True)
    ]
    assert not any("Traceback" in error for error in errors)


def test_a_second_driver_is_refused_with_the_reason(cluster: Cluster, spark: Standalone, tmp_path: Path) -> None:
    """Two drivers would do all the work twice."""
    directory = write_job(tmp_path / "job", spark, cluster.dir / "client.toml")
    ran = cluster.run("job", "submit", directory, "--name", "twice", "--workers", "2")

    assert 2 == ran.code
    assert "a Spark job has one worker, which is its driver" in ran.stderr
