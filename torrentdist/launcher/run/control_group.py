"""A control group (cgroup v2) for one run: a second way to end all of it at once, beside its
namespace.

Always: groups are made only below a group that was delegated to the launcher. Runs work without one
too. Never: import anything but the standard library.
"""

import contextlib
import os

PREFIX = "run-"


def own_directory() -> str:
    """Returns the directory of this process's own group; empty where there is no cgroup v2."""
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        paths = [line.rstrip("\n").partition("::")[2] for line in file if line.startswith("0::")]
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        fields = [line.split() for line in file if " - cgroup2 " in line]
    if not paths or not fields:
        return ""
    return fields[0][4] + (paths[0] if paths[0] != "/" else "")


def remove_empty(parent: str) -> None:
    """Removes the groups of runs that are over. The kernel refuses to remove a group that has
    processes."""
    for name in os.listdir(parent):
        if name.startswith(PREFIX):
            with contextlib.suppress(OSError):
                os.rmdir(f"{parent}/{name}")


class ControlGroup:
    """The group of one run. It takes privileges to make it, and none to use it afterwards."""

    def __init__(self, parent: str, run: str) -> None:
        """Makes the group. Where that is impossible, its methods do nothing."""
        self._members = self._kill = -1
        if not parent or "/" in run:
            return
        directory = f"{parent}/{PREFIX}{run}"
        with contextlib.suppress(OSError):
            os.mkdir(directory)
            self._kill = os.open(f"{directory}/cgroup.kill", os.O_WRONLY | os.O_CLOEXEC)
            self._members = os.open(f"{directory}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)

    def enter(self) -> None:
        """Moves this process into the group, and with it everything that it starts from now on."""
        if self._members >= 0:
            with contextlib.suppress(OSError):
                os.write(self._members, b"0")

    def kill(self) -> None:
        """Kills every process in the group."""
        if self._kill >= 0:
            with contextlib.suppress(OSError):
                os.write(self._kill, b"1")
