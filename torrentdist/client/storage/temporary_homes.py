"""Temporary directories for as many bytes as a bundle has.

Always: a directory that a killed process has left is removed by the next one of its user that makes
such a directory in the same place. A running process keeps its directory.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LARGE_PLACE = "/var/tmp"
LEFT_SECS = 60.0
"""Age from which a directory without a lock was left by a process that was killed."""


@contextmanager
def temporary_home(prefix: str, size: int) -> Iterator[Path]:
    """Creates a directory for `size` bytes, whose name begins with `prefix`, and removes it at the
    end."""
    place = _place_for(size)
    _remove_left(place, prefix)
    home = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
    lock = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)
        os.close(lock)


def _place_for(size: int) -> Path:
    """Returns a directory for as many bytes: what the user names in TMPDIR, else rather /var/tmp,
    since /tmp may be memory."""
    usual = tempfile.gettempdir()
    if size and not os.environ.get("TMPDIR") and os.access(LARGE_PLACE, os.W_OK | os.X_OK):
        roomy = shutil.disk_usage(LARGE_PLACE).free > size or shutil.disk_usage(usual).free <= size
        return Path(LARGE_PLACE if roomy else usual)
    return Path(usual)


def _remove_left(place: Path, prefix: str) -> None:
    """Removes what killed processes of this user have left. A running one keeps its directory
    locked, soon after it made it."""
    with os.scandir(place) as listing:
        found = [entry for entry in listing if entry.name.startswith(prefix)]
    for entry in found:
        with contextlib.suppress(OSError):
            info = entry.stat(follow_symlinks=False)
            if info.st_uid != os.geteuid() or time.time() - info.st_mtime < LEFT_SECS:
                continue
            fd = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(entry.path, ignore_errors=True)
            finally:
                os.close(fd)
