"""A file system in memory for every daemon, which a fault can fill or wipe.

Always: it is mounted in the run's own namespace only, and disappears with it, however the run ends.
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
    """Mounts the file systems. Call it inside the namespace."""
    for store in stores:
        store.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "none", str(store)], check=True)


def unmount_all(stores: Sequence[Path]) -> None:
    for store in stores:
        subprocess.run(["umount", "-l", str(store)], check=True)


def fill(store: Path) -> None:
    """Shrinks the disk to what is on it now. It cannot be made smaller than that, and a daemon may
    be writing."""
    for tried in range(FILL_TRIES):
        disk = os.statvfs(store)
        try:
            used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
            _resize(store, str(max(used, disk.f_frsize)))  # 0 would mean without a limit
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
