"""The short form of `make chaos`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from chaos.load import LEAST_UPLOADS
from chaos.schedule import CI_SECS, CI_SEED

ROOT = Path(__file__).parent.parent.parent
LONGEST_SECS = 600.0


@pytest.mark.case("E1")
@pytest.mark.case("E2")
@pytest.mark.case("E3")
@pytest.mark.case("E5")
@pytest.mark.case("D16")
@pytest.mark.case("D18")
@pytest.mark.case("E4")
@pytest.mark.case("E6")
@pytest.mark.case("E8")
def test_a_minute_of_chaos_loses_nothing() -> None:
    """If this fails, something acknowledged is lost, two masters led at once, or a daemon did not
    come back. It takes long, because a whole cluster is at work."""
    directory = Path(tempfile.mkdtemp(prefix="torrentdist-chaos-"))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), str(ROOT)]), "TMPDIR": str(directory)}
    command = [sys.executable, "-m", "chaos.run", "--time", f"{CI_SECS:g}", "--seed", str(CI_SEED), "--no-rotation"]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LONGEST_SECS, check=False)
        print(done.stderr[-3000:])
        print(done.stdout)
        report = json.loads(done.stdout)
    finally:
        shutil.rmtree(directory, ignore_errors=True)

    assert report["findings"] == []
    assert (report["lost"], done.returncode) == (0, 0)
    assert report["epochs"] > 1, "the faults changed nothing"
    assert report["job"]["restarts"] > 0, "no worker was restarted or moved"
    assert report["work"]["upload"] >= LEAST_UPLOADS, "hardly anything was done"
