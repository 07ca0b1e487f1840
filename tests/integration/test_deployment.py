"""Does what docker/ and docs/deployment.md tell an operator to do."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_fixtures import until
from deployment_site import Site, block_with

from torrentdist.dev.embedded_zookeeper import EmbeddedZooKeeper

OURS = ("docker compose exec ", "docker compose run ")
STARTED = ("master-1", "supervisor-1", "spark-master", "spark-worker-1")


@pytest.fixture
def site(own_zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Site:
    made = Site(tmp_path, own_zookeeper.addresses[0])
    made.make_secrets()
    return made


@pytest.fixture
def started(site: Site) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    processes: dict[str, subprocess.Popen[bytes]] = {}
    yield processes
    for process in reversed(processes.values()):
        process.terminate()
    for process in processes.values():
        process.wait(30)


def test_the_services_run_and_the_page_works_on_them(site: Site, started: dict[str, subprocess.Popen[bytes]]) -> None:
    """If this failed, an operator who follows the page would see containers that do not start or
    are not healthy. It takes long, because each service and command is a program of its own."""
    assert not site.healthy("master-1")
    founded = site.execute(block_with("client ha init")[-1])
    started |= {name: site.start(name) for name in ("master-1", "spark-master")}
    until(lambda: site.healthy("master-1"), "a healthy master", 60)
    started |= {name: site.start(name) for name in ("supervisor-1", "spark-worker-1")}
    until(lambda: site.healthy("supervisor-1"), "a healthy supervisor", 60)
    (site.home / "my-job").mkdir()
    (site.home / "my-job" / "main.py").write_text("print('hello')\n")
    lines = [*block_with("exec master-1 torrentdist cluster"), *block_with("client upload /my-job")]
    ran = {line: site.execute(line) for line in lines if line.startswith(OURS)}

    assert (0, True) == (founded.returncode, "founded" in founded.stdout)
    assert 4 == len(ran)
    assert [] == [(line, done.stderr or done.stdout) for line, done in ran.items() if done.returncode]
    until(lambda: site.healthy("spark-master"), "a healthy Spark master", 60)
    until(lambda: workers(site) == 1, "a worker of Spark", 60)
    assert set(STARTED) == {name for name, process in started.items() if process.poll() is None}


def workers(site: Site) -> int:
    with urllib.request.urlopen(site.here("http://127.0.0.1:8080/json/"), timeout=5) as answer:
        return int(json.load(answer)["aliveworkers"])
