"""How a run gets PID and mount namespaces of its own: the command line of bubblewrap.

Always: a run sees the host's file system and network, but only its own processes. What is hidden
from it is an empty directory or a file that cannot be opened; what it may read or write below a
hidden directory is shown there again.
Pure: no I/O and no clock. Never: import anything but the standard library.
"""

from collections.abc import Sequence
from typing import NamedTuple

PROGRAM = "bwrap"


class FilesView(NamedTuple):
    """How the files of the host look to a run. A later field stands over an earlier one."""

    hidden: Sequence[str] = ()
    """Directories that are empty to the run."""
    closed: Sequence[str] = ()
    """Files that the run cannot open."""
    read_only: Sequence[str] = ()
    writable: Sequence[str] = ()
    users: int = -1
    """Descriptor of the list of users that the run sees; negative: the host's own."""


def wrapped(argv: Sequence[str], files: FilesView, *, privileged: bool) -> list[str]:
    """Returns the command that runs `argv` as the init of new namespaces.

    Without privileges, this takes a user namespace too."""
    command = [PROGRAM, "--unshare-pid", "--as-pid-1", "--die-with-parent", "--dev-bind", "/", "/", "--proc", "/proc"]
    if not privileged:
        command.insert(1, "--unshare-user")
    for path in files.hidden:
        command += ["--tmpfs", path]
    for path in files.closed:
        command += ["--ro-bind", "/dev/null", path]
    if files.users >= 0:
        command += ["--perms", "0644", "--ro-bind-data", str(files.users), "/etc/passwd"]
    for path in _on_the_way(files):
        command += ["--dir", path]
    for path in files.read_only:
        command += ["--ro-bind", path, path]
    for path in files.writable:
        command += ["--bind", path, path]
    return [*command, "--", *argv]


def _on_the_way(files: FilesView) -> list[str]:
    """Returns the directories to make between a hidden one and those that are shown below it, so
    that every user can pass. Otherwise bubblewrap makes them for root alone."""
    found: dict[str, None] = {}
    for path in (*files.read_only, *files.writable):
        for hidden in files.hidden:
            if path.startswith(f"{hidden}/"):
                parts = path.removeprefix(f"{hidden}/").split("/")
                found.update(dict.fromkeys("/".join([hidden, *parts[:n]]) for n in range(1, len(parts))))
    return list(found)
