"""A file system for every daemon, in memory, which a fault can fill or wipe.

Always holds: it is mounted in the run's own namespace only, which ends with the run, however that
ends.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOM = "4g"
FILL_TRIES = 50


def mount_all(stores: Sequence[Path]) -> None:
    """To be called inside the namespace."""
    for store in stores:
        store.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "none", str(store)], check=True)


def unmount_all(stores: Sequence[Path]) -> None:
    for store in stores:
        subprocess.run(["umount", "-l", str(store)], check=True)


def fill(store: Path) -> None:
    """The disk is as large as what is on it now. It can't be made smaller than that, and somebody
    may just write."""
    for tried in range(FILL_TRIES):
        disk = os.statvfs(store)
        try:
            used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
            _resize(store, str(max(used, disk.f_frsize)))  # 0 would mean without limit, for ever
        except subprocess.CalledProcessError:
            if tried == FILL_TRIES - 1:
                raise
        else:
            break


def empty(store: Path) -> None:
    _resize(store, ROOM)


def _resize(store: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(store)], check=True)


def wipe(store: Path) -> None:
    for path in store.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
