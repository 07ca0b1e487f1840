"""`torrentdist spark-submit` with real Spark: an environment that is a bundle, on the hosts of two
supervisors.

Each Spark worker sees its own supervisor's directories at one path, as on a host of its own.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from cluster_fixtures import Cluster, NewCluster, until
from launcher_site import as_root
from patience import patient
from spark.conftest import BRIEF, SPARK_HOME, Standalone, small_app

HOSTS = ("supervisor-1", "supervisor-2")
APP = """
import json, os, sys
from pyspark.sql import SparkSession
import marker

def look(n):
    import marker
    data = open(os.path.join(os.environ["TORRENTDIST_IDS_DIR"], "model-7", "weights")).read()
    host = os.stat(os.environ["TORRENTDIST_IDS_DIR"]).st_ino
    import time
    time.sleep(0.5)
    return [marker.NAME, sys.executable, data, host]

spark = SparkSession.builder.getOrCreate()
print("ANSWER", json.dumps([marker.NAME, sys.argv[1:], spark.sparkContext.parallelize(range(8), 8).map(look).collect()]))
"""


class Hosts(Standalone):
    """Workers whose directories of ids are those of different supervisors."""

    def __init__(self, directory: Path, cluster: Cluster) -> None:
        super().__init__(directory)
        self.ids = directory / "ids"
        for path in (self.ids, self.ids.with_name("ids.spark")):
            path.mkdir()
        self._cluster = cluster

    def on_host(self, host: str, command: list[str]) -> list[str]:
        """Returns the command with the directories of this host's supervisor at the common path."""
        own = self._cluster.dir / f"{host}-ids"
        mounts = [f"mount --bind {own}{end} {self.ids}{end}" for end in ("", ".spark")]
        return ["unshare", "-m", "sh", "-c", f"{' && '.join(mounts)} && exec {shlex.join(command)}"]

    def _daemon(self, name: str, kind: str, *options: str) -> None:
        command = [str(SPARK_HOME / "bin/spark-class"), f"org.apache.spark.deploy.{kind}", *options]
        number = name.removeprefix("worker-")
        placed = self.on_host(HOSTS[int(number)], command) if number.isdigit() else command
        with (self.dir / f"{name}.log").open("ab") as log:
            self._processes.append(
                subprocess.Popen(placed, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environ())
            )

    def submit(self, *arguments: object, host: str = HOSTS[0], ids: str = "") -> subprocess.CompletedProcess[str]:
        """Runs `torrentdist spark-submit` on a host."""
        own = [sys.executable, "-m", "torrentdist_cli", "--config", str(self._cluster.dir / "client.toml")]
        command = self.on_host(host, [*own, "spark-submit", *map(str, arguments)])
        env = self.environ() | {"TORRENTDIST_SUPERVISOR_IDS_DIR": ids or str(self.ids)}
        del env["PYSPARK_PYTHON"]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=patient(240), check=False)


@pytest.fixture(scope="module")
def hosts(module_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    top = tmp_path_factory.mktemp("hosts")
    environment = top / "env"
    subprocess.run([sys.executable, "-m", "venv", "--copies", "--without-pip", str(environment)], check=True)
    [packages] = environment.glob("lib/python*/site-packages")
    (packages / "marker.py").write_text('NAME = "of the bundle"\n')
    (top / "model").mkdir()
    (top / "model" / "weights").write_text("42")
    module_cluster.upload(environment, "env-43", 1)
    module_cluster.upload(top / "model", "model-7", 1)
    (top / "app.py").write_text(APP)
    spark = Hosts(top, module_cluster)
    try:
        spark.start()
        yield spark
    finally:
        spark.stop()


@pytest.fixture(scope="module")
def module_cluster(shared_new_cluster: NewCluster) -> Cluster:
    return shared_new_cluster(masters=1, supervisors=2)


def answer(run: subprocess.CompletedProcess[str]) -> list[object]:
    found = re.search(r"^ANSWER (.*)$", run.stdout, re.MULTILINE)
    assert found is not None, run.stderr[-4000:]
    import json

    return list(json.loads(found[1]))
