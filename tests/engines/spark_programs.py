"""A user at the host `client`: applications, what they print, and spark-submit.

Always: the real spark-submit of PySpark's wheel, as a process on the client's host. Never: a Spark
in the process of the tests.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyspark
from engines.engine_hosts import EngineLab, java_home
from engines.hadoop import CONF

from bench.lab.namespaces import Host

OTHER_HOME = os.environ.get("ENGINES_SPARK_HOME", "")
"""The home of another Spark than ours: `make engines SPARK=3.5.7`."""
SPARK_HOME = Path(OTHER_HOME or Path(pyspark.__file__).parent)
SAYS = "ANSWER "
"""An application prints its answer as JSON after this word."""
LONGEST_SECS = 1200.0
"""All limits of this ring only mean "not for ever": a busy machine takes ten times as long."""
PLAIN = (f"{SPARK_HOME}/bin/spark-submit",)

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
SHORT_LIVED = {
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.yarn.am.extraJavaOptions": QUICK_JVM,
}
"""Settings of an application that lives for seconds."""
ALL_EXECUTORS = {
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{LONGEST_SECS:.0f}s",
}
"""Tasks begin when all executors are there, so that they run on all hosts."""


class Ended(NamedTuple):
    """How an application ended."""

    code: int
    output: str
    application: str

    @property
    def answer(self) -> Any:
        return answer_in(self.output)


def answer_in(output: str) -> Any:
    """Returns what an application answered."""
    line = next((line for line in output.splitlines() if line.startswith(SAYS)), None)
    assert line is not None, output[-8000:]
    return json.loads(line.removeprefix(SAYS))


class SparkPrograms:
    def __init__(self, lab: EngineLab, client: Host) -> None:
        self._lab = lab
        self.client = client
        self.home = lab.srv(client)

    def write(self, name: str, source: str) -> str:
        """Writes an application, and returns its path on the client."""
        (self.home / name).write_text(source)
        return f"/srv/{name}"

    def submit(
        self,
        options: Mapping[str, object],
        command: Sequence[str],
        *,
        program: Sequence[str] = PLAIN,
        secs: float = LONGEST_SECS,
    ) -> Ended:
        """Runs spark-submit to its end. `options`: Spark's configuration, or options of the command
        if they begin with two dashes. `program`: spark-submit, or torrentdist's, whose bundles
        bring their own Python."""
        given: list[str] = []
        for key, value in options.items():
            given += [key, str(value)] if key.startswith("--") else ["--conf", f"{key}={value}"]
        done = self._lab.call(
            self.client,
            [*program, *given, *command],
            variables=self.variables() | ({"PYSPARK_PYTHON": sys.executable} if program == PLAIN else {}),
            secs=secs,
        )
        output = done.stdout + done.stderr
        found = re.findall(r"\b(application_\d+_\d+|app-\d{14}-\d{4})\b", output)
        return Ended(done.returncode, output, found[0] if found else "")

    def variables(self) -> dict[str, str]:
        return {
            "SPARK_HOME": str(SPARK_HOME),
            "HADOOP_CONF_DIR": CONF,
            "HADOOP_USER_NAME": "root",
            "JAVA_HOME": java_home(),
            "SPARK_LOCAL_IP": self.client.address,
            "PATH": os.environ["PATH"],
        }

    def yarn_options(self, executors: int, **more: object) -> dict[str, object]:
        """Returns the configuration of an application on YARN, small enough for our hosts. Spark's
        own jars are on every host, as an operator installs them."""
        return {
            "--master": "yarn",
            "spark.yarn.jars": f"local:{SPARK_HOME}/jars/*",
            "spark.executor.instances": executors,
            "spark.executor.memory": "512m",
            "spark.executor.memoryOverhead": "128m",
            "spark.driver.memory": "512m",
            "spark.driver.memoryOverhead": "128m",
            "spark.yarn.am.memory": "256m",
            "spark.yarn.am.memoryOverhead": "128m",
            **SHORT_LIVED,
            "spark.yarn.maxAppAttempts": 1,
            **ALL_EXECUTORS,
            "spark.executorEnv.PYTHONPATH": os.getcwd(),
            **more,
        }
