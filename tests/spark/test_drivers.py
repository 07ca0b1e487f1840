"""Spark jobs of all kinds with real drivers: a Java class, a killed stream, YARN, Kubernetes.

There is no YARN and no Kubernetes here. The drivers are real and talk to a server of the test,
which records their requests. All start at once, because most of their time is waiting.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_fixtures import Cluster, until
from spark.conftest import BRIEF, SPARK_HOME, Standalone
from spark.stand_ins import KubernetesApi, ResourceManager

LONG = 300.0
JOB = """
name = "{name}"
kind = "spark"
command = {command}

[restart]
policy = "{policy}"
backoff_secs = 0.1

[env]
SPARK_LOCAL_IP = "127.0.0.1"
PYTHONWARNINGS = "ignore"
SPARK_LOCAL_DIRS = "{local}"
{env}

[spark]
master = "{master}"
{spark}

[spark.conf]
"spark.driver.memory" = "512m"
"spark.executor.memory" = "512m"
"spark.driver.extraJavaOptions" = "{brief}"
"spark.executor.extraJavaOptions" = "{brief}"
{conf}
"""

MAIN = """
import java.util.Arrays;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.SparkSession;

public class Main {
    public static void main(String[] arguments) {
        SparkSession spark = SparkSession.builder().getOrCreate();
        JavaSparkContext context = new JavaSparkContext(spark.sparkContext());
        Object found = context.parallelize(Arrays.asList(1, 2), 2).map(n -> Part.twice(n)).collect();
        System.out.println(arguments[0] + found);
        spark.stop();
    }
}
"""
PART = "public class Part { public static int twice(int n) { return 2 * n; } }"

STREAM = """
import sys
from pyspark.sql import SparkSession

top = sys.argv[1]

def note(rows, number):
    with open(f"{top}/log", "a") as log:
        log.write(f"{number} {sorted(row.value for row in rows.collect())}\\n")

lines = SparkSession.builder.getOrCreate().readStream.format("text").load(f"{top}/in")
lines.writeStream.foreachBatch(note).option("checkpointLocation", f"{top}/checkpoint").start().awaitTermination()
"""

WAITING = """
import json, os, time
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
print(json.dumps({"archives": spark.conf.get("spark.archives"), "inside": os.path.exists("extra.tar")}), flush=True)
while not os.path.exists("go"):
    time.sleep(0.05)
spark.stop()
"""


class Submitted:
    """The jobs, and the servers that their drivers talk to."""

    def __init__(self, cluster: Cluster, top: Path) -> None:
        self.cluster, self.top = cluster, top
        self.stream = top / "stream"
        self.kubernetes, self.yarn = KubernetesApi(), ResourceManager()
        self.ids: dict[str, str] = {}

    def submit(self, name: str, command: list[str], files: dict[str, str], **said: Any) -> None:
        directory = self.top / "jobs" / name
        directory.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (directory / file).write_text(text)
        (directory / "extra").write_text("extra")
        with tarfile.open(directory / "extra.tar", "w") as tar:
            tar.add(directory / "extra", "inside")
        values = {"policy": "never", "env": "", "spark": "", "conf": "", "brief": BRIEF, "local": self.top / "local"}
        (directory / "job.toml").write_text(JOB.format(name=name, command=json.dumps(command), **{**values, **said}))
        self.ids[name] = self.cluster.run("job", "submit", directory).ok()["id"]

    def worker(self, name: str) -> Any:
        return self.cluster.run("job", "show", name).ok()["workers"][0]

    def ended(self, name: str) -> Any:
        until(lambda: self.worker(name)["state"] == "ended", f"the end of {name}", LONG)
        return self.worker(name)

    def printed(self, name: str, stream: str = "stdout") -> str:
        url = f"{self.cluster.url('supervisor-1')}/v1/host/jobs/{self.ids[name]}/0/log"
        response = self.cluster.http.get(url, params={"stream": stream})
        return response.text if response.status_code == 200 else ""

    def place(self, name: str) -> Path:
        return self.cluster.store("supervisor-1") / "workers" / self.ids[name] / "0"

    def close(self) -> None:
        for name in self.ids:
            self.cluster.run("job", "kill", name, "--wait", "0")
        self.kubernetes.close()
        self.yarn.close()


@pytest.fixture(scope="module")
def jobs(job_cluster: Cluster, spark: Standalone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Submitted]:
    made = Submitted(job_cluster, tmp_path_factory.mktemp("drivers"))
    try:
        (made.stream / "in").mkdir(parents=True)
        (made.stream / "in/a").write_text("a")
        submit_all(made, spark)
        yield made
    finally:
        made.close()


def submit_all(jobs: Submitted, spark: Standalone) -> None:
    stream = {"policy": "always", "master": "local[1]", "conf": '"spark.sql.shuffle.partitions" = 1'}
    jobs.submit("stream", ["app.py", str(jobs.stream)], {"app.py": STREAM}, **stream)
    cluster_conf = '"spark.executor.instances" = 2\n"spark.scheduler.maxRegisteredResourcesWaitingTime" = "1s"\n'
    extra = {"spark": 'archives = ["extra.tar#extra"]'}
    image = cluster_conf + '"spark.kubernetes.container.image" = "spark"'
    jobs.submit("pods", ["app.py"], {"app.py": WAITING}, master=jobs.kubernetes.master, conf=image, **extra)
    env = f'HADOOP_CONF_DIR = "{jobs.yarn.write_conf(jobs.top / "hadoop")}"'
    jobs.submit("yarn", ["app.py"], {"app.py": WAITING}, master="yarn", env=env, conf=cluster_conf, **extra)
    if shutil.which("javac"):
        pack_classes(jobs.top / "jobs" / "java", jobs.top)
        java = {"master": spark.url, "conf": '"spark.cores.max" = 1\n"spark.ui.enabled" = false'}
        jobs.submit("java", ["main.jar", "twice: "], {}, spark='class = "Main"\npackages = ["part.jar"]', **java)


def pack_classes(directory: Path, top: Path) -> None:
    """Packs main.jar and part.jar, with a class in each."""
    directory.mkdir(parents=True)
    for name, text in (("Main", MAIN), ("Part", PART)):
        (top / f"{name}.java").write_text(text)
    classes = top / "classes"
    command = ["javac", "-J-XX:TieredStopAtLevel=1", "-d", classes, "-cp", f"{SPARK_HOME}/jars/*", *top.glob("*.java")]
    subprocess.run([str(part) for part in command], check=True, capture_output=True)
    for name in ("Main", "Part"):
        with zipfile.ZipFile(directory / f"{name.lower()}.jar", "w") as jar:
            jar.write(classes / f"{name}.class", f"{name}.class")


def test_a_stream_goes_on_from_its_checkpoint_when_its_driver_is_killed(jobs: Submitted) -> None:
    """A streaming job would stay dead, or read everything again. It takes long: a driver of Spark
    starts twice."""
    log = jobs.stream / "log"
    until((jobs.stream / "checkpoint/commits/0").exists, "the first batch", LONG)
    os.kill(jobs.worker("stream")["pid"], signal.SIGKILL)
    (jobs.stream / "in/b").write_text("b")
    until((jobs.stream / "checkpoint/commits/1").exists, "the next batch", LONG)

    assert ["0 ['a']", "1 ['b']"] == log.read_text().splitlines()
    assert ("running", 1) == (jobs.worker("stream")["state"], jobs.worker("stream")["restarts"])
    jobs.cluster.run("job", "kill", "stream", "--wait", "0").ok()


@pytest.mark.skipif(shutil.which("javac") is None, reason="no javac here")
def test_a_main_class_runs_with_the_jars_of_its_bundle(jobs: Submitted) -> None:
    """Jobs of Java and Scala would need a driver of ours, or not find their classes on
    executors."""
    ended = jobs.ended("java")

    assert (0, "twice: [2, 4]\n") == (ended["exit_code"], jobs.printed("java")), jobs.printed("java", "stderr")[-3000:]


def test_kubernetes_is_asked_for_executors_that_know_their_gateway(jobs: Submitted) -> None:
    """Executors in pods could not reach their host's gateway, or would stay when the driver
    ends."""
    until(lambda: len(jobs.kubernetes.pods) >= 2, "pods", LONG)  # Spark asks again for what does not come
    until(lambda: jobs.printed("pods"), "the driver's start", LONG)
    until(lambda: jobs.worker("pods")["application"], "the application's id", 60)
    running = jobs.worker("pods")
    (jobs.place("pods") / "go").touch()
    ended = jobs.ended("pods")

    gateway = jobs.cluster.url("supervisor-1")
    for pod in jobs.kubernetes.pods:
        env = {entry["name"]: entry.get("value") for entry in pod["spec"]["containers"][0]["env"]}
        assert gateway == env["TORRENTDIST_GATEWAY"]
        assert running["application"] == pod["metadata"]["labels"]["spark-app-selector"]
    said = json.loads(jobs.printed("pods"))
    assert said["archives"].startswith(f"{gateway}/bundles/")
    assert said["archives"].endswith("extra.tar#extra")
    assert ("running", 0) == (running["state"], ended["exit_code"])
    assert any(method == "DELETE" and "/pods" in path for method, path in jobs.kubernetes.asked)


def test_a_yarn_that_refuses_is_said_in_the_jobs_record(jobs: Submitted) -> None:
    """The driver would look for its cluster elsewhere, or the user would see only a number."""
    until(lambda: jobs.yarn.greeting, "the driver at the resource manager", LONG)
    pid = jobs.worker("yarn")["pid"]
    argv = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    jobs.yarn.refuse()
    ended = jobs.ended("yarn")

    gateway = jobs.cluster.url("supervisor-1")
    assert b"hrpc" == jobs.yarn.greeting  # the greeting of a Hadoop client
    assert ["yarn", "client"] == [argv[argv.index(option) + 1] for option in ("--master", "--deploy-mode")]
    assert argv[argv.index("--archives") + 1].startswith(f"{gateway}/bundles/")
    assert f"spark.executorEnv.TORRENTDIST_GATEWAY={gateway}" in argv
    assert 1 == ended["exit_code"]
    reason = jobs.cluster.run("job", "show", "yarn").ok()["reason"]
    assert re.match(r"worker 0 ended with exit code 1: (java|org)\.\S*Exception", reason), reason
