"""An oracle outside the system: each worker writes into a file of its own when it runs, and keeps
the file locked while it does, and another one from before its first line on.

Always: an overlap is seen whatever the system believes, because the second worker finds a lock
taken. Times come from the clock that all processes of the host share. A worker in a PID namespace
does not know its pid on the host, so the kernel's table of locks tells it.
"""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORKER = r"""#!{python} -IS
import fcntl, json, os, signal, sys, time

name = "%s.%s" % (os.environ["TORRENTDIST_JOB"], os.environ["TORRENTDIST_WORKER"])
path = os.path.join(os.environ["ORACLE"], name)
lock = os.open(path + ".lock", os.O_RDWR | os.O_CREAT)


def say(event, **more):
    line = dict(event=event, at=time.clock_gettime(time.CLOCK_BOOTTIME), run=os.environ["TORRENTDIST_RUN"], **more)
    with open(path, "a") as file:
        file.write(json.dumps(line) + "\n")


try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    say("overlap")
    sys.exit(99)
say("start", env={{k: v for k, v in os.environ.items() if k.startswith("TORRENTDIST")}}, cwd=os.getcwd(), argv=sys.argv)
at_work = os.open(path, os.O_RDONLY)
fcntl.flock(at_work, fcntl.LOCK_EX)  # The start can be read by now.
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
mode = sys.argv[1] if len(sys.argv) > 1 else "run"
if mode == "exit":
    say("stop")
    sys.exit(int(sys.argv[2]))
print("hello from", name, flush=True)
while not asked or mode == "stubborn":
    say("beat")
    time.sleep(float(os.environ.get("BEAT_SECS", 0.02)))
say("stop")
"""

MAIN = """import os, sys

import neighbour

os.execv(open(neighbour.PROGRAM_FILE).read(), ["work.py", *sys.argv[1:]])
"""
"""Runs the worker like a program that trusts its directory: it imports a module beside it and opens
a relative path."""


WITHOUT_EXEC = """#!/bin/sh
"$TORRENTDIST_BUNDLE/work.py"
exit $?
"""
"""Runs the program as a child of the worker."""
ELSEWHERE = """#!/bin/sh
setsid "$TORRENTDIST_BUNDLE/work.py" stubborn &
wait
"""
"""Runs the program in a session of its own, where it ignores SIGTERM."""
SCRIPTS = {"run.sh": WITHOUT_EXEC, "setsid.sh": ELSEWHERE}


@dataclass(frozen=True)
class Stint:
    """One run of a worker, from start to end."""

    run: str
    start: float
    last: float
    """When the worker was last seen at work."""
    stopped: bool
    """Whether the worker ended by itself."""
    said: dict[str, Any]

    @property
    def fencing(self) -> int:
        return int(self.said["env"]["TORRENTDIST_FENCING"])


def make_worker_bundle(directory: Path) -> Path:
    directory.mkdir(parents=True)
    for name, text in {"work.py": WORKER.format(python=sys.executable), **SCRIPTS}.items():
        (directory / name).write_text(text)
        (directory / name).chmod(0o755)
    (directory / "main.py").write_text(MAIN)
    (directory / "neighbour.py").write_text('PROGRAM_FILE = "data/program"\n')
    (directory / "data").mkdir()
    (directory / "data" / "program").write_text("./work.py")
    return directory


class Oracle:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()

    def lines(self, job: str, worker: int) -> list[dict[str, Any]]:
        try:
            text = (self.directory / f"{job}.{worker}").read_text()
        except FileNotFoundError:
            return []
        lines = []
        for line in text.splitlines():
            with contextlib.suppress(ValueError):  # the last line may be half written
                lines.append(json.loads(line))
        return lines

    def holder(self, job: str, worker: int) -> int:
        """Returns the pid on this host of the worker that is at work, and has said so; 0 if there
        is none."""
        with contextlib.suppress(FileNotFoundError):
            inode = (self.directory / f"{job}.{worker}").stat().st_ino
            for line in Path("/proc/locks").read_text().splitlines():
                fields = line.split()
                if fields[1] == "FLOCK" and fields[-3].endswith(f":{inode}"):
                    return int(fields[-4])
        return 0

    def stints(self, job: str, worker: int) -> list[Stint]:
        lines = self.lines(job, worker)
        assert not [line for line in lines if line["event"] == "overlap"], f"two of {job}.{worker} at once"
        found = []
        for start in (line for line in lines if line["event"] == "start"):
            own = [line for line in lines if line["run"] == start["run"] and line["at"] >= start["at"]]
            stopped = any(line["event"] == "stop" for line in own)
            found.append(Stint(start["run"], start["at"], max(line["at"] for line in own), stopped, start))
        return found
