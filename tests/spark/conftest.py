"""A standalone Spark with two workers, each a JVM with executor JVMs of its own; one for the whole
ring.

Always: none of its processes is left after the tests, and all its files are in the tests'
directory.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest
from cluster_fixtures import Cluster, running_cluster, until

from scripts.java_classes import SPARK_CLASSES

SPARK_HOME = Path(pyspark.__file__).parent
WORKERS = 2
START_SECS = 120.0
APP_SECS = 300.0
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM that lives for seconds: its best compiler would cost more than it gains."""
BRIEF = f"{QUICK} -XX:SharedArchiveFile={SPARK_CLASSES} -Xlog:disable" if SPARK_CLASSES.exists() else QUICK
"""The same for a JVM with Spark's whole classpath, whose classes are then mapped and not parsed."""


@dataclass(frozen=True)
class App:
    """The result of an application that has ended."""

    code: int
    output: str
    log: str
    """Log of the driver."""
    executors: dict[str, str]
    """The log of each executor."""


class Standalone:
    def __init__(self, directory: Path) -> None:
        self.dir = directory
        self.url = ""
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        self._daemon("master", "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        until(lambda: re.search(r"Starting Spark master at (\S+)", self._log("master")), "Spark's master", START_SECS)
        found = re.search(r"Starting Spark master at (\S+)", self._log("master"))
        assert found is not None
        self.url = found[1]
        for n in range(WORKERS):
            work = str(self.dir / f"work-{n}")
            options = ("--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g", "--work-dir", work)
            self._daemon(f"worker-{n}", "worker.Worker", *options, self.url)
        until(lambda: self._log("master").count("Registering worker") == WORKERS, "Spark's workers", START_SECS)

    def stop(self) -> None:
        """Stops the workers first; they end their executors."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def run(self, *arguments: object, env: dict[str, str] | None = None) -> App:
        began = self.begin(*arguments, env=env)
        return began.end()

    def begin(self, *arguments: object, env: dict[str, str] | None = None) -> RunningApp:
        return RunningApp(self, [str(a) for a in arguments], env or {})

    def executor_logs(self, since: set[Path]) -> dict[str, str]:
        return {str(p.parent): p.read_text() for p in self.stderrs() - since}

    def stderrs(self) -> set[Path]:
        return set(self.dir.glob("work-*/app-*/*/stderr"))

    def environ(self) -> dict[str, str]:
        env = {name: value for name, value in os.environ.items() if not name.startswith(("TORRENTDIST_", "SPARK_"))}
        ours = {"SPARK_HOME": SPARK_HOME, "SPARK_LOCAL_DIRS": self.dir / "local", "SPARK_LOCAL_IP": "127.0.0.1"}
        rest = {"PYSPARK_PYTHON": sys.executable, "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": BRIEF}
        rest["JDK_JAVA_OPTIONS"] = QUICK  # also where a test says nothing of a JVM
        return env | {name: str(value) for name, value in ours.items()} | rest

    def _daemon(self, name: str, kind: str, *options: str) -> None:
        command = [str(SPARK_HOME / "bin/spark-class"), f"org.apache.spark.deploy.{kind}", *options]
        with (self.dir / f"{name}.log").open("ab") as log:
            self._processes.append(
                subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environ())
            )

    def _log(self, name: str) -> str:
        return (self.dir / f"{name}.log").read_text()


def small_app() -> list[str]:
    """Returns the options of an application that takes a few seconds."""
    conf = {f"{side}.memory": "512m" for side in ("driver", "executor")}
    conf |= {f"{side}.extraJavaOptions": BRIEF for side in ("driver", "executor")}
    conf |= {"ui.enabled": "false", "cores.max": str(WORKERS), "sql.shuffle.partitions": "2"}
    return [part for key, value in conf.items() for part in ("--conf", f"spark.{key}={value}")]


class RunningApp:
    def __init__(self, spark: Standalone, arguments: list[str], env: dict[str, str]) -> None:
        self._spark, self._before = spark, spark.stderrs()
        command = [str(SPARK_HOME / "bin/spark-submit"), "--master", spark.url, *small_app(), *arguments]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=spark.environ() | env, text=True,
        )  # fmt: skip

    def end(self) -> App:
        try:
            output, log = self.process.communicate(timeout=APP_SECS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            output, log = self.process.communicate()
            pytest.fail(f"the application did not end in {APP_SECS:g} s:\n{log[-5000:]}")
        return App(self.process.returncode, output, log, self._spark.executor_logs(self._before))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    standalone = Standalone(tmp_path_factory.mktemp("spark"))
    try:
        standalone.start()
        yield standalone
    finally:
        standalone.stop()


@pytest.fixture(scope="session")
def job_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and a supervisor, for jobs."""
    with running_cluster(work=tmp_path_factory.mktemp("job-cluster"), masters=1, supervisors=1) as cluster:
        yield cluster
