"""Copies of the tree, and tests that run in a new process of such a copy.

Always: each copy is broken by one thread at a time, and whole again afterwards. Compiled files are
believed by the hash of their source, since a broken file has the age and size of the whole one.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from scripts.breaks.coverage_map import ROOT

NOT_COPIED = {".git", ".venv", "build", "dist", "__pycache__"}
RED = re.compile(r"^(?:FAILED|ERROR) ([^\s\[]+(?:\[.*?\](?= - |$))?)", re.MULTILINE)


def copy_tree(tree: Path, source: Path = ROOT) -> None:
    shutil.copytree(source, tree, ignore=lambda _, names: [n for n in names if n in NOT_COPIED or n.endswith("_cache")])


def environment(tree: Path, home: Path) -> dict[str, str]:
    # The tree comes first on the path, before the editable installation.
    kept = {name: os.environ[name] for name in ("JAVA_HOME", "LANG") if name in os.environ}
    return kept | {
        "PYTHONPATH": f"{tree}:{tree / 'cli'}",
        "PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(home),
        "TMPDIR": str(home),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOUSE_BREAKS": "1",
    }


class TooSlow(Exception):
    """The tests take too long without the break, too, so that they say nothing about it."""


class FreshTests:
    """A copy of `source` for each thread."""

    def __init__(self, work: Path, source: Path) -> None:
        self._work, self._source = work, source
        self._lock = threading.Lock()
        self._trees: dict[int, Path] = {}
        self._green: dict[tuple[str, ...], bool] = {}

    def first_red(self, file: str, broken: str, tests: Sequence[str], secs: float) -> str | None:
        """Returns the first of the tests that a break turns red, or None. Files and functions stand
        for all tests in them. Raises TooSlow."""
        tree, unfit = self._tree(), list[str]()
        while True:
            with _broken(tree / file, broken):
                red = self._run(tree, tests, secs, unfit)
            if red is None:
                return None
            is_test = "::" in red
            if self._is_green(tree, (red,) if is_test else tuple(tests), secs):
                return red
            if not is_test:
                raise TooSlow
            unfit.append(red)

    def _is_green(self, tree: Path, tests: tuple[str, ...], secs: float) -> bool:
        if tests not in self._green:
            self._green[tests] = self._run(tree, tests, secs) is None
        return self._green[tests]

    def _tree(self) -> Path:
        with self._lock:
            number = threading.get_ident()
            if number not in self._trees:
                tree = self._work / f"tree-{len(self._trees)}"
                copy_tree(tree, self._source)
                command = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash"]
                subprocess.run([*command, str(tree)], check=True, capture_output=True)
                self._trees[number] = tree
            return self._trees[number]

    def _run(self, tree: Path, tests: Sequence[str], secs: float, unfit: Sequence[str] = ()) -> str | None:
        home = tree.with_name(f"{tree.name}-home")
        home.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider", *tests]
        command += [part for test in unfit for part in ("--deselect", test)]
        process = subprocess.Popen(
            command, cwd=tree, env=environment(tree, home), text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            said, _ = process.communicate(timeout=secs)
        except subprocess.TimeoutExpired:
            return "a test that hangs"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            shutil.rmtree(home, ignore_errors=True)
        if process.returncode in (0, 5):
            return None
        found = RED.search(said)
        return found[1] if found else "the import"


@contextlib.contextmanager
def _broken(path: Path, text: str) -> Iterator[None]:
    whole = path.read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(whole, encoding="utf-8")
