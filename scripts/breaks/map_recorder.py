"""A pytest plug-in that records which test covers which line of the product, and what it costs.

Always: the context is a test for what runs in the test's own process. A daemon or command that a
test starts gets its file as the context, by the environment, since tests of a file share daemons.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = "HOUSE_COVERAGE"
"""Environment variable: where the records go."""
CONTEXT = "HOUSE_COVERAGE_CONTEXT"
"""Environment variable: the context of a process that a test starts."""


def started() -> Any:
    """Returns a coverage measurement that has begun."""
    product = [str(ROOT / "torrentdist"), str(ROOT / "cli")]
    found = importlib.import_module("coverage").Coverage(data_file=None, config_file=False, source=product)
    found.start()
    return found


def lines_of(measured: Any) -> dict[str, dict[str, list[int]]]:
    """Returns the lines of each file by context."""
    data = measured.get_data()
    found: dict[str, dict[str, list[int]]] = {}
    for file in data.measured_files():
        name = Path(file).relative_to(ROOT).as_posix()
        for line, contexts in data.contexts_by_lineno(file).items():
            for context in filter(None, contexts):
                found.setdefault(context, {}).setdefault(name, []).append(line)
    return found


def record_process() -> None:
    """Measures a daemon or command from now to its end, for the file of the test that started it.
    One that is killed leaves nothing."""
    measured = started()
    measured.switch_context(os.environ[CONTEXT])
    part = Path(os.environ[FOLDER]) / f"{os.getpid()}-{time.time_ns()}.json"

    def keep() -> None:
        measured.stop()
        part.write_text(json.dumps({"costs": {}, "lines": lines_of(measured)}), encoding="utf-8")

    atexit.register(keep)


class Recorder:
    def __init__(self, folder: Path) -> None:
        self._folder, self._costs = folder, dict[str, float]()
        self._measured = started()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        os.environ[CONTEXT] = item.nodeid.partition("::")[0]
        self._measured.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self._measured.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if processor := dict(report.user_properties).get("processor"):
            self._costs[report.nodeid] = processor["secs"]  # type: ignore[index]

    def pytest_sessionfinish(self) -> None:
        self._measured.stop()
        whole = {"costs": self._costs, "lines": lines_of(self._measured)}
        (self._folder / f"{os.getpid()}.json").write_text(json.dumps(whole), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        config.pluginmanager.register(Recorder(Path(os.environ[FOLDER])))
