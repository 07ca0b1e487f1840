"""How a run gets PID and mount namespaces of its own: the command line of bubblewrap.

Always: a run sees the host's file system and network, but only its own processes. It cannot write
to the directories in `read_only`, and finds its own empty ones in place of those in `hidden`.
Pure: no I/O and no clock. Never: import anything but the standard library.
"""

from collections.abc import Sequence

PROGRAM = "bwrap"


def wrapped(
    argv: Sequence[str], read_only: Sequence[str] = (), hidden: Sequence[str] = (), *, privileged: bool
) -> list[str]:
    """Returns the command that runs `argv` as the init of new namespaces.

    Without privileges, this takes a user namespace too."""
    command = [PROGRAM, "--unshare-pid", "--as-pid-1", "--die-with-parent", "--dev-bind", "/", "/", "--proc", "/proc"]
    if not privileged:
        command.insert(1, "--unshare-user")
    for path in read_only:
        command += ["--ro-bind", path, path]
    for path in hidden:
        command += ["--tmpfs", path]
    return [*command, "--", *argv]
