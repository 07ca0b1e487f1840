"""Where the program that waits for bundles says so. Spark passes on what an executor's Python
prints only when it has started or failed, so the program writes to the executor's own log."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from torrentdist.supervisor.ids import bundle_python

WAITS = "torrentdist: waiting for bundle env-1: the supervisor of this host does not answer"
FAILS = "torrentdist: error: bundle env-1 did not come in time"
NOBODY_LISTENS = "http://127.0.0.1:9"


def run(tmp_path: Path, *, parent: str = "java", append: bool = True, logs: str = "") -> dict[str, str]:
    """Runs the program below a shell that is called `parent`. Returns what the executor's log, the
    program's own stderr and YARN's file hold then."""
    program = tmp_path / "ids.spark" / "python"
    program.parent.mkdir()
    program.write_text(Path(bundle_python.__file__).read_text())
    (program.parent / "gateway").write_text(NOBODY_LISTENS)
    shutil.copy(Path("/bin/bash").resolve(), tmp_path / parent)
    environ = {"PATH": os.environ["PATH"], "TORRENTDIST_ENV": "env-1", "TORRENTDIST_WAIT_SECS": "0.3", "LOG_DIRS": logs}
    script = f"echo begins >&2; {sys.executable} {program} 2>{tmp_path}/own; echo ends >&2"
    with (tmp_path / "log").open("a" if append else "w") as log:
        subprocess.run([str(tmp_path / parent), "-c", script], stderr=log, env=environ, timeout=30, check=True)
    yarns = tmp_path / "container" / bundle_python.LOG
    places = {"log": tmp_path / "log", "own": tmp_path / "own", "yarn": yarns}
    return {name: path.read_text() if path.exists() else "" for name, path in places.items()}


def test_an_executors_log_says_that_it_waits(tmp_path: Path) -> None:
    """An application would stand still for an hour, and no log would say why."""
    said = run(tmp_path)

    assert WAITS in said["log"]
    assert WAITS not in said["own"]
    assert FAILS in said["own"]


def test_a_log_that_would_be_written_over_has_a_file_beside_it(tmp_path: Path) -> None:
    """YARN's containers write where they wrote last, so a line between would be lost, or lose
    another."""
    (tmp_path / "container").mkdir()
    said = run(tmp_path, append=False, logs=f"{tmp_path}/container,{tmp_path}/other")

    assert WAITS in said["yarn"]
    assert "begins\nends\n" == said["log"]


@pytest.mark.parametrize(("parent", "append"), [("java", False), ("sh", True)])
def test_it_says_so_itself_where_no_executor_listens(tmp_path: Path, parent: str, append: bool) -> None:
    """A user who starts the program in a shell would see nothing, or find it in another file."""
    said = run(tmp_path, parent=parent, append=append)

    assert WAITS in said["own"]
    assert "begins\nends\n" == said["log"]
