"""The launcher: a small process, one per host, that may start runs with privileges which the daemon
does not have.

Always: it serves one user, the daemon's; the kernel tells which user is at the other end of its
socket. Its own command line says which other users runs may have, whatever the daemon asks for. It
keeps no state: when it is killed, stopped or restarted, no run changes. Never: read or write a file
for the daemon with its own privileges, or start a program that a request names. It starts guardians
only, which act as the daemon's user, and removals, which act as a user of jobs.
"""

import argparse
import array
import contextlib
import fcntl
import json
import os
import pwd
import signal
import socket
import struct
import sys
from typing import Any

from torrentdist.launcher.guardian_start import start_guardian, start_removal, why_no_namespaces
from torrentdist.launcher.job_users import NOBODY, BadJobUsers, JobUsers, job_users, may_run_jobs, user_of
from torrentdist.launcher.privileges import User, own_user
from torrentdist.launcher.run import control_group
from torrentdist.launcher.socket_path import short_address

REQUEST_SECS = 2.0
BACKLOG = 128
MOST_BYTES = 16 * 1024
MOST_FDS = 4
PEER = struct.Struct("3i")


class RequestRefused(ValueError):
    pass


class Server:
    """`users`: those that runs may have besides the caller."""

    def __init__(self, sock: socket.socket, caller: User, users: JobUsers, why_not: str, groups: str) -> None:
        self._sock = sock
        self._caller = caller
        self._users = users
        self._users_text = str(users) if users.size else ""
        self._why_not = why_not
        self._groups = groups

    def run(self) -> None:
        how = f"without namespaces: {self._why_not}" if self._why_not else "in namespaces"
        print(f"launcher ready for user {self._caller.uid}, runs start {how}", file=sys.stderr, flush=True)
        while True:
            connection, _ = self._sock.accept()
            with connection, contextlib.suppress(OSError):  # the caller has closed its end
                connection.settimeout(REQUEST_SECS)
                connection.send(json.dumps(self._answer(connection)).encode())

    def _answer(self, connection: socket.socket) -> dict[str, Any]:
        uid = PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))[1]
        size = socket.CMSG_SPACE(MOST_FDS * array.array("i").itemsize)
        data, extra, _, _ = connection.recvmsg(MOST_BYTES, size, socket.MSG_CMSG_CLOEXEC)
        fds = _descriptors(extra)
        try:
            if uid != self._caller.uid:
                raise RequestRefused(f"user {uid} may not use this launcher")
            return self._carry_out(json.loads(data), fds)
        except (OSError, ValueError, RecursionError) as exc:
            return {"error": str(exc)}
        finally:
            for fd in fds:
                os.close(fd)

    def _carry_out(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        match request:
            case {"do": "tell"}:
                return {"namespaces": not self._why_not, "why_not": self._why_not, "users": self._users_text}
            case {"do": "empty", "path": str(path), "uid": int(uid)} if len(fds) == 1:
                user = user_of(uid)
                if not path.startswith("/") or "\0" in path or not may_run_jobs(user, self._users, self._caller):
                    raise RequestRefused(f"user {uid} runs no jobs here, or {path!r} is no absolute path")
                start_removal(path, fds[0], caller=self._caller, user=user)
                return {}
            case {"do": "start", "home": str(home), "run": str(run)} if len(fds) == 1:
                if not home.startswith("/") or "\0" in home + run:
                    raise RequestRefused("a guardian needs an absolute path")
                if self._groups:
                    control_group.remove_empty(self._groups)
                pid, birth = start_guardian(
                    home,
                    run,
                    fds[0],
                    caller=self._caller,
                    namespaces=not self._why_not,
                    users=self._users_text,
                    groups=self._groups,
                )
                return {"pid": pid, "birth": birth}
            case _:
                raise RequestRefused("not a request")


def _descriptors(extra: list[tuple[int, int, bytes]]) -> list[int]:
    fds = array.array("i")
    for level, kind, data in extra:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return list(fds)


def bind(path: str, caller: User) -> socket.socket:
    """Returns a socket at `path` that the caller alone may use.

    A lock beside it tells the socket of a launcher that is alive from one that a dead launcher
    left.
    """
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SystemExit(f"torrentdist-launcher: another one serves {path}") from None
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    before = os.umask(0o177)
    try:
        with short_address(path) as address:
            sock.bind(address)
    finally:
        os.umask(before)
    os.chown(path, caller.uid, caller.gid)
    sock.listen(BACKLOG)
    return sock


def _user(name: str) -> User:
    if not name:
        return own_user()
    try:
        entry = pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
    except KeyError:
        raise SystemExit(f"torrentdist-launcher: there is no user {name}") from None
    return User(entry.pw_uid, entry.pw_gid)


def _job_users(text: str, caller: User) -> JobUsers:
    if not text:
        return NOBODY
    try:
        users = job_users(text)
    except BadJobUsers as exc:
        raise SystemExit(f"torrentdist-launcher: --job-users: {exc}") from None
    if users.size == 1 and not may_run_jobs(user_of(users.lowest), users, caller):
        raise SystemExit("torrentdist-launcher: --job-users: neither root nor the supervisor's user or group runs jobs")
    if os.geteuid() != 0:
        raise SystemExit("torrentdist-launcher: --job-users: only root can start workers as other users")
    return users


def arguments_of(words: list[str] | None) -> argparse.Namespace:
    """Parses the words of a command line; None: those of this process."""
    parser = argparse.ArgumentParser("torrentdist-launcher", description="Starts workers for this host's supervisor.")
    parser.add_argument("--socket", required=True, help="where the supervisor reaches it (supervisor.launcher)")
    parser.add_argument("--user", default="", help="the supervisor's user; default: the user of this process")
    parser.add_argument(
        "--job-users",
        default="",
        help="the users that workers may run as: a name, a number, or a range such as 20000-20999; default: none",
    )
    parser.add_argument(
        "--delegated",
        action="store_true",
        help="this process's control group is its own (Delegate=yes): each run gets one below it",
    )
    return parser.parse_args(words)


def main(arguments: list[str] | None = None) -> int:
    given = arguments_of(arguments)
    caller = _user(given.user)
    users = _job_users(given.job_users, caller)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):  # if SIGCHLD is ignored, bubblewrap never ends
        signal.signal(number, signal.SIG_DFL)
    why_not = why_no_namespaces()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # guardians are not waited for
    groups = control_group.own_directory() if given.delegated else ""
    Server(bind(given.socket, caller), caller, users, why_not, groups).run()
    return 0
