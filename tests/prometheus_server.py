"""A real Prometheus that scrapes a test's daemons, with our alert rules.

Always: it keeps its files in the given directory, and ends with stop(). Its program is the one of
Debian's package, which scripts/setup puts into .venv.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import yaml

ROOT = Path(__file__).parent.parent
PROGRAM = shutil.which("prometheus") or shutil.which("prometheus", path=str(Path(sys.executable).parent))
RULES = ROOT / "deploy" / "prometheus" / "rules.yml"
READY_SECS = 30.0
STOP_SECS = 10.0


class PrometheusServer:
    def __init__(self, directory: Path, targets: Mapping[str, Sequence[str]], token: Path, period: float = 2.0) -> None:
        """`targets`: the daemons' URLs by job. `token`: file with the bearer token. `period`:
        seconds between two scrapes, and between two looks at the rules."""
        directory.mkdir(parents=True, exist_ok=True)
        self._dir = directory
        self._jobs = [_job(name, urls, token) for name, urls in targets.items()]
        self._period = f"{round(period * 1000)}ms"
        self._process: subprocess.Popen[bytes] | None = None
        self._http = httpx.Client(trust_env=False, timeout=10.0)

    def start(self, rules: str = "groups: []") -> None:
        """Starts the server and returns once it answers."""
        assert PROGRAM is not None
        (self._dir / "rules.yml").write_text(rules)
        every = {"scrape_interval": self._period, "scrape_timeout": self._period, "evaluation_interval": self._period}
        config = {"global": every, "rule_files": ["rules.yml"], "scrape_configs": self._jobs}
        (self._dir / "prometheus.yml").write_text(yaml.safe_dump(config))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        self._http.base_url = httpx.URL(f"http://{address}")
        options = {
            "config.file": self._dir / "prometheus.yml",
            "storage.tsdb.path": self._dir / "data",
            "web.listen-address": address,
        }
        with (self._dir / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [PROGRAM, *(f"--{name}={value}" for name, value in options.items())], stdout=log, stderr=log
            )
        deadline = time.monotonic() + READY_SECS
        while not self._is_ready():
            assert time.monotonic() < deadline, (self._dir / "log").read_text()
            time.sleep(0.05)

    def stop(self) -> None:
        self._http.close()
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Returns the series of an instant query. Raises if Prometheus refuses it."""
        answer = self._http.get("/api/v1/query", params={"query": expression}).json()
        assert answer["status"] == "success", f"{expression}: {answer}"
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    def firing(self) -> dict[str, list[str]]:
        """Returns the summaries of the alerts that fire now, by alert."""
        found: dict[str, list[str]] = {}
        for alert in self._http.get("/api/v1/alerts").json()["data"]["alerts"]:
            if alert["state"] == "firing":
                found.setdefault(alert["labels"]["alertname"], []).append(alert["annotations"]["summary"])
        return found

    def _is_ready(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return self._http.get("/-/ready").status_code == 200
        return False


def _job(name: str, urls: Sequence[str], token: Path) -> dict[str, object]:
    return {
        "job_name": name,
        "authorization": {"credentials_file": str(token)},
        "static_configs": [{"targets": [urlsplit(url).netloc for url in urls]}],
    }


def rules_with(wait: str) -> str:
    """Returns our rules with another `for` in every alert that has one, so that a test need not
    wait for it."""
    return re.sub(r"(?m)^(\s+for:) \S+$", rf"\1 {wait}", RULES.read_text())
