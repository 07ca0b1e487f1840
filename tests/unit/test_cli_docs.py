"""The generated pages of docs/ say what the code does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_the_generated_pages_are_current() -> None:
    """A page that is older than the code promises options, keys or codes that don't exist."""
    run = subprocess.run(
        [sys.executable, "scripts/reference.py", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )

    assert (run.stderr, run.returncode) == ("", 0)
