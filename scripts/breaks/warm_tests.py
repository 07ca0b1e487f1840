"""A pytest plug-in that collects the tests once, and runs a few of them in a fork for each break.

Always: the fork exchanges the code of the broken function, so that nothing is imported anew. A test
counts as turned red only after it was seen green without a break, in a fork as well.
Never: handle a break of what runs when a module is imported.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import resource
import shutil
import signal
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

PLAN = "HOUSE_BREAKS_PLAN"
"""Environment variable: the file with the breaks; what becomes of each is appended to the file
beside it, with the ending `.results`."""
MAX_MEMORY = 6 * 2**30
PR_SET_PDEATHSIG = 1
"""Makes a fork end with the process that made it."""
ONE_SOURCE = tuple[str, str]


@dataclass(frozen=True)
class Task:
    """A break, or None for a test that is run without one."""

    number: int
    file: str
    source: str
    tests: tuple[str, ...]
    secs: float
    """Most time on the clock, generous because other processes may keep the machine busy."""
    cpu_secs: float
    """Most processor time."""


@dataclass
class RunningBreak:
    task: Task
    began: float
    work: Path


class CannotSwap(Exception):
    """The change is not within one function."""


def changed_codes(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Returns the functions' codes that differ, outermost first. Those inside a function come with
    it, and also by themselves as far as it is plain which is which."""
    befores, afters = _codes(old), _codes(new)
    if [_name(code) for code in befores] != [_name(code) for code in afters]:
        befores = [code for code in befores if _is_single(code, befores) and _is_single(code, afters)]
        afters = [next(code for code in afters if _name(code) == _name(before)) for before in befores]
    for before, after in zip(befores, afters, strict=True):
        if before != after:
            yield before, after
            yield from changed_codes(before, after)


def _name(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _is_single(code: CodeType, others: Sequence[CodeType]) -> bool:
    return [_name(other) for other in others].count(_name(code)) == 1


def _codes(code: CodeType) -> list[CodeType]:
    return [const for const in code.co_consts if isinstance(const, CodeType)]


def functions_by_file(root: Path) -> dict[str, list[FunctionType]]:
    """Returns the functions of the product that live in this process."""
    found: defaultdict[str, list[FunctionType]] = defaultdict(list)
    gc.unfreeze()  # commands freeze what they import
    for thing in gc.get_objects():
        if type(thing) is FunctionType and thing.__code__.co_filename.startswith(str(root)):
            found[thing.__code__.co_filename].append(thing)
    return found


def swap(functions: Sequence[FunctionType], old: CodeType, new: CodeType) -> None:
    """Gives the broken code to the functions that have the old one."""
    swapped = 0
    for before, after in changed_codes(old, new):
        for function in functions:
            if _name(function.__code__) == _name(before):
                try:
                    function.__code__ = after
                except ValueError as exc:
                    raise CannotSwap from exc
                swapped += 1
    if not swapped:
        raise CannotSwap


class WarmTests:
    def __init__(self, plan: Path, config: pytest.Config) -> None:
        self._plan, self._config = plan, config
        self._root = config.rootpath
        self._results = plan.with_suffix(".results")
        self._items: dict[str, pytest.Item] = {}
        self._by_name: defaultdict[str, list[pytest.Item]] = defaultdict(list)
        self._functions: dict[str, list[FunctionType]] = {}
        self._waiting: list[Task] = []
        self._running: dict[int, RunningBreak] = {}
        self._green: set[str] = set()
        self._unfit: set[str] = set()
        self._suspects: dict[str, list[tuple[Task, float]]] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = {item.nodeid: item for item in session.items}
        for test, item in self._items.items():
            for name in dict.fromkeys((test, test.partition("[")[0], test.partition("::")[0])):
                self._by_name[name].append(item)
        self._functions = functions_by_file(self._root)
        plan = json.loads(self._plan.read_text(encoding="utf-8"))
        self._waiting = [Task(**task) for task in plan["tasks"]]
        self._say({"ready": len(self._items)})
        starter = os.getppid()
        while (self._waiting or self._running) and os.getppid() == starter and time.time() < plan["ends_at"]:
            while self._waiting and len(self._running) < plan["processes"]:
                self._begin(self._waiting.pop(0))
            self._reap()
        for pid in self._running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        os._exit(0)  # what the tests have imported may wait for threads

    def _say(self, result: dict[str, Any]) -> None:
        with self._results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")

    # in the parent

    def _begin(self, task: Task) -> None:
        work = Path(tempfile.mkdtemp(prefix="run-", dir=self._plan.parent))
        pid = os.fork()
        if pid == 0:
            self._run(task, work)
        self._running[pid] = RunningBreak(task, time.monotonic(), work)

    def _reap(self) -> None:
        pid, _ = os.waitpid(-1, os.WNOHANG)
        for late in [p for p, run in self._running.items() if time.monotonic() - run.began > run.task.secs]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(late, signal.SIGKILL)
        if not pid:
            time.sleep(0.005)
        elif run := self._running.pop(pid, None):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)  # what the tests have left
            self._judge(run)
            shutil.rmtree(run.work, ignore_errors=True)

    def _judge(self, run: RunningBreak) -> None:
        said = run.work / "said"
        red, ends = "", ""
        if said.is_file():
            ends = said.read_text(encoding="utf-8")
            kind, _, red = ends.partition(" ")
        else:
            # It hung or fell: what ran last is red.
            kind = "red"
            begun = run.work / "begun"
            red = begun.read_text(encoding="utf-8") if begun.is_file() else "import"
        secs = time.monotonic() - run.began
        if run.task.number < 0:
            self._known_test(run.task.tests[0], kind == "green")
        elif kind == "red" and red in self._items and red not in self._green:
            first = red not in self._suspects
            self._suspects.setdefault(red, []).append((run.task, secs))
            if first:
                self._waiting.insert(0, replace(run.task, number=-1, file="", tests=(red,)))
        else:
            self._say({"number": run.task.number, "verdict": kind, "test": red, "secs": secs})

    def _known_test(self, test: str, is_green: bool) -> None:
        """A test was run without a break, so what it said of breaks is either true or nothing."""
        suspects = self._suspects.pop(test, [])
        if is_green:
            self._green.add(test)
            for task, secs in suspects:
                self._say({"number": task.number, "verdict": "red", "test": test, "secs": secs})
        else:
            self._unfit.add(test)
            self._say({"unfit": test})
            self._waiting[:0] = [task for task, _ in suspects]

    # in the fork

    def _items_of(self, tests: Sequence[str]) -> list[pytest.Item]:
        """Returns the tests; all of a function or file whose name is given."""
        found = dict.fromkeys(item for test in tests for item in self._by_name.get(test, ()))
        return [item for item in found if item.nodeid not in self._unfit]

    def _run(self, task: Task, work: Path) -> None:
        os.setsid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (int(task.cpu_secs), int(task.cpu_secs) + 5))
        os.environ["PYTEST_DEBUG_TEMPROOT"] = tempfile.tempdir = str(work)
        verdict = "odd"
        try:
            if task.file:
                path = self._root / task.file
                old = compile(path.read_text(encoding="utf-8"), str(path), "exec", dont_inherit=True)
                new = compile(task.source, str(path), "exec", dont_inherit=True)
                swap(self._functions.get(str(path), []), old, new)
            red = self._first_red(self._items_of(task.tests), work)
            verdict = f"red {red}" if red else "green"
        except CannotSwap:
            verdict = "unswappable"
        except SyntaxError:
            verdict = "red syntax"
        except BaseException as exc:
            verdict = f"odd {exc!r}"
        finally:
            (work / "said").write_text(verdict, encoding="utf-8")
            os._exit(0)

    def _first_red(self, items: Sequence[pytest.Item], work: Path) -> str:
        reds: list[str] = []

        class CoverageWatch:
            def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
                if report.failed:
                    reds.append(report.nodeid)

        self._config.pluginmanager.register(CoverageWatch())
        for item, following in zip(items, [*items[1:], None], strict=True):
            (work / "begun").write_text(item.nodeid, encoding="utf-8")
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if reds:
                return item.nodeid
        return ""


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(WarmTests(Path(os.environ[PLAN]), config))
