"""Which tests cover a line of the product, and what each of them costs.

Always: the map stays of use while the code changes. Lines are kept by their function and the text
of the function: of one that has changed since, all tests that enter it are candidates. Of a test
file that has changed since, a test stands for all its parameters, since their numbers shift.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAP = ROOT / "build" / "coverage-map.json"
PARTS = ROOT / "build" / "coverage"
UNKNOWN_SECS = 1.0
STORY_FILE = "tests/simulation/story_maker.py"
"""Stories of the simulation stand in the map as tests of this file."""


def product_files() -> list[str]:
    paths = [path for folder in ("torrentdist", "cli") for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path.relative_to(ROOT).as_posix() for path in paths if not path.name.endswith("_pb2.py")]


@dataclass(frozen=True)
class FunctionLines:
    name: str
    first: int
    last: int
    text: int
    """Checksum of its source."""


@cache
def functions_of(source: str) -> list[FunctionLines]:
    """Returns the functions of a module, inner ones after the functions that they stand in."""
    lines = source.splitlines()
    found = []

    def walk(node: ast.AST, names: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                last = child.end_lineno or child.lineno
                text = zlib.crc32("\n".join(lines[child.lineno - 1 : last]).encode())
                found.append(FunctionLines(".".join((*names, child.name)), child.lineno, last, text))
                walk(child, (*names, child.name, "<locals>"))
            elif isinstance(child, ast.ClassDef):
                walk(child, (*names, child.name))
            else:
                walk(child, names)

    walk(ast.parse(source), ())
    return found


@dataclass
class CoverageMap:
    costs: dict[str, float] = field(default_factory=dict)
    files: dict[str, dict[str, tuple[int, dict[str, list[str]]]]] = field(default_factory=dict)
    """By file and function: the checksum, and the tests of each line, counted from its first."""
    checksums: dict[str, int] = field(default_factory=dict)
    """Checksums of the test files when they were recorded."""

    def covering(self, file: str, source: str, line: int) -> list[str]:
        """Returns the tests that run a line of a function, or all of the file if it is outside of
        functions, cheapest first."""
        known = self.files.get(file, {})
        inside = [function for function in functions_of(source) if function.first <= line <= function.last]
        if not inside:
            every = [tests for _, lines in known.values() for tests in lines.values()]
            return self._cheapest_first(test for tests in every for test in tests)
        function = inside[-1]
        checksum, lines = known.get(function.name, (0, {}))
        if checksum == function.text:
            return self._cheapest_first(_nearest(lines, line - function.first))
        return self._cheapest_first(test for tests in lines.values() for test in tests)

    def _cheapest_first(self, tests: Iterable[str]) -> list[str]:
        return sorted(set(tests), key=lambda test: (self.costs.get(test, UNKNOWN_SECS), test))

    def is_older_than(self, file: str) -> bool:
        """Whether a test file may hold tests that the map does not know."""
        return checksum_of(file) != self.checksums.get(file)

    def secs(self, test: str) -> float:
        return self.costs.get(test, UNKNOWN_SECS)


def _nearest(lines: dict[str, list[str]], offset: int) -> list[str]:
    """Returns the tests of a line, or of the last one before it, since a statement of several lines
    counts at its first."""
    before = [int(line) for line in lines if int(line) <= offset]
    return lines[str(max(before))] if before else []


def load() -> CoverageMap | None:
    """Reads the map, without tests whose file has gone since it was recorded."""
    if not MAP.is_file():
        return None
    data = json.loads(MAP.read_text(encoding="utf-8"))
    names = [name_now(test, data.get("test_files", {})) for test in data["tests"]]
    files = {
        file: {
            name: (checksum, {line: sorted({names[n] for n in tests} - {""}) for line, tests in lines.items()})
            for name, (checksum, lines) in functions.items()
        }
        for file, functions in data["files"].items()
    }
    costs: dict[str, float] = defaultdict(float)
    for test, name in zip(data["tests"], names, strict=True):
        costs[name] += data["costs"][test] if name else 0.0
    return CoverageMap(dict(costs), files, data.get("test_files", {}))


def name_now(test: str, checksums: dict[str, int]) -> str:
    """Returns the name by which a test can be run; empty if its file has gone."""
    file = test.partition("::")[0]
    now = checksum_of(file)
    if now is None:
        return ""
    return test if now == checksums.get(file) else test.partition("[")[0]


@cache
def checksum_of(file: str) -> int | None:
    path = ROOT / file
    return zlib.crc32(path.read_bytes()) if path.is_file() else None


def record(arguments: Sequence[str]) -> int:
    """Runs tests, and adds what they cover to the map."""
    env = {"HOUSE_COVERAGE": str(PARTS), "HOUSE_BREAKS": "1", "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'cli'}"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "scripts.breaks.map_recorder", *arguments]
    with recorded_parts():
        return subprocess.run(command, cwd=ROOT, env=os.environ | env, check=False).returncode


@contextmanager
def recorded_parts() -> Iterator[None]:
    """Adds to the map what is written to PARTS meanwhile."""
    shutil.rmtree(PARTS, ignore_errors=True)
    PARTS.mkdir(parents=True)
    test_files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
    checksums = {file: checksum_of(file) for file in test_files}
    sources = {file: (ROOT / file).read_text(encoding="utf-8") for file in product_files()}
    yield
    _merge(load() or CoverageMap(), checksums, sources)
    shutil.rmtree(PARTS, ignore_errors=True)
    print(f"{MAP.relative_to(ROOT)}: {MAP.stat().st_size / 1e6:.1f} MB")


def _merge(known: CoverageMap, checksums: dict[str, int | None], sources: dict[str, str]) -> None:
    """Writes the map. `checksums` of the test files and `sources` of the product are those that
    were run, so that both may be edited meanwhile."""
    parts = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(PARTS.glob("*.json"))]
    lines: defaultdict[str, defaultdict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    fresh = {context for part in parts for context in part["lines"]}
    ran = {test.partition("::")[0] for part in parts for test in (*part["costs"], *part["lines"])}
    recorded = {file: checksum if file in ran else known.checksums.get(file) for file, checksum in checksums.items()}
    for part in parts:
        known.costs |= part["costs"]
        for context, files in part["lines"].items():
            for file, numbers in files.items():
                for number in numbers:
                    lines[file][number].add(context)
    for test in fresh - known.costs.keys():
        known.costs[test] = sum(secs for other, secs in known.costs.items() if other.startswith(f"{test}::"))
    found: dict[str, dict[str, tuple[int, dict[str, list[str]]]]] = {}
    for file in sorted({*lines, *known.files}):
        if file in sources:
            found[file] = _functions_with_tests(sources[file], lines[file], known.files.get(file, {}), fresh)
    numbers_of = {test: number for number, test in enumerate(sorted(known.costs))}
    data = {
        "tests": sorted(known.costs),
        "test_files": recorded,
        "costs": {test: round(secs, 3) for test, secs in known.costs.items()},
        "files": {
            file: {
                name: (checksum, {line: sorted(numbers_of[t] for t in tests) for line, tests in by_line.items()})
                for name, (checksum, by_line) in functions.items()
            }
            for file, functions in found.items()
        },
    }
    MAP.write_text(json.dumps(data, separators=(",", ":")), encoding="utf-8")


def _functions_with_tests(
    source: str,
    lines: dict[int, set[str]],
    known: dict[str, tuple[int, dict[str, list[str]]]],
    fresh: set[str],
) -> dict[str, tuple[int, dict[str, list[str]]]]:
    """Returns the tests of each line of each function: the new ones, and of the tests that were
    not run the ones that are known."""
    found = {}
    for function in functions_of(source):
        checksum, before = known.get(function.name, (0, {}))
        by_line: dict[str, set[str]] = defaultdict(set)
        for number in range(function.first + 1, function.last + 1):
            if tests := lines.get(number):
                by_line[str(number - function.first)] |= tests
        for line, tests_before in before.items():
            if checksum == function.text:
                by_line[line] |= set(tests_before) - fresh
        if by_line:
            found[function.name] = (function.text, {line: sorted(tests) for line, tests in by_line.items()})
    return found
