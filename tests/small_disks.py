"""Disks of a given size, for tests that fill them."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@pytest.fixture
def small_disk() -> Iterator[Callable[[int], Path]]:
    """Makes directories on file systems of a given size in bytes. None if this machine allows no
    mounts."""
    mounted: list[Path] = []

    def mount(size: int) -> Path:
        path = Path(tempfile.mkdtemp(prefix="torrentdist-disk-"))
        mounted.append(path)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], check=True, capture_output=True
        )
        return path

    yield mount
    for path in mounted:
        subprocess.run(["umount", "-l", str(path)], check=False, capture_output=True)
        shutil.rmtree(path, ignore_errors=True)
