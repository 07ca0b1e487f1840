"""scripts/setup: its messages when this machine lacks something, and its speed when nothing is
missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TOOLS = ("sh", "cat", "cmp", "dirname", "rm", "id", "sed", "grep", "tr", "sleep", "kill")
TEST_TOOLS = ("bwrap", "spin", "mkfs.xfs", "mkfs.btrfs", "skopeo", "lintian", "chromium")


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
    """Puts the clone into the state after a finished setup, but for Java."""
    for tool in TEST_TOOLS:
        program(clone, tool, "exit 1")
    (clone / ".venv" / "bin").mkdir(parents=True)
    (clone / ".venv" / "bin" / "python").symlink_to("/bin/false")
    for tool in ("promtool", "prometheus"):
        (clone / ".venv" / "bin" / tool).symlink_to("/bin/true")
    (clone / ".venv" / "ready").write_text(f"{clone}\n{(clone / 'pyproject.toml').read_text()}")
    classes = clone / ".venv" / "share" / "torrentdist" / "spark.jsa"
    classes.parent.mkdir(parents=True)
    classes.touch()
    classes.with_name("axe.min.js").touch()
    later = (clone / ".venv" / "ready").stat().st_mtime + 1.0
    os.utime(classes, (later, later))


def set_up(clone: Path, *aim: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": str(clone / "bin"), "HOME": str(clone)}
    return subprocess.run([clone / "scripts" / "setup", *aim], env=environ, capture_output=True, text=True, timeout=20)


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
    run = set_up(clone)

    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


def test_a_changed_pyproject_is_installed_again(clone: Path) -> None:
    """A new dependency would not reach an existing virtual environment."""
    make_ready(clone)
    (clone / "pyproject.toml").write_text("[project]\n")
    program(clone, "java", "exit 1")
    program(clone, "python3", 'echo "$0"')
    run = set_up(clone)

    assert "setup: installing into .venv" in run.stdout


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
        (1000, "setup: bubblewrap is not installed, so workers get no namespaces of their own\n", []),
    ],
)
def test_without_bubblewrap_the_rest_is_set_up(clone: Path, user: int, said: str, called: list[str]) -> None:
    """A machine without namespaces could run nothing, although namespaces are optional."""
    make_ready(clone)
    (clone / "bin" / "bwrap").unlink()
    calls = clone / "calls"
    calls.touch()
    program(clone, "java", "exit 1")
    program(clone, "id", f"echo {user}")
    program(clone, "apt-get", 'echo "$@" >>calls')
    run = set_up(clone)

    assert (0, said, "") == (run.returncode, run.stdout, run.stderr)
    assert called == calls.read_text().splitlines()


def test_root_gets_what_makes_the_file_systems_of_the_tests(clone: Path) -> None:
    """The tests on XFS and Btrfs would be skipped wherever the tests run."""
    make_ready(clone)
    for tool in ("mkfs.xfs", "mkfs.btrfs"):
        (clone / "bin" / tool).unlink()
    program(clone, "java", "exit 1")
    program(clone, "id", "echo 0")
    program(clone, "apt-get", 'echo "$@" >>calls')
    run = set_up(clone)

    expected = ["update -qq", *(f"install -qq -y --no-install-recommends {of}" for of in ("xfsprogs", "btrfs-progs"))]
    assert (0, "") == (run.returncode, run.stderr)
    assert expected == (clone / "calls").read_text().splitlines()


def test_the_demo_gets_only_what_it_needs(clone: Path) -> None:
    """A newcomer would wait for a browser and type checkers before the first demo."""
    make_ready(clone)
    (clone / ".venv" / "ready").rename(clone / ".venv" / "ready-for-demo")
    for tool in TEST_TOOLS:
        (clone / "bin" / tool).unlink()
    program(clone, "java", "exit 1")
    run = set_up(clone, "demo")

    assert (0, "", "") == (run.returncode, run.stdout, run.stderr)


@pytest.fixture
def ready_for_demo(clone: Path) -> Path:
    """A clone after a finished setup for the demo. Its Python and its uv note how they are
    called."""
    make_ready(clone)
    (clone / ".venv" / "ready").rename(clone / ".venv" / "ready-for-demo")
    (clone / ".venv" / "pyvenv.cfg").write_text(f"command = python -m venv {clone}/.venv\n")
    (clone / ".venv" / "bin" / "python").unlink()
    program(clone, "java", "exit 1")
    program(clone, "python3", f"echo python $* >>{clone}/calls")
    program(clone, "uv", f"echo uv $* >>{clone}/calls")
    for venv_name, name in {"python": "python3", "uv": "uv"}.items():
        (clone / ".venv" / "bin" / venv_name).symlink_to(clone / "bin" / name)
    return clone


def test_a_clone_that_is_ready_for_the_demo_is_completed_for_the_tests(ready_for_demo: Path) -> None:
    """`make test` after `make demo` would fail for want of pytest, or install PySpark twice."""
    run = set_up(ready_for_demo)

    calls = (ready_for_demo / "calls").read_text()
    assert (0, "") == (run.returncode, run.stderr)
    assert "pytest" in run.stdout
    assert "requirements/dev.txt" in calls
    assert "-m venv" not in calls


def test_pip_installs_what_uv_cannot(ready_for_demo: Path) -> None:
    """Where only pip's settings lead to an index, nothing could be set up."""
    program(ready_for_demo, "uv", "exit 2")
    run = set_up(ready_for_demo)

    by_pip = [call for call in (ready_for_demo / "calls").read_text().splitlines() if "-m pip" in call]
    assert (0, "") == (run.returncode, run.stderr)
    assert "once more, with pip" in run.stdout
    assert any("--requirement requirements/dev.txt" in call for call in by_pip)
