"""Translates disk errors into errors of our table."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torrentdist.bundle.files.durability import disk_failure
from torrentdist.model.errors import TorrentdistError


@contextmanager
def disk_failures(path: Path, *, needed: int = 0) -> Iterator[None]:
    """Raises an OSError of the block as `disk_full` or `disk_error`, with the path that failed."""
    try:
        yield
    except OSError as exc:
        raise _of_disk(exc, path, needed) from exc


def as_failure(error: BaseException, path: Path) -> TorrentdistError:
    """Returns the error of the table for any exception: `disk_full` or `disk_error` for one of the
    operating system, `internal` for a bug. `path`: what it is about if it names no file itself."""
    if isinstance(error, TorrentdistError):
        return error
    if isinstance(error, OSError):
        failure = _of_disk(error, path)
    else:
        failure = TorrentdistError("internal", detail=f"{type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


def _of_disk(error: OSError, path: Path, needed: int = 0) -> TorrentdistError:
    return disk_failure(error, Path(error.filename) if isinstance(error.filename, str) else path, needed)


def free_bytes(path: Path) -> int:
    """Returns the bytes that an unprivileged process may still write on the disk of `path`."""
    return shutil.disk_usage(path).free
