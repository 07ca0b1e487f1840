"""Translates disk errors into errors of our table."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torrentdist.bundle.files.durability import disk_failure


@contextmanager
def disk_failures(path: Path, *, needed: int = 0) -> Iterator[None]:
    """Raises an OSError of the block as `disk_full` or `disk_error`, with the path that failed."""
    try:
        yield
    except OSError as exc:
        place = Path(exc.filename) if isinstance(exc.filename, str) else path
        raise disk_failure(exc, place, needed) from exc


def free_bytes(path: Path) -> int:
    """Returns the bytes that an unprivileged process may still write on the disk of `path`."""
    return shutil.disk_usage(path).free
