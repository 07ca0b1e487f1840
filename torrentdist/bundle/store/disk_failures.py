"""What the operating system says about the store's disk, in the words of the error table."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torrentdist.bundle.files.durability import disk_failure


@contextmanager
def disk_failures(path: Path, *, needed: int = 0) -> Iterator[None]:
    """An OSError of the block becomes `disk_full` (with the bytes `needed`) or `disk_error`, naming its own path."""
    try:
        yield
    except OSError as exc:
        place = Path(exc.filename) if isinstance(exc.filename, str) else path
        raise disk_failure(exc, place, needed) from exc


def free_bytes(path: Path) -> int:
    """What an ordinary process may still write on the disk of `path`."""
    return shutil.disk_usage(path).free
