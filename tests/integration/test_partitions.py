"""Networks that break between hosts, in network namespaces. tests/partitions.py has the
scenario."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.lab.namespaces import why_not

ROOT = Path(__file__).parent.parent.parent
LONGEST_SECS = 240.0


@pytest.mark.case("E3")
def test_partitions_leave_one_leader_and_lose_nothing(tmp_path: Path) -> None:
    """If this fails, a network that splits in halves gives two leaders or none, or loses something
    acknowledged. It takes long: six hosts start, and the partition lasts longer than a session."""
    if reason := why_not():
        pytest.skip(f"no network namespaces: {reason}")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), str(ROOT)])}
    env |= {"XDG_CACHE_HOME": str(tmp_path / "cache"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    (tmp_path / "lab").mkdir()
    command = [sys.executable, "-m", "partitions", str(tmp_path / "lab")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LONGEST_SECS, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    print(told)

    assert [] == told["findings"]
    assert ["halves"] == told["bundles"]
    assert told["the smaller half has no leader"]
    assert told["leaders"][0] != told["leaders"][1]
