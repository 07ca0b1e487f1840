"""scripts/engines-in-ci and .ci/run: what is left out, and what fails."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def program(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("fetch", "ring", "tests", "code", "words"),
    [
        (0, 0, 0, 0, "ring ran"),
        (75, 1, 0, 0, "left out: all; HDFS could not be fetched (code 75)"),
        (1, 1, 0, 0, "left out: all; HDFS could not be fetched (code 1)"),
        (0, 75, 0, 0, "left out: this machine can't have their hosts"),
        (0, 124, 0, 0, "left out: the tests took longer"),
        (0, 1, 0, 1, "engines: a test failed"),
        (0, 0, 2, 2, "ring ran"),
    ],
)
def test_only_a_failed_test_makes_ci_fail(
    tmp_path: Path, fetch: int, ring: int, tests: int, code: int, words: str
) -> None:
    """CI would refuse a change for want of a download, or accept one that breaks YARN."""
    for name in (".ci/run", "scripts/engines-in-ci"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    program(tmp_path / "scripts/setup", "exit 0")
    program(tmp_path / "scripts/engines", f"exit {fetch}")
    program(tmp_path / ".venv/bin/python", f"echo ring ran; exit {ring}")
    program(tmp_path / "bin/make", f"echo summary of $1; exit {tests}")
    run = subprocess.run(
        [tmp_path / ".ci/run"], env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}, capture_output=True, text=True
    )

    assert (code, "summary of test") == (run.returncode, run.stdout.splitlines()[-1])
    assert words in run.stdout
