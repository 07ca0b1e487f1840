"""A torrentdist job of `kind = "spark"` on Spark's own cluster: its files, and what its drivers
write about themselves into a directory that all hosts share."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engines.engine_hosts import EngineLab, java_home
from engines.spark_programs import SPARK_HOME, SparkPrograms
from engines.standalone import SparkCluster
from engines.torrentdist_site import TorrentdistSite


class StandaloneJob:
    def __init__(self, lab: EngineLab, site: TorrentdistSite, spark: SparkPrograms, name: str) -> None:
        self._lab, self._site, self._client = lab, site, spark.client
        self.name = name
        self.home = lab.shared / name
        """`/mnt/NAME` on each host. The driver writes its `lines` there."""
        self.home.mkdir()
        self.bundle = spark.home / name
        self.bundle.mkdir()

    def write(
        self,
        cluster: SparkCluster,
        driver: str,
        *arguments: str,
        restart: str = "on-failure",
        settings: str = "",
        variables: Mapping[str, str] | None = None,
        conf: Mapping[str, object] | None = None,
    ) -> None:
        """Writes the job. `settings`: more of the table `spark`; `arguments`: those of the driver,
        after the path of the shared directory."""
        env = {"JAVA_HOME": java_home(), "SPARK_HOME": str(SPARK_HOME), "PYSPARK_PYTHON": sys.executable}
        options = {key: value for key, value in cluster.options().items() if not key.startswith("--")}
        (self.bundle / "app.py").write_text(driver)
        (self.bundle / "job.toml").write_text(f"""
name = "{self.name}"
kind = "spark"
command = {json.dumps(["app.py", f"/mnt/{self.name}", *arguments])}
kill_wait_secs = 1
[restart]
policy = "{restart}"
backoff_secs = 1
[env]
{_toml({**env, **(variables or {})})}
[spark]
master = "{cluster.url}"
{settings}
[spark.conf]
{_toml({**options, **(conf or {})})}""")

    def submit(self) -> None:
        self._site.command(self._client, "job", "submit", f"/srv/{self.name}")

    def lines(self) -> list[list[str]]:
        """Returns the words of each line that drivers wrote."""
        path: Path = self.home / "lines"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def show(self) -> dict[str, Any]:
        """Returns what `job show` says on the host of the master."""
        return self._site.command(self._lab.named("head"), "job", "show", self.name)

    def kill(self) -> None:
        self._site.command(self._lab.named("head"), "job", "kill", self.name, "-w", "0")


def _toml(values: Mapping[str, object]) -> str:
    return "".join(f'"{key}" = {json.dumps(str(value))}\n' for key, value in values.items())
