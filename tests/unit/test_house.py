"""The repository's own rules: which parts may import which, how long files are, what an
installation contains."""

from __future__ import annotations

import ast
import re
import string
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from torrentdist.model.errors import ERRORS

ROOT = Path(__file__).parent.parent.parent
MAX_FILE_LINES = 275
MAX_FUNCTION_LINES = 50
MAX_TEST_LINES = 420
REASON = "Longer than most"
"""A header with these words says why its file is long."""
MIN_FOLDER_FILES, MAX_FOLDER_FILES = 3, 12
"""Not counting __init__.py."""
FEW_FILES = {
    "cli/torrentdist_cli",  # the entry point; its parts are in the folders below
    "torrentdist",
    "torrentdist/cluster",
    "torrentdist/doors",
    "torrentdist/master/swarm",
    "torrentdist/spark/pyspark_torrentdist",  # Spark looks for it by this name
    "torrentdist/supervisor",
    "torrentdist/swarm",
}
SHARED_FILE_NAMES = {"__init__", "__main__", "daemon", "views"}
MAX_PARAMETERS = 6
RIDDLE = re.compile(r"(Of|Who|Whoever|Whose|Whom|Those)\b")

SWARM_SIDE = {"model", "bundle", "swarm", "cluster", "distributor", "security"}
MAY_IMPORT: dict[str, set[str]] = {
    "model": set(),
    "traces": {"model"},
    "charts": set(),
    "http": {"model", "security"},
    "bundle": {"model"},
    "security": {"model"},
    "swarm": {"model", "bundle", "http"},
    "cluster": {"model"},
    "distributor": {"model", "bundle", "swarm", "cluster"},
    "host": SWARM_SIDE | {"http", "traces"},
    "master": SWARM_SIDE | {"host", "http", "charts", "traces"},
    "supervisor": SWARM_SIDE | {"host", "http", "launcher"},
    "launcher": {"model"},
    # A client is a peer, so it makes bundles and takes part in swarms.
    "client": {"model", "bundle", "swarm", "http", "security", "traces"},
    "api": {"model", "bundle", "client", "security", "traces"},
    "doors": {"model", "bundle", "client", "api"},
    "cli": {"model", "bundle", "client", "api", "http", "spark", "security"},
    "spark": {"model", "client", "charts"},
    "testing": SWARM_SIDE,
}
"""Downward only. `dev` may import everything, and nobody imports `dev` but the command of that
name."""
ONLY_IN = {
    "libtorrent": "torrentdist/swarm/",
    "kazoo": "torrentdist/cluster/session/kazoo_client.py",
    "opentelemetry": "torrentdist/traces/span_exporter.py",
}
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
            # `from torrentdist import model` and `from torrentdist.model import ids` both name a
            # module.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def part_of(module: str) -> str | None:
    """Returns the part of the repository that a module belongs to, or None."""
    top, _, rest = module.partition(".")
    if top == "torrentdist_cli":
        return "cli"
    part = rest.partition(".")[0]
    return part if top == "torrentdist" and (ROOT / "torrentdist" / part).is_dir() and part else None


def forbidden_imports(path: Path) -> list[str]:
    relative = path.relative_to(ROOT)
    part = "cli" if relative.parts[0] == "cli" else relative.parts[1]
    if part == "dev" or len(relative.parts) == 2 or name_of(path) == "cli/torrentdist_cli/hosts/dev_commands.py":
        return []
    allowed = MAY_IMPORT[part] | {part}
    return [module for module in imported_modules(path) if part_of(module) not in (None, *allowed)]


def test_imports_run_downward_only() -> None:
    """A module that imports upward makes two parts one, and neither can be tested or understood
    alone."""
    upward = {name_of(path): bad for path in PRODUCT if (bad := forbidden_imports(path))}

    assert {} == upward


def test_each_big_library_is_known_in_one_place() -> None:
    """Every module would have to know the pitfalls of libtorrent or kazoo."""
    leaks = [
        f"{name_of(path)}: {module}"
        for path in PRODUCT
        for module in imported_modules(path)
        if (place := ONLY_IN.get(module.split(".")[0])) and not name_of(path).startswith(place)
    ]

    assert [] == leaks


def test_json_from_outside_is_decoded_in_one_place() -> None:
    """msgspec raises a UnicodeDecodeError or a RecursionError that callers would not expect."""
    allowed = {
        "torrentdist/model/json_decoding.py",
        "torrentdist/cluster/records/record_schema.py",  # a record that this process has just encoded
    }
    decoding = {name_of(path) for path in PRODUCT if "msgspec.json.decode" in path.read_text().lower()}

    assert allowed == decoding


def test_a_long_file_says_why() -> None:
    """A file that is long without a reason does more than one thing, and nobody reads it whole."""
    lengths = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in EVERYTHING}
    silent = {
        name: lines
        for name, lines in lengths.items()
        if lines > (MAX_FILE_LINES if name.startswith(("torrentdist/", "cli/")) else MAX_TEST_LINES)
        and REASON not in (ast.get_docstring(ast.parse((ROOT / name).read_text(encoding="utf-8"))) or "")
    }

    assert {} == silent


def test_a_folder_is_a_room() -> None:
    """A folder with too many files is hard to survey; one with one or two files only adds a
    level."""
    sizes = {
        name_of(folder): len([path for path in folder.glob("*.py") if path.name != "__init__.py"])
        for folder in sorted({path.parent for path in PRODUCT})
    }
    corridors = {name for name, size in sizes.items() if size < MIN_FOLDER_FILES} - FEW_FILES

    assert {} == {name: size for name, size in sizes.items() if size > MAX_FOLDER_FILES}
    assert set() == corridors


def test_no_name_stands_for_two_things() -> None:
    """Two files or classes with one name make every search and trace ambiguous."""
    files = Counter(path.name for path in PRODUCT if path.stem not in SHARED_FILE_NAMES)
    classes = Counter(
        node.name
        for path in PRODUCT
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )

    assert [] == [name for name, count in (files + classes).items() if count > 1]


def test_no_constructor_takes_too_much() -> None:
    """A constructor with many parameters hides that its class has many tasks."""
    greedy = [
        f"{name_of(path)}: {node.name}"
        for path in PRODUCT
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name == "__init__"
        if len(method.args.args) + len(method.args.kwonlyargs) - 1 > MAX_PARAMETERS
    ]

    assert [] == greedy


def test_docstrings_are_sentences() -> None:
    """A docstring, also one of an attribute, that begins in the middle of a thought is a riddle."""
    riddles = [
        f"{name_of(path)}:{node.lineno} {text[:60]}"
        for path in EVERYTHING
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if RIDDLE.match(text := node.value.value.strip())
    ]

    assert [] == riddles


def test_no_function_is_too_long() -> None:
    """A function that fills more than a screen hides more than one thing that it does."""
    too_long = [
        f"{name_of(path)}:{node.lineno} {node.name}"
        for path in PRODUCT
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > MAX_FUNCTION_LINES
    ]

    assert [] == too_long


def test_no_module_is_named_after_nothing() -> None:
    """A module called utils, helpers, common or manager collects unrelated code."""
    bad = [name_of(path) for path in PRODUCT if FORBIDDEN_NAMES & {path.stem, *path.relative_to(ROOT).parts}]

    assert [] == bad


def test_every_module_says_why_it_exists() -> None:
    """A module without a header leaves the reader to guess what it must not do."""
    silent = [name_of(path) for path in PRODUCT if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))]

    assert [] == silent


def test_every_error_has_a_sentence_and_a_hint() -> None:
    """An error without a text or a hint leaves its user alone; one that cannot be filled in hides
    the real one."""
    for code, kind in ERRORS.items():
        texts = (kind.message, kind.hint)
        fields = {name: 1 for text in texts for _, name, _, _ in string.Formatter().parse(text) if name}

        assert kind.message.format(**fields).strip(), code
        assert kind.hint.format(**fields).strip(), code


def test_every_exit_code_is_one_of_the_table() -> None:
    """A code outside the documented table cannot be handled by a script."""
    codes = {kind.exit_code for kind in ERRORS.values()}

    assert codes <= {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 130}


def folder_of(package: str, places: Mapping[str, str]) -> Path:
    top, _, rest = package.partition(".")
    return ROOT / places.get(top, top) / rest.replace(".", "/")


def test_a_wheel_contains_every_package_of_ours_and_no_bare_cli() -> None:
    """A package missing from the list is missing from an installation; one called `cli` would
    collide with others'."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = pyproject["tool"]["setuptools"]["packages"]
    places = pyproject["tool"]["setuptools"]["package-dir"]
    folders = {path.parent for path in sources("torrentdist", "cli")}
    on_disk = {folder.relative_to(ROOT).as_posix().removeprefix("cli/").replace("/", ".") for folder in folders}
    on_disk -= {"torrentdist.spark.pyspark_torrentdist"}  # Spark looks for it at the top

    assert on_disk | {"pyspark_torrentdist"} == set(packages)
    assert [] == [name for name in packages if not folder_of(name, places).is_dir()]


def test_the_pages_name_files_that_exist() -> None:
    """A page would send its reader to a file that has moved."""
    pages = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")]
    pages += sorted((ROOT / "docs").rglob("*.md"))
    roots = (ROOT, ROOT / "torrentdist", ROOT / "cli", ROOT / "tests")
    gone = [
        f"{page.relative_to(ROOT)}: {path}"
        for page in pages
        for path in re.findall(r"`([a-z_][\w/]*/\w+\.py)`", page.read_text(encoding="utf-8"))
        if not any((root / path).is_file() for root in roots)
    ]

    assert [] == gone


def test_text_reaches_the_terminal_in_one_place() -> None:
    """A name from outside could control a terminal through any other place."""
    allowed = {"cli/torrentdist_cli/frame/terminal.py"}
    offenders = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sources("cli")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("click.echo", "click.secho", "print")
    ]

    assert [] == [where for where in offenders if where.partition(":")[0] not in allowed]
