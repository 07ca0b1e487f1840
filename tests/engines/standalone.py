"""Spark's own cluster as an operator runs it: a master on one host, a worker on each of the others.

Always: Spark's own daemons from PySpark's wheel. A worker's directory is on its host's disk. It
offers more cores than the machine has, because executors of these tests mostly wait.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Sequence
from typing import Any

from engines.engine_hosts import EngineLab, java_home
from engines.spark_programs import ALL_EXECUTORS, QUICK_JVM, SHORT_LIVED, SPARK_HOME

from bench.lab.namespaces import Host, wait_until

PORT, WEB = 7077, 8079
START_SECS = 600.0
CORES = 6
"""Cores that a worker offers. Spark spreads an application that wants fewer over all workers."""
WORKER_MB = 6 * 900


class SparkCluster:
    def __init__(self, lab: EngineLab, head: Host, workers: Sequence[Host]) -> None:
        self._lab = lab
        self.head = head
        self.workers = workers
        self.url = f"spark://{head.name}:{PORT}"

    def start(self) -> None:
        self._daemon(self.head, "master.Master", "--port", str(PORT), "--webui-port", str(WEB))
        wait_until(lambda: self._page() is not None, "Spark's master", START_SECS)
        for host in self.workers:
            self._start_worker(host)
        self._expect(len(self.workers))

    def leave(self, host: Host) -> None:
        """Ends a host's worker, and returns when the master knows it."""
        self._lab.kill(_process(host))
        self._expect(len(self.workers) - 1)

    def join(self, host: Host) -> None:
        """Starts a host's worker that has left, and returns when the master knows it."""
        self._start_worker(host)
        self._expect(len(self.workers))

    def end(self) -> None:
        names = [_process(host) for host in (self.head, *self.workers)]
        self._lab.stop([name for name in names if self._lab.runs(name)])

    def options(self, **more: object) -> dict[str, object]:
        """Returns the configuration of an application with an executor on each worker."""
        return {
            "--master": self.url,
            "spark.executor.cores": 1,
            "spark.executor.memory": "512m",
            "spark.driver.memory": "512m",
            **ALL_EXECUTORS,
            "spark.cores.max": len(self.workers),
            "spark.local.dir": "/srv/local",
            **SHORT_LIVED,
            **more,
        }

    def executor_logs(self, application: str) -> str:
        """Returns the ends of the executors' logs, on all hosts."""
        found = [
            path for host in self.workers for path in (self._lab.srv(host) / "work").glob(f"{application}/*/stderr")
        ]
        return "\n".join(f"== {path}\n{path.read_text()[-1500:]}" for path in sorted(found))

    def _start_worker(self, host: Host) -> None:
        offers = ("--cores", str(CORES), "--memory", f"{WORKER_MB}m", "--work-dir", "/srv/work")
        self._daemon(host, "worker.Worker", *offers, self.url)

    def _daemon(self, host: Host, kind: str, *options: str) -> None:
        variables = {
            "SPARK_HOME": str(SPARK_HOME),
            "JAVA_HOME": java_home(),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM,
            "SPARK_LOCAL_DIRS": "/srv/local",
        }
        command = [f"{SPARK_HOME}/bin/spark-class", f"org.apache.spark.deploy.{kind}", "--host", host.name, *options]
        self._lab.start(host, command, name=_process(host), variables=variables)

    def _expect(self, workers: int) -> None:
        """Returns when the master has so many workers."""

        def has() -> bool:
            page = self._page()
            return page is not None and page["aliveworkers"] == workers

        wait_until(has, f"{workers} workers of Spark", START_SECS)

    def _page(self) -> dict[str, Any] | None:
        try:
            with urllib.request.urlopen(f"http://{self.head.name}:{WEB}/json/", timeout=5) as answer:
                page: dict[str, Any] = json.loads(answer.read())
        except (OSError, ValueError):  # at first it answers with pages for people
            return None
        return page


def _process(host: Host) -> str:
    return f"spark-{host.name}"
