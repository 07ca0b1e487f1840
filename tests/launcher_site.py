"""A real launcher, and a daemon's directory with the orders of one run, for tests.

Always: a run that the test starts is gone when the site is closed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_fixtures import until

from torrentdist.launcher import bare_program
from torrentdist.launcher.guardian_start import why_no_namespaces
from torrentdist.launcher.launcher_client import LauncherClient
from torrentdist.launcher.privileges import User, own_user
from torrentdist.launcher.process_tree import birth_of
from torrentdist.launcher.run.run_files import RUN_MARK, SPEC, write_whole
from torrentdist.launcher.run.run_lease import clock
from torrentdist.supervisor.process import guardian_processes

NOBODY = User(65534, 65534)
RUN = f"run-{os.getpid()}"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a launcher for another user")
in_namespaces = pytest.mark.skipif(bool(why_no_namespaces()), reason="this host allows no namespaces")


class Site:
    """A launcher, and a daemon's directory with the orders of one run."""

    def __init__(self, directory: Path, caller: User) -> None:
        self.caller = caller
        self.home, self.socket = directory / "home", directory / ("deep" * 30) / "launcher.sock"
        for folder in (self.home, self.home / "objects", self.socket.parent):
            folder.mkdir()
            os.chown(folder, caller.uid, caller.gid)
        (self.home / "objects" / "file").write_text("published")
        os.chown(self.home / "objects" / "file", caller.uid, caller.gid)
        self.launchers: list[subprocess.Popen[bytes]] = []

    def launch(self, *more: str, group: Path | None = None) -> subprocess.Popen[bytes]:
        """`group`: the control group that it is in."""
        words = ["--socket", str(self.socket), "--user", str(self.caller.uid), *more]
        command = bare_program.command("torrentdist.launcher.launcher_server", *words)
        if group is not None:
            command = ["sh", "-c", f'echo 0 > {group}/cgroup.procs && exec "$@"', "sh", *command]
        process = subprocess.Popen(command, stderr=subprocess.PIPE)
        self.launchers.append(process)
        assert process.stderr is not None
        process.stderr.readline()  # it is ready, or says why not
        return process

    def lease(self, seconds: float) -> None:
        """Gives the run a lease of `seconds` from now."""
        write_whole(f"{self.home}/lease.json", json.dumps({"runs": {RUN: [clock() + seconds] * 2}}).encode())

    def orders(self, script: str, lease_secs: float = 60.0, **more: Any) -> None:
        self.lease(lease_secs)
        spec = {
            "run": RUN, "lease_file": f"{self.home}/lease.json", "argv": ["sh", "-c", script], "cwd": str(self.home),
            "env": {"PATH": os.environ["PATH"], RUN_MARK: RUN}, "read_only": [f"{self.home}/objects"],
            "memory_bytes": 0, "grace": 1.0, "log_bytes": 1000, "log_files": 2, **more,
        }  # fmt: skip
        write_whole(f"{self.home}/{SPEC}", json.dumps(spec).encode())

    def start(self, answer_secs: float = 5.0) -> int:
        """As the caller; returns the guardian's pid."""
        told, write = os.pipe2(os.O_CLOEXEC)
        try:
            client = LauncherClient(str(self.socket), answer_secs)
            return as_user(self.caller, lambda: client.start(str(self.home), RUN, write)[0])
        finally:
            os.close(told)
            os.close(write)

    def status(self) -> Any:
        try:
            return json.loads((self.home / "status.json").read_bytes())
        except FileNotFoundError:
            return {"state": ""}

    def close(self) -> None:
        for process in self.launchers:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
            assert process.stderr is not None
            process.stderr.close()
        if (pid := self.status().get("guardian")) and birth_of(pid) == self.status()["guardian_birth"]:
            os.kill(pid, signal.SIGKILL)
        until(lambda: guardian_processes.sweep(RUN))


def as_user(user: User, act: Callable[[], int]) -> int:
    """In a process of that user."""
    if user == own_user():
        return act()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(*[user.gid] * 3)
            os.setresuid(*[user.uid] * 3)
            os.write(write, str(act()).encode())
        except BaseException as exc:
            os.write(write, f"0 {exc}".encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as answer:
        words = answer.read()
    assert words.isdigit(), words
    return int(words)


@contextlib.contextmanager
def open_directory() -> Iterator[Path]:
    """A new directory that other users can enter."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    try:
        yield made
    finally:
        shutil.rmtree(made)
