"""`make demo` as a user runs it, and its final report, made by a standalone Spark with two
workers."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet  # type: ignore[import-untyped]
import pytest
from spark.conftest import WORKERS, Standalone, small_app

from scripts.demo import BUNDLE, REPORT

LONG = 600.0
SILENCE_SECS = 5.0
MASTERS, SUPERVISORS = 3, 2

DEMO = Path(__file__).parents[2] / "scripts" / "demo.py"


@dataclass(frozen=True)
class Shown:
    """What a run of the demo printed, the seconds before each line, its report, and what Spark's
    executors logged."""

    said: str
    silences: list[float]
    report: Path
    executor_logs: list[str]


@pytest.fixture(scope="module")
def shown(spark: Standalone, tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """Runs the demo, and notes when it prints each line."""
    work, before = tmp_path_factory.mktemp("demo"), spark.stderrs()
    options = ["--spark-master", spark.url, *small_app()]
    lines, times = [], [time.monotonic()]
    with subprocess.Popen(
        [sys.executable, DEMO, *options],
        cwd=work, env=spark.environ(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as running:  # fmt: skip
        alarm = threading.Timer(LONG, running.kill)
        alarm.start()
        assert running.stdout is not None
        for line in running.stdout:
            lines.append(line)
            times.append(time.monotonic())
        alarm.cancel()
    said = "".join(lines)

    assert 0 == running.returncode, said[-6000:]
    silences = [after - before for before, after in pairwise(times)]
    return Shown(said, silences, work / REPORT, list(spark.executor_logs(before).values()))


def test_the_demo_is_never_silent_for_long(shown: Shown) -> None:
    """A newcomer would think that the demo hangs."""
    assert max(shown.silences) <= SILENCE_SECS


def test_the_demo_shows_the_job_that_it_runs(shown: Shown) -> None:
    """The first command that a newcomer runs would fail, or leave something running."""
    said, report = shown.said, shown.report

    assert re.search(r"[\d,]+ words in \S+/objects/\w+/content/data\n", said), said
    assert "everything is stopped and cleaned up" in said
    assert {"report.html", "tables", "torrentdist-report.json"} == {path.name for path in report.iterdir()}


def test_a_report_of_a_real_cluster_by_a_real_cluster(shown: Shown) -> None:
    """The events of daemons and the pipeline that reads them would not fit together, or only on one
    machine."""
    report = shown.report

    def table(name: str, *columns: str) -> list[tuple[Any, ...]]:
        found = pyarrow.parquet.read_table(report / "tables" / name, columns=list(columns)).to_pylist()
        return [tuple(row[column] for column in columns) for row in found]

    sizes = {size for (size,) in table("spread", "size")}
    size = max(sizes)
    leaders = re.search(r"# (\S+), the leader", shown.said)
    assert leaders is not None
    assert [True] * WORKERS == ["Finished task" in log for log in shown.executor_logs]
    assert {BUNDLE} == {bundle for (bundle,) in table("spread", "bundle")}
    assert {("master", MASTERS, MASTERS, size), ("supervisor", SUPERVISORS, SUPERVISORS, size)} == set(
        table("spread", "role", "hosts", "done", "size")
    )
    assert all(0 <= secs < 60 for (secs,) in table("spread", "secs_100"))
    assert {("master", MASTERS * size), ("supervisor", SUPERVISORS * size)} == {
        (role, sum(parts)) for role, *parts in table("sources", "role", "masters", "peers", "local")
    }
    assert [leaders[1]] == [previous for previous, current in table("failovers", "previous", "current") if current]
    assert [(BUNDLE, size, 0)] == table("savings", "bundle", "bytes", "same_bytes")
    assert [(0, 1, 0)] == table("restarts", "worker", "starts", "last_exit_code")
    assert {"outside", "unnamed"} >= {rack for pair in table("racks", "from_rack", "to_rack") for rack in pair}
    assert {0} == {lines for (lines,) in table("skipped", "lines")}
