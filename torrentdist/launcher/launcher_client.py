"""What a daemon asks the launcher of its host: to start a guardian, how runs are isolated here, and
to remove what another user's run has left.

Always: an answer comes within a deadline, or an error that says whether the launcher may still act
on the request. Without a launcher, the same work is done in this process, with its own privileges.
It blocks: call it in threads.
"""

import array
import contextlib
import json
import os
import select
import shutil
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from torrentdist.launcher.guardian_start import start_guardian, start_removal, why_no_namespaces
from torrentdist.launcher.job_users import user_of
from torrentdist.launcher.privileges import own_user
from torrentdist.launcher.socket_path import short_address

ANSWER_SECS = 5.0
REMOVAL_SECS = 60.0
MOST_BYTES = 64 * 1024


class LauncherError(OSError):
    """The launcher did nothing, and will do nothing."""


class NoLauncherAnswer(LauncherError):
    """The launcher has the request, and may still act on it."""


@dataclass(frozen=True)
class HostIsolation:
    """How runs of this host are isolated."""

    namespaces: bool
    why_not: str = ""
    """Why runs get no namespaces; empty if they do."""
    users: str = ""
    """Users as which runs may run, besides the daemon's own; empty: none."""


class Starter(Protocol):
    def isolation(self) -> HostIsolation:
        """Returns how runs are isolated here."""

    def start(self, home: str, run: str, told: int) -> tuple[int, int]:
        """Starts a guardian and returns its pid and birth. See `start_guardian`."""

    def remove(self, path: str, uid: int) -> None:
        """Removes a directory that belongs to a user of jobs, as far as that is possible."""


class OwnStarter:
    """Starts guardians from this process, on a host without a launcher.

    `users`: those that runs may have, which only a process of root can give them.
    """

    def __init__(self, users: str = "") -> None:
        self._users = users if os.geteuid() == 0 else ""
        self._isolation: HostIsolation | None = None

    def isolation(self) -> HostIsolation:
        if self._isolation is None:
            why = why_no_namespaces()
            self._isolation = HostIsolation(not why, why, self._users)
        return self._isolation

    def start(self, home: str, run: str, told: int) -> tuple[int, int]:
        namespaces = self.isolation().namespaces
        return start_guardian(home, run, told, caller=own_user(), namespaces=namespaces, users=self._users)

    def remove(self, path: str, uid: int) -> None:
        # With the rights of that user: this process may be root, and others may be at work there.
        with _removing(path) as told:
            child = start_removal(path, told, caller=own_user(), user=user_of(uid))
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, os.WNOHANG)


class LauncherClient:
    def __init__(self, path: str, answer_secs: float = ANSWER_SECS) -> None:
        self._path = path
        self._answer_secs = answer_secs

    def isolation(self) -> HostIsolation:
        answer = self._ask({"do": "tell"})
        return HostIsolation(bool(answer["namespaces"]), str(answer["why_not"]), str(answer.get("users", "")))

    def start(self, home: str, run: str, told: int) -> tuple[int, int]:
        answer = self._ask({"do": "start", "home": home, "run": run}, told)
        return int(answer["pid"]), int(answer["birth"])

    def remove(self, path: str, uid: int) -> None:
        with _removing(path) as told:
            self._ask({"do": "empty", "path": path, "uid": uid}, told)

    def _ask(self, request: dict[str, str | int], *fds: int) -> dict[str, Any]:
        return self._send(json.dumps(request).encode(), *fds)

    def _send(self, request: bytes, *fds: int) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.settimeout(self._answer_secs)
            try:
                with short_address(self._path) as address:
                    sock.connect(address)
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
                sock.sendmsg([request], rights)
            except OSError as exc:
                raise LauncherError(f"the launcher at {self._path} does not answer: {exc}") from exc
            try:
                answer = json.loads(sock.recv(MOST_BYTES) or b"null")
            except (OSError, ValueError) as exc:
                raise NoLauncherAnswer(f"the launcher at {self._path} does not answer: {exc}") from exc
        if not isinstance(answer, dict):
            raise NoLauncherAnswer(f"the launcher at {self._path} ended before it answered")
        if "error" in answer:
            raise LauncherError(f"the launcher refused: {answer['error']}")
        return answer


@contextlib.contextmanager
def _removing(path: str) -> Iterator[int]:
    """Gives a pipe to the process that is started meanwhile to empty a directory, waits until that
    process has ended, and removes the directory. What cannot be removed stays."""
    done, told = os.pipe2(os.O_CLOEXEC)
    try:
        try:
            yield told
        finally:
            os.close(told)
        ended = select.poll()  # `select` refuses a descriptor of 1024 or more
        ended.register(done, select.POLLIN)
        ended.poll(REMOVAL_SECS * 1000)  # the pipe ends when the removing process ends
    finally:
        os.close(done)
    with contextlib.suppress(RecursionError):  # a deep tree that is not empty yet
        shutil.rmtree(path, ignore_errors=True)


def starter(path: str, users: str = "") -> Starter:
    """Returns how guardians are started here. `path` is the launcher's socket; empty: there is no
    launcher, and `users` are those that runs may have."""
    return LauncherClient(path) if path else OwnStarter(users)
