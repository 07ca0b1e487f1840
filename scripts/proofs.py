"""Runs tests whose result depends on few files, if one of these has changed since they passed.

tests/proofs.toml names such tests; each entry is a proof. tests/proved.json says with which files
each proof succeeded last. It is part of the repository, so that nobody repeats what somebody else
has proved.
Always: a proof is made anew after 30 days, because the machine is one of its inputs. What is not
made anew is named, with the day on which it was proved.
Never: take a run with a skipped test for a proof.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from hashlib import sha256
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parent.parent
LIST, RECORD = "tests/proofs.toml", "tests/proved.json"
TOPS = ("", "cli", "tests")
"""Directories in which Python looks for our modules."""
VALID = timedelta(days=30)


@dataclass(frozen=True)
class ProvedTests:
    name: str
    tests: tuple[str, ...]
    """Whole files."""
    inputs: tuple[str, ...]
    """Patterns of files that decide the result, besides the tests and all that they import."""


@dataclass(frozen=True)
class Proved:
    inputs: str
    """Hash of all inputs."""
    day: str


def read_proofs(root: Path) -> list[ProvedTests]:
    entries = tomllib.loads((root / LIST).read_text(encoding="utf-8"))["proof"]
    return [ProvedTests(entry["name"], tuple(entry["tests"]), tuple(entry["inputs"])) for entry in entries]


def read_record(root: Path) -> dict[str, Proved]:
    path = root / RECORD
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return {name: Proved(**entry) for name, entry in known.items()}


def write_record(root: Path, record: Mapping[str, Proved]) -> None:
    entries = {name: {"inputs": proved.inputs, "day": proved.day} for name, proved in sorted(record.items())}
    (root / RECORD).write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")


def imported_files(root: Path, tests: Iterable[str]) -> set[Path]:
    """Returns our modules that these files import, directly and indirectly."""
    found: set[Path] = set()
    waiting = [root / test for test in tests]
    while waiting:
        for name in _imported_names(waiting.pop()):
            for path in _places(root, name):
                if path not in found:
                    found.add(path)
                    waiting.append(path)
    return found


def _imported_names(path: Path) -> Iterator[str]:
    """Returns what a file imports anywhere, except for the type checker."""
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif not (isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")):
            waiting += ast.iter_child_nodes(node)


def _places(root: Path, name: str) -> Iterator[Path]:
    """Returns the files of a module or of what is in it, and those of the packages around it."""
    parts = name.split(".")
    for top in TOPS:
        for count in range(1, len(parts) + 1):
            path = root.joinpath(top, *parts[:count])
            yield from filter(Path.is_file, (path.with_suffix(".py"), path / "__init__.py"))


def hash_of(root: Path, proof: ProvedTests) -> str:
    """Returns the hash of all files that decide the result. Raises ValueError if a pattern matches
    none."""
    files = {root / test for test in proof.tests} | imported_files(root, proof.tests)
    for pattern in proof.inputs:
        some = {path for path in root.glob(pattern) if path.is_file()}
        if not some:
            raise ValueError(f"{LIST}: no file matches {pattern!r}")
        files |= some
    whole = sha256()
    for path in sorted(files):
        whole.update(path.relative_to(root).as_posix().encode() + b"\0" + sha256(path.read_bytes()).digest())
    return whole.hexdigest()


def is_proved(inputs: str, proved: Proved | None, today: date) -> bool:
    """Whether a proof need not be made anew. One of the future is none: a clock was wrong."""
    if proved is None or proved.inputs != inputs:
        return False
    return timedelta(0) <= today - date.fromisoformat(proved.day) < VALID


def succeeds(root: Path, tests: Sequence[str]) -> tuple[int, bool]:
    """Runs the tests. Returns pytest's code, and whether all have passed and none was skipped."""
    with tempfile.TemporaryDirectory(prefix="torrentdist-proofs-") as work:
        counted = Path(work) / "counted.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={counted}", *tests]
        code = subprocess.run(command, cwd=root, check=False).returncode
        if code or not counted.is_file():
            return code, False
        suites = list(ElementTree.parse(counted).iter("testsuite"))
    return code, all(int(suite.get("skipped", "0")) == 0 < int(suite.get("tests", "0")) for suite in suites)


Runner = Callable[[Path, Sequence[str]], tuple[int, bool]]


def make_proofs(root: Path, today: date, run: Runner = succeeds, *, word: str = "", all_anew: bool) -> int:
    """Makes the proofs that do not hold, and records those that succeed. Returns the exit code.
    `word`: only those with this word in their names."""
    failed = 0
    for proof in (proof for proof in read_proofs(root) if word in proof.name):
        record, inputs = read_record(root), hash_of(root, proof)
        if not all_anew and is_proved(inputs, record.get(proof.name), today):
            print(f"proved on {record[proof.name].day}, and nothing has changed since: {proof.name}", flush=True)
            continue
        code, is_whole = run(root, proof.tests)
        failed = failed or code
        if is_whole:
            write_record(root, record | {proof.name: Proved(inputs, today.isoformat())})
            print(f"proved anew: {proof.name}; {RECORD} says so, and belongs into the next commit", flush=True)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="proofs", description="Run the tests of proofs that do not hold any more.")
    parser.add_argument("word", nargs="?", default="", help="only proofs with this word in their names")
    parser.add_argument("--all", action="store_true", help="make every proof anew")
    parser.add_argument("--files", action="store_true", help="print the files of all proofs, and run nothing")
    options = parser.parse_args()
    if options.files:
        print(*(test for proof in read_proofs(ROOT) for test in proof.tests))
        return 0
    return make_proofs(ROOT, date.today(), word=options.word, all_anew=options.all)


if __name__ == "__main__":
    sys.exit(main())
