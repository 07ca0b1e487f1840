"""Decides which of the host's files a run sees, and gives the run's directories to its user.

Always: a directory is shown or given away only if the caller owns it. The guardian looks at it with
the caller's rights, so a caller cannot use its runs to reach files that are closed to it.
Never: import anything but the standard library.
"""

import contextlib
import fcntl
import os
import pwd
import stat
import sys

from torrentdist.launcher import bare_program, privileges
from torrentdist.launcher.job_users import is_listed, name_of
from torrentdist.launcher.privileges import User
from torrentdist.launcher.run.namespaces import FilesView
from torrentdist.launcher.run.run_spec import NotAllowed, RunSpec

HANDED_OVER_MODE = 0o770
FREE_FD = 16
"""The lowest descriptor that is free. An init starts with descriptors below this number."""


def hand_over(spec: RunSpec, caller: User) -> None:
    """Gives the directories that the run may write to its user. Their group is the caller's, so
    that the caller can still tidy up in them."""
    for path in spec.writable:
        privileges.act_as(caller)
        if os.lstat(path).st_uid == spec.uid:
            continue
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(fd).st_uid != caller.uid:
                raise NotAllowed(f"{path} is not the caller's to hand over")
            os.fchmod(fd, HANDED_OVER_MODE)
            privileges.act_as_root()
            os.fchown(fd, spec.uid, caller.gid)
        finally:
            os.close(fd)
    privileges.act_as_root()


def files_of(spec: RunSpec, caller: User) -> FilesView:
    """Returns which files of the host the run sees. This process has its own rights again when it
    returns."""
    privileges.act_as(caller)
    for path in (*spec.read_only, *spec.writable):
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (caller.uid, spec.uid):
            raise NotAllowed(f"{path} is not the caller's to show")
    privileges.act_as_root()
    there = [path for path in spec.hidden if os.path.lexists(path)]
    hidden = [path if os.geteuid() else _entrance(path, spec.user) for path in there if os.path.isdir(path)]
    closed = [path for path in there if not os.path.isdir(path) and not _is_below(path, hidden)]
    needed = [path for path in _program_directories() if _is_below(path, hidden)]
    hidden = [*_java_registry(spec.user), *hidden]
    return FilesView(hidden, closed, [*needed, *spec.read_only], spec.writable, _list_of_users(spec))


def _entrance(path: str, user: User) -> str:
    """Returns the highest directory on the way to `path` that is closed to the user, or `path`.

    What lies below a closed directory is out of the user's reach. Behind an empty directory in its
    place, the parts that the run needs can be shown.
    """
    privileges.act_as(user)
    try:
        parts = path.split("/")
        above = ("/".join(parts[:length]) for length in range(2, len(parts)))
        return next((folder for folder in above if not os.access(folder, os.X_OK, effective_ids=True)), path)
    finally:
        privileges.act_as_root()


def _list_of_users(spec: RunSpec) -> int:
    """Returns a descriptor of the host's list of users with the run's user added; -1 if it is
    listed. Some programs, Hadoop among them, do not start without a name for their user."""
    if os.geteuid() != 0 or is_listed(spec.uid):
        return -1
    with open("/etc/passwd", "rb") as file:
        listed = file.read()
    made = os.memfd_create("users")
    home = "/" if set(spec.cwd) & set(":\n") else spec.cwd
    os.write(made, listed + f"{name_of(spec.uid)}:x:{spec.uid}:{spec.gid}::{home}:/bin/sh\n".encode())
    os.lseek(made, 0, os.SEEK_SET)
    return fcntl.fcntl(made, fcntl.F_DUPFD, FREE_FD)


def _is_below(path: str, folders: list[str]) -> bool:
    return any(f"{path}/".startswith(f"{folder}/") for folder in folders)


def _program_directories() -> list[str]:
    """Returns the directories that the run's init is loaded from."""
    environment = os.path.dirname(os.path.dirname(sys.executable))
    return [sys.base_prefix, environment, f"{bare_program.ROOT}/torrentdist"]


def _java_registry(user: User) -> list[str]:
    """Returns the directory in which the user's Java processes publish a file named after their
    pid, made if need be; empty if there is none that only this user can replace.

    Each run starts counting its pids anew, so two runs that share the directory would want the same
    file, and the second prints a warning on its stdout.
    """
    privileges.act_as(user)
    try:
        path = f"/tmp/hsperfdata_{pwd.getpwuid(user.uid).pw_name}"
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o755)
        found = os.lstat(path)
    except (KeyError, OSError):
        return []
    finally:
        privileges.act_as_root()
    return [path] if stat.S_ISDIR(found.st_mode) and found.st_uid == user.uid else []
