"""Gives the tests that judge breaks a temporary directory, and removes it afterwards.

Always: what a killed test has mounted in it is unmounted first.
"""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def own_directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="torrentdist-breaks-") as name:
        try:
            yield Path(name)
        finally:
            for place in mounted_in(Path(name), Path("/proc/mounts").read_text(encoding="utf-8")):
                subprocess.run(["umount", "--lazy", place], check=False)


def mounted_in(directory: Path, mounts: str) -> list[str]:
    """Returns the places in a directory where something is mounted, the last one first."""
    places = [line.split()[1] for line in mounts.splitlines()]
    return [place for place in reversed(places) if Path(place).is_relative_to(directory)]
