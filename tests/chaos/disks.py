"""A file system for every daemon, in memory, which a fault can fill or wipe.

Always holds: it is mounted in a namespace that ends with the run, however that ends; elsewhere nothing is mounted.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

INSIDE = "CHAOS_NAMESPACE"
"""Set in the namespace."""
ROOM = "4g"


def enter(module: str) -> None:
    """Become this program in a mount namespace of its own, where this machine allows that."""
    within = ["unshare", "--mount"]
    if INSIDE in os.environ or not shutil.which("unshare"):
        return
    if subprocess.run([*within, "true"], capture_output=True).returncode == 0:
        os.execvpe("unshare", [*within, sys.executable, "-m", module, *sys.argv[1:]], {**os.environ, INSIDE: "1"})


def mount_all(stores: Sequence[Path]) -> bool:
    """Whether they have file systems to themselves now."""
    if INSIDE not in os.environ:
        return False
    for store in stores:
        store.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "none", str(store)], check=True)
    return True


def unmount_all(stores: Sequence[Path]) -> None:
    for store in stores:
        subprocess.run(["umount", "-l", str(store)], check=True)


def fill(store: Path) -> None:
    """The disk is as large as what is on it now."""
    disk = os.statvfs(store)
    _resize(store, str((disk.f_blocks - disk.f_bfree) * disk.f_frsize))


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
