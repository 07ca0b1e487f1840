"""Empties a directory that belongs to a user of jobs: the daemon cannot, since it is another user.

Always: it works with the rights of that user alone, so that it removes nothing which the user could
not. It follows no link. Never: import anything but the standard library.
"""

import contextlib
import os
import shutil

from torrentdist.launcher import privileges
from torrentdist.launcher.privileges import User
from torrentdist.launcher.run.run_view import HANDED_OVER_MODE


def empty(path: str) -> None:
    """Removes everything below a directory that this process may remove."""
    with contextlib.suppress(OSError):
        os.chmod(path, HANDED_OVER_MODE)
    for folder, below, _ in os.walk(path):
        for name in below:
            child = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                if not os.path.islink(child):
                    os.chmod(child, 0o700)
    with os.scandir(path) as entries:
        found = list(entries)
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                os.unlink(entry.path)


def main(arguments: list[str]) -> int:
    path, caller_uid, caller_gid, uid, gid = arguments
    privileges.act_as(User(int(caller_uid), int(caller_gid)))
    folder = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    privileges.act_as_root()
    privileges.become(User(int(uid), int(gid)))
    os.fchdir(folder)
    empty(".")
    return 0
