"""The files of a run that its supervisor and its guardian share, and how a small file is replaced.

Always: a reader of a file that was replaced sees the old content or the new one, except on a full
disk.
Never: import anything but the standard library.
"""

import contextlib
import errno
import os

SPEC, STATUS, LOCK, GUARDIAN_LOG = "spec.json", "status.json", "lock", "guardian.log"
RUN_MARK = "TORRENTDIST_RUN"
"""Environment variable of every process of a run; its value is the run's id."""


def write_whole(path: str, data: bytes) -> None:
    """Replaces the content of a file that only this process writes. The new content need not
    survive a crash of the host; what was half written then goes with the next call.

    On a full disk, the old file is overwritten in place, which takes no room. A reader may then see
    half of it and has to read again. Raises OSError, and changes nothing, if the new content does
    not fit into the blocks of the old one."""
    temporary = begun(path)
    try:
        with open(temporary, "wb") as file:
            file.write(data)
        os.rename(temporary, path)
    except OSError as exc:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if exc.errno not in (errno.ENOSPC, errno.EDQUOT) or not os.path.exists(path):
            raise
        _overwrite(path, data)


def begun(path: str) -> str:
    """Returns where the new content of a file is written first."""
    return f"{path}.tmp"


def _overwrite(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.posix_fallocate(fd, 0, max(1, len(data)))  # Fails before anything is overwritten.
        os.pwrite(fd, data.ljust(os.fstat(fd).st_size), 0)
    finally:
        os.close(fd)
