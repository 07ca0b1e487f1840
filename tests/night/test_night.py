"""The short form of `make night`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_server import PROGRAM

from bench.lab.namespaces import why_not

ROOT = Path(__file__).parent.parent.parent
LONGEST_SECS = 600.0


@pytest.mark.alone
@pytest.mark.skipif(bool(why_not()) or PROGRAM is None, reason="it takes root, namespaces, and prometheus")
def test_what_breaks_is_named_by_the_overview_the_doctor_and_an_alert(tmp_path: Path) -> None:
    """If this fails, an operator is told that all is well when it is not. It takes long: a whole
    cluster breaks three times, and the doctor looks every second."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), str(ROOT)]), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "night.run", "--short"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LONGEST_SECS, check=False)
    print(done.stderr[-3000:])
    print(done.stdout)
    report = json.loads(done.stdout)

    assert ([], []) == (report["missed"], report["complaints"])
    assert 3 == len(report["breakages"])
