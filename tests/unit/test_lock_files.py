"""The lock files name every package by its hashes, and follow pyproject.toml."""

from __future__ import annotations

import hashlib
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
LOCKS = {path.stem: path.read_text(encoding="utf-8") for path in sorted((ROOT / "requirements").glob("*.txt"))}
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
PROJECT = tomllib.loads(PYPROJECT)["project"]
EXTRAS = PROJECT["optional-dependencies"]
WANTED = {
    "server": PROJECT["dependencies"] + EXTRAS["server"],
    "host": PROJECT["dependencies"] + EXTRAS["server"] + EXTRAS["spark"],
    "demo": [*PROJECT["dependencies"], *EXTRAS["server"], "pyspark", "pyarrow"],
    "traces": PROJECT["dependencies"] + EXTRAS["traces"],
    "dev": PROJECT["dependencies"] + EXTRAS["server"] + EXTRAS["spark"] + EXTRAS["traces"] + EXTRAS["dev"],
}


def entries(lock: str) -> dict[str, list[str]]:
    """Returns the entries of a lock file by package; a package may have one for each Python."""
    found: dict[str, list[str]] = {}
    for entry in re.split(r"\n(?=\S)", lock):
        if name := re.match(r"([a-z0-9.-]+)(\[[a-z0-9,-]+\])?==", entry):
            found.setdefault(name[1], []).append(entry)
    return found


def named(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None
    return re.sub(r"[._-]+", "-", found[0]).lower()


@pytest.mark.parametrize("name", LOCKS)
def test_every_package_is_locked_by_its_hashes(name: str) -> None:
    """A package that was replaced at the index would run on every host."""
    loose = [entry for of in entries(LOCKS[name]).values() for entry in of if "--hash=sha256:" not in entry]

    assert len(entries(LOCKS[name])) > 1
    assert [] == loose


@pytest.mark.parametrize("name", LOCKS)
def test_no_lock_file_names_an_index(name: str) -> None:
    """An installation would ask another index than the one that its pip is set up for."""
    assert [] == re.findall(r"://|--(?:extra-)?index-url|--find-links|--trusted-host", LOCKS[name])


@pytest.mark.parametrize("name", WANTED)
def test_the_lock_files_follow_the_project(name: str) -> None:
    """A dependency that was added would be missing wherever the lock file is used: run
    scripts/lock."""
    wanted = {named(requirement) for requirement in WANTED[name]} - {"torrentdist"}

    assert set() == wanted - entries(LOCKS[name]).keys()


def test_the_project_names_its_lock_files_by_their_hash() -> None:
    """scripts/setup would keep the packages of an older lock file."""
    found = hashlib.sha256("".join(LOCKS.values()).encode()).hexdigest()

    assert tomllib.loads(PYPROJECT)["tool"]["torrentdist"]["lock"] == found


def test_all_lock_files_agree_on_versions() -> None:
    """Hosts would run other versions than those that the tests have seen."""
    tested = {pin(entry) for of in entries(LOCKS["dev"]).values() for entry in of}
    locks = [LOCKS[name] for name in ("server", "host", "demo", "traces")]
    installed = {pin(entry) for lock in locks for of in entries(lock).values() for entry in of}

    assert set() == installed - tested


def pin(entry: str) -> str:
    """Returns the package and its version, without extras."""
    return re.sub(r"\[.*?\]", "", entry.split()[0])
