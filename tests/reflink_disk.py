"""A file system that can clone files, for tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

MIB = 1024 * 1024


@pytest.fixture(params=[("mkfs.xfs", "-q", "-m", "reflink=1"), ("mkfs.btrfs", "-q")], ids=["xfs", "btrfs"])
def with_reflinks(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A small XFS, and a small Btrfs, in a file, mounted."""
    maker: tuple[str, ...] = request.param
    if shutil.which(maker[0]) is None or os.getuid() != 0:
        pytest.skip(f"there is no {maker[0]}, or this is not root")
    image, place = tmp_path / "image", tmp_path / "mount"
    with image.open("wb") as file:
        file.truncate(400 * MIB)
    place.mkdir()
    subprocess.run([*maker, str(image)], check=True, capture_output=True)
    mounted = subprocess.run(["mount", "-o", "loop", str(image), str(place)], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no loop mount: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)
