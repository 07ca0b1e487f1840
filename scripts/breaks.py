"""Breaks the code on purpose, one line at a time, and reports the breaks that no test notices.

Always: a break is made in a copy of the tree, never in the tree itself. Always: a break whose old
text is not found exactly once is an error, so that the list stays current. Never: count a break as
noticed because its tests cannot run. They first run without a break.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
LIST = ROOT / "scripts" / "breaks.toml"
TEST_SECS = 600.0
COPIED = ("torrentdist", "cli", "tests", "bench", "scripts", "docs", "examples", "pyproject.toml")


@dataclass(frozen=True)
class Break:
    """One line of the product, changed so that it is wrong."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    equivalent: str = ""
    """Why no test can notice the break; empty if a test must notice it."""

    def __str__(self) -> str:
        return f"{self.file}: {self.old} -> {self.new}"

    def problem(self) -> str | None:
        """Returns why the break cannot be made, or None."""
        path = ROOT / self.file
        times = path.read_text(encoding="utf-8").count(self.old) if path.is_file() else 0
        if missing := [test for test in self.tests if not (ROOT / test).is_file()]:
            return f"its tests are not there: {', '.join(missing)}"
        return None if times == 1 else f"the old text is found {times} times"


def read_list(path: Path) -> list[Break]:
    """Reads the list of breaks: a table for each file with its tests, and in it pairs of old and
    new text."""
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    return [
        Break(group["file"], old, new, tuple(group["tests"]), reason[0] if reason else "")
        for group in data["group"]
        for old, new, *reason in group["breaks"]
    ]


def passes(tree: Path, tests: Iterable[str]) -> bool:
    """Whether these tests pass in the tree."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not alone", *tests]
    # The tree comes first on the path, before the editable installation.
    path = f"{tree}:{tree / 'cli'}"
    env = {"PYTHONPATH": path, "PATH": "/usr/bin:/bin", "HOME": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=tree, env=env, capture_output=True, timeout=TEST_SECS, check=False)
    except subprocess.TimeoutExpired:
        return False  # it hangs, so the break is noticed
    return done.returncode == 0


def survivors(breaks: Sequence[Break], tree: Path) -> list[Break]:
    """Makes each break in turn, and returns those that no test notices."""
    found = []
    for number, broken in enumerate(breaks, 1):
        path = tree / broken.file
        whole = path.read_text(encoding="utf-8")
        path.write_text(whole.replace(broken.old, broken.new), encoding="utf-8")
        try:
            survived = passes(tree, broken.tests)
        finally:
            path.write_text(whole, encoding="utf-8")
        print(f"{number}/{len(breaks)} {'SURVIVED' if survived else 'noticed'} {broken}", flush=True)
        if survived:
            found.append(broken)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Break the code on purpose, and see that a test turns red.")
    parser.add_argument("words", nargs="*", help="only breaks of files whose name contains one of these")
    parser.add_argument("--check", action="store_true", help="only check that every break of the list can be made")
    options = parser.parse_args()
    chosen = [b for b in read_list(LIST) if not options.words or any(word in b.file for word in options.words)]
    stale = [f"{broken}: {problem}" for broken in chosen if (problem := broken.problem())]
    if stale or options.check:
        print("\n".join(stale) or f"{len(chosen)} breaks can be made")
        return 1 if stale else 0
    with tempfile.TemporaryDirectory(prefix="torrentdist-breaks-") as work:
        tree = Path(work)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, tree / name)
        tests = sorted({test for broken in chosen for test in broken.tests})
        if not passes(tree, tests):
            print("the tests fail without any break", file=sys.stderr)
            return 1
        unnoticed = [broken for broken in survivors(chosen, tree) if not broken.equivalent]
    print(f"{len(chosen)} breaks, {len(unnoticed)} not noticed")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
