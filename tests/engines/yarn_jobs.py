"""A torrentdist job whose driver runs in YARN, and what the driver itself writes about its runs.

Always: every driver takes a lock that all hosts share. One that finds it taken writes `twice`.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from engines.engine_hosts import EngineLab, java_home
from engines.hadoop import CONF, Hadoop
from engines.spark_programs import SPARK_HOME, SparkPrograms
from engines.torrentdist_site import TorrentdistSite

from bench.lab.namespaces import ROOT, wait_until

PAGE = ROOT / "docs/yarn.md"
START_SECS, END_SECS = 900.0, 600.0
DRIVER = """
import fcntl, os, sys, time
from pyspark.sql import SparkSession

home = sys.argv[1]

def write(word):
    with open(home + "/lines", "a") as file:
        file.write(word + " " + os.environ["TORRENTDIST_FENCING"] + "\\n")

lock = open(home + "/lock", "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    write("twice")
write("began")
spark = SparkSession.builder.getOrCreate()
assert spark.sparkContext.parallelize(range(4), 2).sum() == 6
write("works")
while not os.path.exists(home + "/go"):
    time.sleep(0.1)
assert spark.sparkContext.parallelize(range(4), 2).sum() == 6
write("ends")
spark.stop()
"""


class YarnJob:
    def __init__(self, lab: EngineLab, hadoop: Hadoop, site: TorrentdistSite, spark: SparkPrograms, name: str) -> None:
        self._hadoop, self._site, self._client = hadoop, site, spark.client
        self.name = name
        self.home = lab.shared / name
        self.home.mkdir()
        bundle = spark.home / name
        bundle.mkdir()
        (bundle / "app.py").write_text(DRIVER)
        (bundle / "job.toml").write_text(_job_toml(name, spark))

    def submit(self) -> None:
        self._site.command(self._client, "job", "submit", f"/srv/{self.name}")

    def lines(self) -> list[list[str]]:
        """Returns what the drivers wrote: a word, and the number of the run."""
        path = self.home / "lines"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def words(self) -> list[str]:
        return [word for word, _ in self.lines()]

    def wait_for(self, word: str, times: int = 1, secs: float = START_SECS) -> None:
        wait_until(lambda: self.words().count(word) >= times, f"{word} of {self.name}: {self.lines()}", secs)

    def show(self) -> dict[str, Any]:
        return self._site.command(self._client, "job", "show", self.name)

    def worker(self) -> dict[str, Any]:
        [worker] = self.show()["workers"]
        return dict(worker)

    def wait_for_state(self, state: str, secs: float = END_SECS) -> None:
        wait_until(lambda: self.show()["status"] == state, f"{self.name} is {state}", secs)

    def applications(self) -> list[dict[str, Any]]:
        """Returns what YARN says of the job's applications, the oldest first."""
        listed = (self._hadoop.yarn("apps")["apps"] or {}).get("app", [])
        own = [each for each in listed if f"torrentdist:{self.name}-" in each["applicationTags"]]
        return sorted(own, key=lambda each: str(each["id"]))


def _job_toml(name: str, spark: SparkPrograms) -> str:
    """Returns the job of docs/yarn.md, with a name, a command and the settings of our hosts."""
    options = spark.yarn_options(1) | {"spark.pyspark.python": sys.executable}
    ours = ("--master", "spark.yarn.maxAppAttempts")
    conf = "".join(f'"{key}" = {json.dumps(str(value))}\n' for key, value in options.items() if key not in ours)
    env = {
        "HADOOP_CONF_DIR": CONF,
        "HADOOP_USER_NAME": "root",
        "JAVA_HOME": java_home(),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_DIRS": "/srv/local",
    }
    variables = "".join(f"{key} = {json.dumps(value)}\n" for key, value in env.items())
    [of_page] = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for line, replacement in (
        ('name = "daily"', f'name = "{name}"\nkill_wait_secs = 1\nrestart.backoff_secs = 1'),
        ('["app.py", "--day", "monday"]', f'["app.py", "/mnt/{name}"]'),
        ('HADOOP_CONF_DIR = "/etc/hadoop/conf"', variables),
    ):
        assert line in of_page, f"{PAGE} has another job"
        of_page = of_page.replace(line, replacement)
    return f"{of_page}\n[spark.conf]\n{conf}"
