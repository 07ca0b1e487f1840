"""Empties a directory that belongs to a user of jobs: the daemon cannot, since it is another user.

Always: it works with the rights of that user alone, so that it removes nothing which the user could
not. It follows no link, and no tree is too deep for it.
Never: import anything but the standard library.
"""

import contextlib
import itertools
import os
import secrets
from collections.abc import Iterator

from torrentdist.launcher import privileges
from torrentdist.launcher.privileges import User
from torrentdist.launcher.run.run_view import HANDED_OVER_MODE

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def empty(path: str) -> None:
    """Removes everything below a directory that this process may remove."""
    with contextlib.suppress(OSError):
        os.chmod(path, HANDED_OVER_MODE)
    top, prefix = os.open(path, _FOLDER), f".removed-{secrets.token_hex(8)}-"
    names, stuck = (f"{prefix}{number}" for number in itertools.count()), set[str]()
    try:
        while left := set(os.listdir(top)) - stuck:
            for name in left:
                try:
                    _remove(top, name, names)
                except OSError:
                    stuck.add(name)
    finally:
        os.close(top)


def _remove(top: int, name: str, names: Iterator[str]) -> None:
    """Removes what has this name in the directory `top`. Directories in it are moved to `top` under
    further names, since a path into a deep tree is too long."""
    with contextlib.suppress(IsADirectoryError):
        os.unlink(name, dir_fd=top)
        return
    os.chmod(name, 0o700, dir_fd=top)
    folder = os.open(name, _FOLDER, dir_fd=top)
    try:
        for child in os.listdir(folder):
            with contextlib.suppress(OSError):  # the others can still go
                try:
                    os.unlink(child, dir_fd=folder)
                except IsADirectoryError:
                    os.chmod(child, 0o700, dir_fd=folder)
                    os.rename(child, next(names), src_dir_fd=folder, dst_dir_fd=top)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=top)


def main(arguments: list[str]) -> int:
    path, caller_uid, caller_gid, uid, gid = arguments
    privileges.act_as(User(int(caller_uid), int(caller_gid)))
    folder = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    privileges.act_as_root()
    privileges.become(User(int(uid), int(gid)))
    os.fchdir(folder)
    empty(".")
    return 0
