"""Starts `torrentdist` as forks of a process that has already imported it, because importing takes
a daemon most of a second.

Always: each program is a process with arguments, environment, directory, descriptors and a pid of
its own, and runs what `python -m torrentdist_cli` runs. The process that forks has one thread.
Never: used by a test of how Python starts the command.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Any

PROGRAM = "torrentdist_cli"
PARTS = (PROGRAM, "torrentdist.master", "torrentdist.supervisor", "torrentdist.client", "torrentdist.distributor")
LAZY = ("uvicorn.protocols.http.h11_impl", "uvicorn.lifespan.off", "uvicorn.loops.asyncio")
"""Modules that daemons import only while they start."""
LONGEST_REQUEST = 200_000
STARTS_WITHIN_SECS = 300.0
"""The process that forks imports everything first. On a loaded machine that takes over a minute."""


class ForkedProgram:
    """A running program, with the methods of Popen that tests use."""

    def __init__(self, pid: int, args: Sequence[str], outputs: tuple[IO[str], ...]) -> None:
        self.pid, self.args = pid, args
        self.returncode: int | None = None
        self._outputs, self._said = outputs, ("", "")
        try:
            self._handle = os.pidfd_open(pid)
        except ProcessLookupError:
            self._handle = -1

    def poll(self) -> int | None:
        if self.returncode is None and (code := _server().status(self.pid)) is not None:
            self.returncode = code
            self._close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self._handle >= 0:
            ready, _, _ = select.select([self._handle], [], [], timeout)
            if not ready:
                raise subprocess.TimeoutExpired(list(self.args), timeout or 0.0)
        while (code := self.poll()) is None:
            pass
        return code

    def send_signal(self, number: int) -> None:
        if self._handle >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Waits, and returns what the program printed on stdout and stderr."""
        self.wait(timeout)
        if self._outputs:
            for file in self._outputs:
                file.seek(0)
            out, err = self._outputs
            self._said = out.read(), err.read()
            out.close()
            err.close()
            self._outputs = ()
        return self._said

    def _close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def begin(arguments: Sequence[str], env: Mapping[str, str]) -> ForkedProgram:
    """Starts a command whose output `communicate` returns."""
    outputs = tuple(tempfile.TemporaryFile("w+", encoding="utf-8") for _ in range(2))  # noqa: SIM115
    out, err = outputs
    return _server().start(arguments, env, os.getcwd(), (out.fileno(), err.fileno()), outputs=outputs)


def begin_daemon(arguments: Sequence[str], env: Mapping[str, str], cwd: Path, log: IO[bytes]) -> ForkedProgram:
    """Starts a daemon in a session of its own; both outputs go to `log`."""
    return _server().start(arguments, env, str(cwd), (log.fileno(), log.fileno()), session=True)


class _Server:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = ours
        ours.settimeout(STARTS_WITHIN_SECS)
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True,
        )  # fmt: skip
        theirs.close()

    def start(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        descriptors: tuple[int, int],
        *,
        session: bool = False,
        outputs: tuple[IO[str], ...] = (),
    ) -> ForkedProgram:
        request = {"arguments": list(arguments), "env": dict(env), "cwd": cwd, "session": session}
        return ForkedProgram(self._ask(request, descriptors), [PROGRAM, *arguments], outputs)

    def status(self, pid: int) -> int | None:
        """Returns the exit code, negative for a signal; None while the program runs."""
        code: int | None = self._ask({"status": pid})
        return code

    def _ask(self, request: dict[str, Any], descriptors: Sequence[int] = ()) -> Any:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], list(descriptors))
            return json.loads(self._socket.recv(1000))

    def close(self) -> None:
        self._socket.close()
        self._process.kill()
        self._process.wait()


@functools.cache
def _server() -> _Server:
    server = _Server()
    atexit.register(server.close)
    return server


# in the process that forks


def serve(requests: socket.socket) -> dict[str, Any]:
    """Forks on request. Returns in each fork, with the request."""
    ended: dict[int, int] = {}

    def reap(*_: int | FrameType | None) -> None:
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                ended[found[0]] = os.waitstatus_to_exitcode(found[1])

    signal.signal(signal.SIGCHLD, reap)
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, LONGEST_REQUEST, 2)
        if not data:
            os._exit(0)
        request: dict[str, Any] = json.loads(data)
        if "status" in request:
            reap()
            requests.send(json.dumps(ended.get(request["status"])).encode())
            continue
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            requests.close()
            for number, descriptor in enumerate(descriptors, 1):
                os.dup2(descriptor, number)
                os.close(descriptor)
            return request
        for descriptor in descriptors:
            os.close(descriptor)
        requests.send(json.dumps(pid).encode())


def import_all() -> None:
    for part in PARTS:
        package = importlib.import_module(part)
        for module in pkgutil.walk_packages(package.__path__, f"{part}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    for name in LAZY:
        importlib.import_module(name)
    gc.freeze()


def become(request: dict[str, Any]) -> None:
    """Runs the command as Python does for `-m`."""
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    if request["session"]:
        os.setsid()
    sys.path[:1] = [os.getcwd(), *filter(None, request["env"].get("PYTHONPATH", "").split(os.pathsep))]
    sys.argv = [PROGRAM, *request["arguments"]]
    if "HOUSE_COVERAGE" in os.environ:  # `make coverage-map` runs
        sys.path.append(str(Path(__file__).parent.parent))
        importlib.import_module("scripts.breaks.map_recorder").record_process()
    try:
        runpy.run_module(PROGRAM, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        end(ended.code if isinstance(ended.code, int) else int(ended.code is not None))


def end(code: int) -> None:
    """Ends as Python does, but leaves all that was imported to the kernel."""
    threading._shutdown()  # type: ignore[attr-defined]  # joins threads
    atexit._run_exitfuncs()
    gc.collect()  # errors that nobody has looked at are told of
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    import_all()
    become(serve(socket.socket(fileno=int(sys.argv[1]))))
