"""Prints every case of docs/cases.md with the tests that show it, and the cases without a test.

A test names its case in its docstring, in its name (test_a12_...) or by `@pytest.mark.case("A12")`,
which as a `pytestmark` holds for every test of the file.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
_CASE = re.compile(r"^- ([A-I]\d+) (.+)$", re.MULTILINE)
_MENTION = re.compile(r"\b([A-I]\d+)\b")
_IN_NAME = re.compile(r"_([a-i]\d+)(?=_|$)")


def cases_in(text: str) -> dict[str, str]:
    """Returns case ids with their sentences, A1 before A2 before A10."""
    found = dict(_CASE.findall(text))
    return dict(sorted(found.items(), key=lambda item: (item[0][0], int(item[0][1:]))))


def mentions_in(source: str) -> Iterator[tuple[str, str]]:
    """Yields (case, test) for every test function of a module that names a case."""
    module = ast.parse(source)
    of_all = [node.value for node in module.body if isinstance(node, ast.Assign) and _is_pytestmark(node)]
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            marks = " ".join(text for mark in [*node.decorator_list, *of_all] if "case" in (text := ast.unparse(mark)))
            named = [case.upper() for case in _IN_NAME.findall(node.name)]
            for case in {*_MENTION.findall(f"{ast.get_docstring(node)} {marks}"), *named}:
                yield case, node.name


def _is_pytestmark(node: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets)


def tests_by_case(tests: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in sorted(tests.rglob("test_*.py")):
        for case, test in mentions_in(path.read_text(encoding="utf-8")):
            found.setdefault(case, []).append(f"{path.relative_to(tests.parent)}::{test}")
    return found


def report(cases: Mapping[str, str], tests: Mapping[str, list[str]]) -> str:
    lines = []
    for case, sentence in cases.items():
        lines.append(f"{case:4} {sentence}")
        lines.extend(f"       {test}" for test in tests.get(case, ["- no test"]))
    covered = sum(case in tests for case in cases)
    return "\n".join([*lines, "", f"{covered} of {len(cases)} cases have tests"])


def main() -> int:
    cases = cases_in((ROOT / "docs" / "cases.md").read_text(encoding="utf-8"))
    tests = tests_by_case(ROOT / "tests")
    print(report(cases, tests))
    unknown = sorted(set(tests) - set(cases))
    if unknown:
        print(f"tests name cases that do not exist: {', '.join(unknown)}", file=sys.stderr)
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
