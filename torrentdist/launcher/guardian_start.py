"""Starts guardians, and finds out whether they can give their runs namespaces on this host.

Always: a guardian is a process of its own that outlives its starter. It inherits one descriptor and
nothing else. Never: wait for a run, or remember one.
"""

import os
import signal
import subprocess

from torrentdist.launcher import bare_program
from torrentdist.launcher.privileges import User
from torrentdist.launcher.process_tree import birth_of
from torrentdist.launcher.run.namespaces import wrapped

GUARDIAN = "torrentdist.launcher.run.guardian"
PROBE_SECS = 10.0
NAMESPACES, PLAIN = "namespaces", "plain"


def why_no_namespaces() -> str:
    """Returns why this process cannot start runs in namespaces; empty if it can."""
    command = wrapped(["true"], ["/"], privileged=os.geteuid() == 0)
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_SECS)
    except FileNotFoundError:
        return "bubblewrap (bwrap) is not installed"
    except (OSError, subprocess.TimeoutExpired) as exc:
        return f"bwrap cannot be run: {exc}"
    words = done.stderr.decode(errors="replace").strip()
    return (words or f"bwrap ended with {done.returncode}") if done.returncode else ""


def start_guardian(
    home: str, run: str, told: int, *, caller: User, namespaces: bool, groups: str = ""
) -> tuple[int, int]:
    """Starts a guardian and returns its pid and birth.

    `told` is a pipe that hears when the worker has started; it closes with the guardian at the
    latest. `caller` is the user whose files the guardian works with. `groups` is the directory of
    the runs' control groups; empty: they have none.
    """
    how = NAMESPACES if namespaces else PLAIN
    command = bare_program.command(GUARDIAN, home, run, how, str(caller.uid), str(caller.gid), groups)
    pid = os.posix_spawn(
        command[0],
        command,
        {"PATH": os.environ.get("PATH", os.defpath)},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, told, 1),
        ],
        setsid=True,
        setsigdef=[signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGUSR1, signal.SIGPIPE],
        setsigmask=[],
    )
    return pid, birth_of(pid) or 0
