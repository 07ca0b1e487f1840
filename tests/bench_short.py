"""Some of the benchmark's short form, as CI runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NOISE = 2.0
"""Factor by which times and ratios of a few short runs may miss their bars on a busy machine; `make
bench` checks the bars themselves. Memory and bytes do not depend on other work, so their bars hold
as they are."""
LONGEST_SECS = 600


def rows_that_miss(only: str, directory: Path) -> tuple[set[str], list[dict[str, object]], str]:
    """Returns the keys of all rows that have a bar, the rows that miss it by more than noise, and
    the table."""
    command = [sys.executable, "-m", "bench", "--short", "--only", only]
    command += ["--results", str(directory), "--dir", str(directory)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=LONGEST_SECS, check=False, text=True)
    # Exit code 3 says that a bar was missed. Here it counts by how much.
    if ended.returncode not in (0, 3):
        pytest.fail(ended.stderr)
    rows = json.loads((directory / "results.json").read_text())["rows"]
    barred = {row["key"]: row for row in rows if row["bar"] is not None}
    missed = [row for row in barred.values() if row["measured"] > row["bar"] * _room(row)]
    return set(barred), missed, ended.stdout


def _room(row: dict[str, object]) -> float:
    return NOISE if row["unit"] == "s" else 1.0
