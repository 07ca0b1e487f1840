"""The lock of a data directory, and the identity of its store.

Always: one process at a time holds the lock, and the kernel releases the lock of a dead one. The id
in store.json is created once, so a replaced or emptied disk is a different store.
Never: trust the pid in the lock file, which is for display.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from torrentdist.bundle.files.durability import disk_failures, write_durably
from torrentdist.bundle.store.json_files import Saved, decode_saved, encode_saved
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import StoreId, new_random_id, store_id

LOCK_WAIT_SECS = 2.0
"""A killed process may take this long to disappear. Its successor waits for it."""

_POLL_SECS = 0.02


class _Identity(Saved, frozen=True, kw_only=True):
    id: StoreId


class StoreLock:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def take(cls, data_dir: Path, *, wait: float = LOCK_WAIT_SECS) -> StoreLock:
        """Takes the lock. Raises `store_locked` if another process still has it after `wait`
        seconds."""
        path = data_dir / "lock"
        deadline = time.monotonic() + wait
        with disk_failures(path):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            while not _try_lock(fd):
                if time.monotonic() >= deadline:
                    raise TorrentdistError("store_locked", path=str(data_dir), pid=_written_pid(fd))
                time.sleep(_POLL_SECS)
            with disk_failures(path):
                # Write before truncating: overwriting an old lock needs no room on a full disk.
                os.ftruncate(fd, os.pwrite(fd, f"{os.getpid()}\n".encode(), 0))
        except BaseException:
            os.close(fd)
            raise
        return cls(fd)

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _written_pid(fd: int) -> str:
    return os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"


def identify(data_dir: Path) -> StoreId:
    """Returns the id of the store in `data_dir`, and creates one if there is none."""
    path = data_dir / "store.json"
    with disk_failures(path):
        if path.exists():
            return store_id(decode_saved(path, path.read_bytes(), _Identity).id)
        identity = _Identity(id=store_id(new_random_id("store")))
        write_durably(path, encode_saved(identity))
    return identity.id
