"""The rules of the alerts, by Prometheus' own checker."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus"
PROMTOOL = shutil.which("promtool") or shutil.which("promtool", path=ROOT / ".venv" / "bin")


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed, and scripts/setup could not")
@pytest.mark.parametrize("arguments", [("check", "rules", "rules.yml"), ("test", "rules", "rules_test.yml")])
def test_promtool_accepts_the_rules_and_their_tests_pass(arguments: tuple[str, ...]) -> None:
    """Prometheus would refuse the rules, or an alert would not fire when it must. It takes long,
    since the alerts of days are played."""
    assert PROMTOOL is not None
    ran = subprocess.run([PROMTOOL, *arguments], cwd=RULES, capture_output=True, text=True, timeout=300, check=False)

    assert 0 == ran.returncode, ran.stdout + ran.stderr
