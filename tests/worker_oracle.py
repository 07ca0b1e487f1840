"""An oracle outside the system: workers that write down when they run, in a file of their own that
is locked meanwhile.

Always holds: an overlap is seen whatever the system believes, because the second one finds the file
locked. Moments are of the clock that every process of the host shares. A worker in a PID namespace
doesn't know its pid on the host: the kernel's table of locks tells.
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
"""Runs the worker as a program does that trusts its directory: it imports a neighbour and opens a
relative path."""


WITHOUT_EXEC = """#!/bin/sh
"$TORRENTDIST_BUNDLE/work.py"
exit $?
"""
"""Its program is a child of the worker."""
ELSEWHERE = """#!/bin/sh
setsid "$TORRENTDIST_BUNDLE/work.py" stubborn &
wait
"""
"""Its program is in a session of its own, and deaf to SIGTERM."""
SCRIPTS = {"run.sh": WITHOUT_EXEC, "setsid.sh": ELSEWHERE}


@dataclass(frozen=True)
class Stint:
    """One life of a worker."""

    run: str
    start: float
    last: float
    """When it was last seen at work."""
    stopped: bool
    """It ended by itself."""
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
            with contextlib.suppress(ValueError):  # the last one may be half written
                lines.append(json.loads(line))
        return lines

    def holder(self, job: str, worker: int) -> int:
        """The pid, on this host, of the process that holds the worker's lock; 0: nobody does."""
        with contextlib.suppress(FileNotFoundError):
            inode = (self.directory / f"{job}.{worker}.lock").stat().st_ino
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
