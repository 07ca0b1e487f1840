"""Some of the benchmark's short form, as CI runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NOISE = 2.0
"""What times and ratios of a few short runs on a busy machine may differ by: bars are for `make
bench`. Memory and bytes do not depend on the machine's other work, so that their bars hold as they
are."""
LONGEST_SECS = 600


def rows_that_miss(only: str, directory: Path) -> tuple[set[str], list[dict[str, object]], str]:
    """The keys of all rows that have a bar, those that miss it by more than noise, and the
    table."""
    command = [sys.executable, "-m", "bench", "--short", "--only", only]
    command += ["--results", str(directory), "--dir", str(directory)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=LONGEST_SECS, check=False, text=True)
    # With 3 it says that a bar was missed; how far is what counts here.
    if ended.returncode not in (0, 3):
        pytest.fail(ended.stderr)
    rows = json.loads((directory / "results.json").read_text())["rows"]
    barred = {row["key"]: row for row in rows if row["bar"] is not None}
    missed = [row for row in barred.values() if row["measured"] > row["bar"] * _room(row)]
    return set(barred), missed, ended.stdout


def _room(row: dict[str, object]) -> float:
    return NOISE if row["unit"] == "s" else 1.0
