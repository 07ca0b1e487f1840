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
from torrentdist.launcher.run.namespaces import FilesView, wrapped

GUARDIAN = "torrentdist.launcher.run.guardian"
REMOVAL = "torrentdist.launcher.removal"
PROBE_SECS = 10.0
NAMESPACES, PLAIN = "namespaces", "plain"


def why_no_namespaces() -> str:
    """Returns why this process cannot start runs in namespaces; empty if it can."""
    command = wrapped(["true"], FilesView(read_only=["/"]), privileged=os.geteuid() == 0)
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_SECS)
    except FileNotFoundError:
        return "bubblewrap (bwrap) is not installed"
    except (OSError, subprocess.TimeoutExpired) as exc:
        return f"bwrap cannot be run: {exc}"
    words = done.stderr.decode(errors="replace").strip()
    return (words or f"bwrap ended with {done.returncode}") if done.returncode else ""


def start_guardian(
    home: str, run: str, told: int, *, caller: User, namespaces: bool, users: str = "", groups: str = ""
) -> tuple[int, int]:
    """Starts a guardian and returns its pid and birth.

    `told` is a pipe that hears when the worker has started; it closes with the guardian at the
    latest. `caller` is the user whose files the guardian works with. `users` are those, besides the
    caller, that the run may have. `groups` is the directory of the runs' control groups; empty:
    they have none.
    """
    how = NAMESPACES if namespaces else PLAIN
    words = (home, run, how, str(caller.uid), str(caller.gid), users, groups)
    pid = _spawn(bare_program.command(GUARDIAN, *words), told)
    return pid, birth_of(pid) or 0


def start_removal(path: str, told: int, *, caller: User, user: User) -> int:
    """Starts a process that empties a directory with the rights of `user`, and returns its pid. The
    caller has to be able to reach the directory. `told` is a pipe that closes with the process."""
    ids = map(str, (*caller, *user))
    return _spawn(bare_program.command(REMOVAL, path, *ids), told)


def _spawn(command: list[str], told: int) -> int:
    return os.posix_spawn(
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
