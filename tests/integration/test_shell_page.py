"""The session of docs/shell.md, in a real shell, with a real cluster."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cluster_fixtures import Cluster, make_source

PAGE = Path(__file__).parent.parent.parent / "docs" / "shell.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
REST = "[...]"

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")


def steps() -> list[tuple[str, str]]:
    """Returns the commands of the page, each with what it prints."""
    found = []
    for block in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        for step in block.split("$ ")[1:]:
            command, _, output = step.partition("\n")
            found.append((command, output.strip()))
    return found


def fits(expected: str, shown: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in expected.split(REST))
    return re.fullmatch(pattern, shown.strip(), re.DOTALL) is not None


def test_the_session_of_the_page_works(cluster: Cluster, tmp_path: Path) -> None:
    """If this fails, a reader who copies a command of the page sees something else."""
    make_source(tmp_path / "weights", seed=77)
    shutil.copy(cluster.dir / "client.toml", tmp_path / "torrentdist.toml")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TORRENTDIST_")}
    environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"
    wrong = []
    for command, expected in steps():
        ran = subprocess.run(
            ["bash", "-c", command], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        if not fits(expected, f"{ran.stdout}{ran.stderr}"):
            wrong.append((command, expected, ran.stdout, ran.stderr))

    assert [] == wrong
    assert 9 <= len(steps())
