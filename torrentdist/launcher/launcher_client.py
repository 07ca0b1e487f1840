"""What a daemon asks the launcher of its host: to start a guardian, and whether runs get namespaces
here.

Always: an answer comes within a deadline, or an error that says whether the launcher may still act
on the request. Without a launcher, the same work is done in this process, with its own privileges.
It blocks: call it in threads.
"""

import array
import json
import socket
from dataclasses import dataclass
from typing import Any, Protocol

from torrentdist.launcher.guardian_start import start_guardian, why_no_namespaces
from torrentdist.launcher.privileges import own_user
from torrentdist.launcher.socket_path import short_address

ANSWER_SECS = 5.0
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


class Starter(Protocol):
    def isolation(self) -> HostIsolation:
        """Returns how runs are isolated here."""

    def start(self, home: str, run: str, told: int) -> tuple[int, int]:
        """Starts a guardian and returns its pid and birth. See `start_guardian`."""


class OwnStarter:
    """Starts guardians from this process, on a host without a launcher."""

    def __init__(self) -> None:
        self._isolation: HostIsolation | None = None

    def isolation(self) -> HostIsolation:
        if self._isolation is None:
            why = why_no_namespaces()
            self._isolation = HostIsolation(not why, why)
        return self._isolation

    def start(self, home: str, run: str, told: int) -> tuple[int, int]:
        return start_guardian(home, run, told, caller=own_user(), namespaces=self.isolation().namespaces)


class LauncherClient:
    def __init__(self, path: str, answer_secs: float = ANSWER_SECS) -> None:
        self._path = path
        self._answer_secs = answer_secs

    def isolation(self) -> HostIsolation:
        answer = self._ask({"do": "tell"})
        return HostIsolation(bool(answer["namespaces"]), str(answer["why_not"]))

    def start(self, home: str, run: str, told: int) -> tuple[int, int]:
        answer = self._ask({"do": "start", "home": home, "run": run}, told)
        return int(answer["pid"]), int(answer["birth"])

    def _ask(self, request: dict[str, str], *fds: int) -> dict[str, Any]:
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


def starter(path: str) -> Starter:
    """Returns how guardians are started here. `path` is the launcher's socket; empty: there is no
    launcher."""
    return LauncherClient(path) if path else OwnStarter()
