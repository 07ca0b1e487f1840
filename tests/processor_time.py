"""Measures the processor time of each test, its daemons and commands included.

Always: what fixtures of a module, a package or the session cost counts for their file, and not for
the test that comes first. A test that takes more than its budget says why in its docstring, with
the words "takes long"; the end of a run lists those that don't.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BUDGET_SECS = 3.0
REASON = "takes long"
RECORD = Path(__file__).parent.parent / "build" / "test-costs.json"
SHOWN_FILES = 15
_TICKS = os.sysconf("SC_CLK_TCK")


def processor_secs() -> float:
    """Processor time of this process, of those that it has waited for, and of all that live below
    it."""
    own = os.times()
    return time.process_time() + own.children_user + own.children_system + _below(os.getpid())


def _below(pid: int) -> float:
    total = 0.0
    for child in _children(pid):
        try:
            stat = Path(f"/proc/{child}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            continue  # it has just ended
        fields = stat.rpartition(")")[2].split()
        total += sum(int(ticks) for ticks in fields[11:15]) / _TICKS + _below(child)
    return total


def _children(pid: int) -> list[int]:
    found = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += Path(f"/proc/{pid}/task/{thread}/children").read_text(encoding="ascii").split()
    except OSError:
        pass
    return [int(child) for child in found]


@contextmanager
def counted_as_shared() -> Iterator[None]:
    """Counts what is done as the cost of the file, and not of the test: what it makes is for many
    tests."""
    began = processor_secs()
    try:
        yield
    finally:
        for times in _running:
            times.add_shared(processor_secs() - began)


class ProcessorTimes:
    """Costs of the tests of this process."""

    def __init__(self) -> None:
        self._shared = 0.0
        """What shared fixtures have cost since the test began."""
        self._fixtures = 0

    def add_shared(self, secs: float) -> None:
        if not self._fixtures:
            self._shared += secs

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        if fixturedef.scope == "function" or self._fixtures:
            return (yield)
        began, self._fixtures = processor_secs(), 1
        try:
            return (yield)
        finally:
            self._fixtures = 0
            self._shared += processor_secs() - began

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._shared, began = 0.0, processor_secs()
        item.stash[_BEGAN] = began
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        report = yield
        if call.when == "teardown":
            whole = processor_secs() - item.stash[_BEGAN]
            doc = (getattr(getattr(item, "function", None), "__doc__", None) or "").lower()
            cost = {"secs": whole - self._shared, "shared": self._shared, "reason": REASON in " ".join(doc.split())}
            report.user_properties.append(("processor", cost))
        return report


_running: list[ProcessorTimes] = []
_BEGAN = pytest.StashKey[float]()


class Costs:
    """What all tests of a run have cost. It lives where the results come together."""

    def __init__(self) -> None:
        self.tests: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown" and (cost := dict(report.user_properties).get("processor")):
            self.tests[report.nodeid] = cost  # type: ignore[assignment]

    def over_budget(self) -> list[str]:
        """Returns the tests that take more than their budget and don't say why, dearest first."""
        over = [(cost["secs"], test) for test, cost in self.tests.items() if cost["secs"] > BUDGET_SECS]
        return [f"{secs:6.1f} s  {test}" for secs, test in sorted(over, reverse=True) if not self.tests[test]["reason"]]

    def files(self) -> dict[str, float]:
        found: defaultdict[str, float] = defaultdict(float)
        for test, cost in self.tests.items():
            found[test.partition("::")[0]] += cost["secs"] + cost["shared"]
        return dict(sorted(found.items(), key=lambda file: -file[1]))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self.tests:
            return
        files = self.files()
        terminalreporter.section(f"processor time: {sum(files.values()):.0f} s")
        if len(files) > 1:
            for file in list(files)[:SHOWN_FILES]:
                terminalreporter.line(f"{files[file]:6.1f} s  {file}")
        if over := self.over_budget():
            terminalreporter.section(f"over {BUDGET_SECS:g} s, and the docstring does not say why it takes long")
            for line in over:
                terminalreporter.line(line)

    def pytest_sessionfinish(self) -> None:
        if self.tests:
            RECORD.parent.mkdir(exist_ok=True)
            known = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.is_file() else {}
            RECORD.write_text(json.dumps(known | self.tests, indent=0, sort_keys=True), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    _running[:] = [ProcessorTimes()]
    config.pluginmanager.register(_running[0])
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Costs())
