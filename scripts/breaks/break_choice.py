"""Which breaks are made: a sample of all, drawn by a seed, without those that change nothing."""

from __future__ import annotations

import ast
import random
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from scripts.breaks.break_sites import Break, breaks_of
from scripts.breaks.coverage_map import ROOT, product_files

LIST = Path(__file__).with_name("breaks.toml")
DECIDING_SHARE = 0.8
"""Share of a sample of all modules that falls on those that decide."""


class Kind(StrEnum):
    ALL = "all"
    DECIDING = "deciding"
    SHELLS = "shells"


@dataclass(frozen=True)
class Equivalent:
    """A break that changes nothing for any input."""

    file: str
    place: str
    line: str
    """Text of the line. An edit of another line leaves the entry valid; an edit of this one makes
    a test ask whether the reason still holds."""
    old: str
    new: str
    why: str


@dataclass(frozen=True)
class Elsewhere:
    """Modules that run in processes which the coverage map does not see, and tests that start
    them."""

    modules: str
    tests: list[str]
    why: str


@dataclass(frozen=True)
class Terms:
    """What is known of the modules: which decide, which are left out, and which breaks change
    nothing."""

    decides: tuple[str, ...]
    left_out: tuple[str, ...]
    equivalents: tuple[Equivalent, ...]
    elsewhere: tuple[Elsewhere, ...] = ()

    def kind_of(self, file: str) -> Kind:
        return Kind.DECIDING if any(fnmatch(file, pattern) for pattern in self.decides) else Kind.SHELLS

    def tests_elsewhere(self, file: str) -> list[str]:
        return [test for some in self.elsewhere if fnmatch(file, some.modules) for test in some.tests]

    def is_equivalent(self, broken: Break) -> bool:
        same = (broken.file, broken.place, broken.text, broken.old, broken.new)
        return any(same == (e.file, e.place, e.line, e.old, e.new) for e in self.equivalents)


def read_terms(path: Path = LIST) -> Terms:
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    equivalents = [Equivalent(**entry) for entry in data["equivalent"]]
    elsewhere = [Elsewhere(**entry) for entry in data["elsewhere"]]
    return Terms(tuple(data["decides"]), tuple(data["left_out"]), tuple(equivalents), tuple(elsewhere))


@cache
def source_of(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


def all_breaks(files: Iterable[str]) -> list[Break]:
    return [broken for file in files for broken in breaks_of(file, source_of(file))]


def _is_at(broken: Break, words: Sequence[str]) -> bool:
    split = [word.partition(":") for word in words]
    return not words or any(part in broken.file and line in ("", str(broken.line)) for part, _, line in split)


def sample(terms: Terms, kind: Kind, words: Sequence[str], count: int, seed: int, modules: int = 0) -> list[Break]:
    """Draws breaks, each with the same chance in its kind of module. `modules`: how many modules
    of each kind are drawn first; 0: all. A word is a part of a path, and may name a line:
    `gate.py:40`."""
    chance = random.Random(seed)
    files = [file for file in product_files() if not any(fnmatch(file, pattern) for pattern in terms.left_out)]
    files = [file for file in files if not words or any(word.partition(":")[0] in file for word in words)]
    deciding = [file for file in files if terms.kind_of(file) is Kind.DECIDING]
    shells = [file for file in files if terms.kind_of(file) is Kind.SHELLS]
    chosen: list[Break] = []
    shares = {Kind.DECIDING: (deciding, 1.0), Kind.SHELLS: (shells, 1.0)}
    if kind is Kind.ALL and deciding and shells:
        shares = {Kind.DECIDING: (deciding, DECIDING_SHARE), Kind.SHELLS: (shells, 1 - DECIDING_SHARE)}
    for of_kind, (some, share) in shares.items():
        if kind in (Kind.ALL, of_kind):
            some = sorted(chance.sample(some, min(modules, len(some)))) if modules else some
            breaks = [
                broken for broken in all_breaks(some) if not terms.is_equivalent(broken) and _is_at(broken, words)
            ]
            chosen += chance.sample(breaks, min(len(breaks), round(count * share)))
    return sorted(chosen, key=lambda broken: (broken.file, broken.begin))


@cache
def _imports_of(test: str) -> frozenset[str]:
    """Returns the modules that a test file names in its imports."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / test).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(found)


def importing_tests(file: str) -> list[str]:
    """Returns the fast test files that import a module, or are named after it: the choice where no
    map says better."""
    stem = Path(file).stem
    module = file.removeprefix("cli/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    paths = [path for ring in ("unit", "property") for path in sorted((ROOT / "tests" / ring).glob("test_*.py"))]
    tests = [path.relative_to(ROOT).as_posix() for path in paths]
    return [test for test in tests if module in _imports_of(test) or Path(test).stem == f"test_{stem}"]
