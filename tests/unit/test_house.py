"""The house's own rules: who may import whom, how long things are, what an installation contains."""

from __future__ import annotations

import ast
import string
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from torrentdist.model.errors import ERRORS

ROOT = Path(__file__).parent.parent.parent
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50

SWARM_SIDE = {"model", "bundle", "swarm", "cluster", "distributor"}
MAY_IMPORT: dict[str, set[str]] = {
    "model": set(),
    "bundle": {"model"},
    "swarm": {"model", "bundle"},
    "cluster": {"model"},
    "distributor": {"model", "bundle", "swarm", "cluster"},
    "host": SWARM_SIDE,
    "master": SWARM_SIDE | {"host"},
    "supervisor": SWARM_SIDE | {"host"},
    # A client is a peer, so it makes bundles and takes part in swarms.
    "client": {"model", "bundle", "swarm"},
    "cli": {"model", "bundle", "client", "spark"},
    "spark": {"model", "client"},
    "testing": SWARM_SIDE,
}
"""Downward only. `dev` may import everything, and nobody imports `dev` but the command of that name."""
ONLY_IN = {"libtorrent": "torrentdist/swarm/", "kazoo": "torrentdist/cluster/driver.py"}
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


PRODUCT = sources("torrentdist", "cli")
EVERYTHING = sources("torrentdist", "cli", "scripts", "tests", "bench")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imported_modules(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}:{node.lineno}: a relative import"
            assert node.module is not None
            # `from torrentdist import model` and `from torrentdist.model import ids` both name a module.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def part_of(module: str) -> str | None:
    """The part of the house that a module belongs to; None: none of them."""
    top, _, rest = module.partition(".")
    if top == "torrentdist_cli":
        return "cli"
    part = rest.partition(".")[0]
    return part if top == "torrentdist" and (ROOT / "torrentdist" / part).is_dir() and part else None


def forbidden_imports(path: Path) -> list[str]:
    relative = path.relative_to(ROOT)
    part = "cli" if relative.parts[0] == "cli" else relative.parts[1]
    if part == "dev" or len(relative.parts) == 2 or name_of(path) == "cli/torrentdist_cli/dev.py":
        return []
    allowed = MAY_IMPORT[part] | {part}
    return [module for module in imported_modules(path) if part_of(module) not in (None, *allowed)]


@pytest.mark.parametrize("path", PRODUCT, ids=name_of)
def test_imports_run_downward_only(path: Path) -> None:
    """A module that imports upward makes two parts one, and neither can be tested or understood alone."""
    upward = forbidden_imports(path)

    assert not upward


@pytest.mark.parametrize("library", ONLY_IN)
def test_each_big_library_is_known_in_one_place(library: str) -> None:
    """libtorrent or kazoo that leaks out of its place brings its pitfalls along to everybody."""
    users = {name_of(path) for path in PRODUCT for module in imported_modules(path) if module.split(".")[0] == library}

    assert not [user for user in sorted(users) if not user.startswith(ONLY_IN[library])]


@pytest.mark.parametrize("path", EVERYTHING, ids=name_of)
def test_no_file_is_too_long(path: Path) -> None:
    """A file of more than 400 lines is one that nobody reads whole."""
    lines = len(path.read_text(encoding="utf-8").splitlines())

    assert lines <= MAX_FILE_LINES


@pytest.mark.parametrize("path", PRODUCT, ids=name_of)
def test_no_function_is_too_long(path: Path) -> None:
    """A function that fills more than a screen hides more than one thing that it does."""
    functions = [
        node
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    too_long = [node.name for node in functions if (node.end_lineno or 0) - node.lineno + 1 > MAX_FUNCTION_LINES]

    assert not too_long


def test_no_module_is_named_after_nothing() -> None:
    """A module called utils, helpers, common or manager gathers whatever has no home."""
    bad = [name_of(path) for path in PRODUCT if FORBIDDEN_NAMES & {path.stem, *path.relative_to(ROOT).parts}]

    assert not bad


@pytest.mark.parametrize("path", PRODUCT, ids=name_of)
def test_every_module_says_why_it_exists(path: Path) -> None:
    """A module without a header leaves the reader to guess what it must not do."""
    header = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))

    assert header


@pytest.mark.parametrize("code", ERRORS)
def test_every_error_has_a_sentence_and_a_hint(code: str) -> None:
    """An error without a text or a hint leaves its user alone; one that cannot be filled in hides the real one."""
    kind = ERRORS[code]
    fields = {name: 1 for text in (kind.message, kind.hint) for _, name, _, _ in string.Formatter().parse(text) if name}

    assert kind.message.format(**fields).strip()
    assert kind.hint.format(**fields).strip()


def test_every_exit_code_is_one_of_the_table() -> None:
    """A code outside the documented table cannot be handled by a script."""
    codes = {kind.exit_code for kind in ERRORS.values()}

    assert codes <= {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 130}


def test_a_wheel_contains_every_package_of_ours_and_no_bare_cli() -> None:
    """A package missing from the list is missing from an installation; one called `cli` would collide with others'."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = pyproject["tool"]["setuptools"]["packages"]
    places = pyproject["tool"]["setuptools"]["package-dir"]
    folders = {ROOT / "torrentdist", *(path.parent for path in sources("torrentdist"))}
    on_disk = {folder.relative_to(ROOT).as_posix().replace("/", ".") for folder in folders}
    on_disk -= {"torrentdist.spark.pyspark_torrentdist"}  # Spark looks for it at the top

    assert on_disk | {"torrentdist_cli", "pyspark_torrentdist"} == set(packages)
    assert packages == [name for name in packages if (ROOT / places.get(name, name.replace(".", "/"))).is_dir()]
