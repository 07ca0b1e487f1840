"""The shell sessions of a page of the documentation, which tests run as a reader would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGES = Path(__file__).parent.parent / "docs"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ON_PAGES = "http://127.0.0.1:7070"
"""The gateway of the pages."""


def blocks_of(page: str, kind: str, *, part: str = "") -> list[str]:
    """Returns the blocks of a kind, such as `sh`, below one of the page's headings."""
    text = (PAGES / page).read_text(encoding="utf-8")
    if part:
        text = text.partition(f"\n## {part}\n")[2].partition("\n## ")[0]
    return [body for found, body in _BLOCK.findall(text) if found == kind]


def run_block(block: str, gateway: str, work: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs a block in `work`, with this environment's programs and without settings of this
    machine."""
    foreign = ("PIP_", "UV_", "TORRENTDIST_", "SPARK_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-e", "-c", block.replace(ON_PAGES, gateway)],
        cwd=work,
        env={**kept, "PATH": path, "PIP_CONFIG_FILE": os.devnull, **env},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
        stdin=subprocess.DEVNULL,
    )
