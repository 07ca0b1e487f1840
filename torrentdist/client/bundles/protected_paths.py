"""Says whether a download may go to DEST. Refuses paths that `--force` must not replace, because
the user would lose much more than an old download.

Always: symlinks are followed first, so that every name of a protected path is protected.
Never: change anything on disk.
"""

import os
import pwd
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from torrentdist.bundle.metafile import Metafile
from torrentdist.client.bundles.destination import check
from torrentdist.model.errors import TorrentdistError


def is_there(meta: Metafile, dest: Path, *, force: bool) -> bool:
    """Returns True if DEST holds the bundle already, and False if the bundle may be put there.
    Raises an error otherwise. With `force`, anything but a protected path may be replaced."""
    try:
        if check(meta, dest):
            return True
    except TorrentdistError as error:
        if error.code != "dest_exists" or not force:
            raise
    if force and os.path.lexists(dest):
        refuse_protected(dest)
    return False


def refuse_protected(dest: Path) -> None:
    """Raises `protected_path` if `dest` is or contains the current directory, a home directory or a
    mount point.
    """
    what = protection(os.path.realpath(dest), _current(), _homes(), _mount_points())
    if what is not None:
        raise TorrentdistError("protected_path", path=str(dest), what=what)


def protection(path: str, current: str | None, homes: Iterable[str], mounts: Iterable[str]) -> str | None:
    """Returns why `path` is protected, or None if it may be replaced. Pure: all paths are resolved
    already."""
    if current is not None and _holds(path, current):
        return "the current directory" if path == current else "a parent of the current directory"
    for home in homes:
        if _holds(path, home):
            return "a home directory" if path == home else f"a parent of the home directory {home}"
    for mount in mounts:
        if _holds(path, mount):
            return "a mount point" if path == mount else f"a parent of the mount point {mount}"
    return None


def _holds(path: str, inner: str) -> bool:
    return inner == path or inner.startswith(path.rstrip("/") + "/")


def _current() -> str | None:
    try:
        return os.path.realpath(os.getcwd())
    except FileNotFoundError:
        return None


def _homes() -> list[str]:
    homes = {entry.pw_dir for entry in pwd.getpwall()} | {os.environ.get("HOME", "")}
    return sorted(os.path.realpath(home) for home in homes if home.startswith("/"))


def _mount_points() -> list[str]:
    """Returns the kernel's list of mount points. os.path.ismount misses bind mounts within one file
    system."""
    with suppress(OSError):
        return mount_points_in(Path("/proc/self/mountinfo").read_bytes())
    return []


def mount_points_in(table: bytes) -> list[str]:
    """Returns the mount points of a table of mounts. In names, the kernel escapes spaces, tabs and
    newlines, and no other space or line end."""
    return [os.fsdecode(_unescaped(line.split(b" ")[4])) for line in table.split(b"\n") if line]


def _unescaped(field: bytes) -> bytes:
    for code in (b" ", b"\t", b"\n", b"\\"):
        field = field.replace(b"\\%03o" % ord(code), code)
    return field
