"""The documentation as a site: every page is in the menu, and no link leads nowhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_site_builds_without_a_broken_link(tmp_path: Path) -> None:
    """A link would lead nowhere, or no menu would name a page, so that readers do not find it. It
    takes long: the whole site is built."""
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    assert (0, "") == (done.returncode, done.stdout + done.stderr)
