"""`torrentdist spark-submit` with real Spark: an environment that is a bundle, on the hosts of two
supervisors.

Each Spark worker sees its own supervisor's directories at one path, as on a host of its own.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_fixtures import Cluster, running_cluster
from launcher_site import as_root
from patience import patient
from spark.conftest import SPARK_HOME, Standalone, small_app

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
tasks = spark.sparkContext.parallelize(range(8), 8).map(look).collect()
print("ANSWER", json.dumps([marker.NAME, sys.argv[1:], tasks]))
"""


class Hosts(Standalone):
    """Workers whose directories of ids are those of different supervisors."""

    def __init__(self, directory: Path, cluster: Cluster) -> None:
        super().__init__(directory)
        self.ids = directory / "ids"
        for path in (self.ids, self.ids.with_name("ids.spark")):
            path.mkdir()
        self.cluster = cluster

    def on_host(self, host: str, command: list[str]) -> list[str]:
        """Returns the command with the directories of this host's supervisor at the common path."""
        own = self.cluster.dir / f"{host}-ids"
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
        own = [sys.executable, "-m", "torrentdist_cli", "--config", str(self.cluster.dir / "client.toml")]
        command = self.on_host(host, [*own, "spark-submit", *map(str, arguments)])
        env = self.environ() | {"TORRENTDIST_SUPERVISOR_IDS_DIR": ids or str(self.ids)}
        del env["PYSPARK_PYTHON"]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=patient(240), check=False)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    top = tmp_path_factory.mktemp("hosts")
    environment = top / "env"
    subprocess.run([sys.executable, "-m", "venv", "--copies", "--without-pip", str(environment)], check=True)
    [packages] = environment.glob("lib/python*/site-packages")
    (packages / "marker.py").write_text('NAME = "of the bundle"\n')
    (top / "model").mkdir()
    (top / "model" / "weights").write_text("42")
    (top / "app.py").write_text(APP)
    with running_cluster(work=tmp_path_factory.mktemp("cluster"), masters=1, supervisors=2) as cluster:
        cluster.upload(environment, "env-43", 1)
        cluster.upload(top / "model", "model-7", 1)
        spark = Hosts(top, cluster)
        try:
            spark.start()
            yield spark
        finally:
            spark.stop()


def answer(run: subprocess.CompletedProcess[str]) -> list[Any]:
    found = re.search(r"^ANSWER (.*)$", run.stdout, re.MULTILINE)
    assert found is not None, run.stderr[-4000:]
    return list(json.loads(found[1]))


pytestmark = as_root


def test_executors_of_two_hosts_run_the_environment(hosts: Hosts) -> None:
    """The command of docs/standalone.md would run with the Python of its hosts, or its executors
    would fail. It takes long because Spark starts."""
    page = (Path(__file__).parents[2] / "docs" / "standalone.md").read_text()
    [line] = re.findall(r"(?m)^    torrentdist spark-submit (.*) app\.py$", page)
    written = [hosts.url if word.startswith("spark://") else word for word in shlex.split(line)]
    run = hosts.submit(*written, *small_app(), hosts.dir / "app.py", "--env", "x")
    name, arguments, tasks = answer(run)

    assert ("of the bundle", ["--env", "x"]) == (name, arguments)
    assert {("of the bundle", f"{hosts.ids}/env-43/bin/python3", "42")} == {tuple(task[:3]) for task in tasks}
    assert len(HOSTS) == len({task[3] for task in tasks})
    assert all((hosts.cluster.dir / f"{host}-ids" / "env-43").exists() for host in HOSTS)


def test_a_local_application_runs_the_environment(hosts: Hosts) -> None:
    """What is tried on one machine would differ from what runs in the cluster. It takes long
    because Spark starts."""
    run = hosts.submit("--env=env-43", "--bundle=model-7", "--master", "local[2]", hosts.dir / "app.py", host=HOSTS[1])
    name, _, tasks = answer(run)

    assert "of the bundle" == name
    assert {("of the bundle", f"{hosts.ids}/env-43/bin/python3", "42")} == {tuple(task[:3]) for task in tasks}


def test_the_plain_command_is_shown(hosts: Hosts) -> None:
    """A user could not see what differs from Spark's own command, or put it into a script."""
    run = hosts.submit("--print", "--env", "env-43", "--master", "yarn", "--deploy-mode", "cluster", "app.py", "a b")
    command = shlex.split(run.stdout)

    assert ("app.py", "a b") == tuple(command[-2:])
    assert f"spark.pyspark.python={hosts.ids}.spark/python" in command
    assert "spark.yarn.appMasterEnv.TORRENTDIST_ENV=env-43" in command


@pytest.mark.parametrize(
    ("arguments", "ids", "code", "words"),
    [
        (["--env", "env-44"], "", 3, "there is no bundle 'env-44'"),
        (["--env", "env-43"], "/no/such/ids", 5, "/no/such/ids.spark/python"),
        (["--env", "env-43", "--label", "zone=moon"], "", 3, "no supervisor has the label zone=moon"),
        (["--env", "env-43", "--nonsense"], "", 2, "neither of spark-submit nor of torrentdist"),
    ],
)
def test_what_is_wrong_is_said_before_spark_starts(
    hosts: Hosts, arguments: list[str], ids: str, code: int, words: str
) -> None:
    """A user would read a Java stack trace of a minute later. It takes long because Python starts
    twice."""
    run = hosts.submit(*arguments, "--master", hosts.url, hosts.dir / "app.py", ids=ids)

    assert code == run.returncode
    assert words in run.stderr
    assert "hint" in run.stderr
