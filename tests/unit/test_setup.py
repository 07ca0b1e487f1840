"""scripts/setup: its messages when this machine lacks something, and its speed when nothing is
missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TOOLS = ("sh", "cat", "cmp", "dirname", "rm", "id")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with only what the script reads, and a folder `bin` that is its whole PATH."""
    top = tmp_path / "clone"
    (top / "scripts").mkdir(parents=True)
    (top / "bin").mkdir()
    shutil.copy(ROOT / "scripts" / "setup", top / "scripts" / "setup")
    shutil.copy(ROOT / "pyproject.toml", top / "pyproject.toml")
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None
        (top / "bin" / tool).symlink_to(found)
    return top


def program(clone: Path, name: str, body: str) -> None:
    path = clone / "bin" / name
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def make_ready(clone: Path) -> None:
    """Puts the clone into the state after a finished setup."""
    (clone / ".venv" / "bin").mkdir(parents=True)
    (clone / ".venv" / "bin" / "python").symlink_to("/bin/false")
    (clone / ".venv" / "bin" / "promtool").symlink_to("/bin/true")
    (clone / ".venv" / "ready").write_text(f"{clone}\n{(clone / 'pyproject.toml').read_text()}")
    classes = clone / ".venv" / "share" / "torrentdist" / "zookeeper.jsa"
    classes.parent.mkdir(parents=True)
    classes.touch()
    classes.with_name("axe.min.js").touch()
    later = (clone / ".venv" / "ready").stat().st_mtime + 1.0
    os.utime(classes, (later, later))


def set_up(clone: Path) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": str(clone / "bin"), "HOME": str(clone)}
    return subprocess.run([clone / "scripts" / "setup"], env=environ, capture_output=True, text=True, timeout=20)


def test_a_python_that_is_too_old_is_named_in_one_line(clone: Path) -> None:
    """With an old Python everything fails later, in lines that do not name the cause."""
    program(clone, "python3", "exit 1")
    run = set_up(clone)

    assert run.returncode == 1
    assert run.stderr.startswith("setup: Python 3.11 or newer is needed")
    assert run.stderr.count("\n") == 1


def test_nothing_is_done_when_nothing_is_missing(clone: Path) -> None:
    """Every `make test` would wait for the setup."""
    make_ready(clone)
    program(clone, "java", "exit 1")
    program(clone, "bwrap", "exit 1")
    program(clone, "chromium", "exit 1")
    run = set_up(clone)

    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


def test_a_changed_pyproject_is_installed_again(clone: Path) -> None:
    """A new dependency would not reach an existing virtual environment."""
    make_ready(clone)
    (clone / "pyproject.toml").write_text("[project]\n")
    program(clone, "python3", 'echo "$0"')
    run = set_up(clone)

    assert "installing into .venv" in run.stdout


def test_without_java_an_ordinary_user_is_told_what_to_install(clone: Path) -> None:
    """Without Java the demo fails halfway; without the package's name the user has to search for
    it."""
    make_ready(clone)
    program(clone, "id", "echo 1000")
    run = set_up(clone)

    assert run.returncode == 1
    assert "sudo apt-get install default-jre-headless" in run.stderr
    assert run.stderr.count("\n") == 1


def test_without_java_root_has_it_installed(clone: Path) -> None:
    """The README's command would not work on a fresh machine."""
    make_ready(clone)
    program(clone, "id", "echo 0")
    program(clone, "apt-get", 'echo "$@" >>calls')
    program(clone, "bwrap", "exit 1")
    run = set_up(clone)

    expected = ["update -qq", "install -qq -y --no-install-recommends default-jre-headless"]
    assert run.returncode == 0
    assert expected == (clone / "calls").read_text().splitlines()


def test_a_java_that_cannot_be_installed_is_one_clear_line(clone: Path) -> None:
    """A machine without a network must not look set up."""
    make_ready(clone)
    program(clone, "id", "echo 0")
    program(clone, "apt-get", "exit 100")
    run = set_up(clone)

    assert (run.returncode, run.stderr) == (
        1,
        "setup: Java could not be installed; try: apt-get install default-jre-headless\n",
    )


@pytest.mark.parametrize(
    ("user", "said", "called"),
    [
        (0, "setup: installing bubblewrap\n", ["update -qq", "install -qq -y --no-install-recommends bubblewrap"]),
        (1000, "setup: bubblewrap (bwrap) is not installed, so workers get no namespaces of their own\n", []),
    ],
)
def test_without_bubblewrap_the_rest_is_set_up(clone: Path, user: int, said: str, called: list[str]) -> None:
    """A machine without namespaces could run nothing, although namespaces are optional."""
    make_ready(clone)
    calls = clone / "calls"
    calls.touch()
    program(clone, "java", "exit 1")
    program(clone, "chromium", "exit 1")
    program(clone, "id", f"echo {user}")
    program(clone, "apt-get", 'echo "$@" >>calls')
    run = set_up(clone)

    assert (0, said, "") == (run.returncode, run.stdout, run.stderr)
    assert called == calls.read_text().splitlines()
