"""A Python environment as a bundle: a virtual environment with NumPy, pandas and PyArrow, more than
250 MB.

Always: its packages are copies of those that are installed here, without what they compiled.
"""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

PACKAGES = ("numpy", "pandas", "pyarrow", "python-dateutil", "pytz", "tzdata", "six")
LEAST_BYTES = 250 * 10**6


class Environment(NamedTuple):
    path: Path
    size: int


def make_environment(path: Path, name: str) -> Environment:
    """Makes the environment. Its module `marker` knows its name."""
    subprocess.run([sys.executable, "-m", "venv", "--copies", "--without-pip", str(path)], check=True)
    [packages] = path.glob("lib/python*/site-packages")
    for package in PACKAGES:
        for file in importlib.metadata.files(package) or []:
            if ".." not in file.parts and "__pycache__" not in file.parts:
                copy = packages / file
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file.locate(), copy)
    (packages / "marker.py").write_text(f"NAME = {name!r}\n")
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    assert size >= LEAST_BYTES
    return Environment(path, size)
