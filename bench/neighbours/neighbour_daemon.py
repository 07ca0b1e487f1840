"""A daemon of Kraken or Dragonfly beside the process that drives it on a host of the lab.

Always: all processes of a daemon end with the one that drives it. Never: leave a file outside the
lab; a daemon that writes to /tmp has one of its own.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

READY_SECS = 60.0
_OWN_TMP = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /tmp && exec "$@"', "sh")


def built(program: str) -> Path:
    """Returns the folder of a program that scripts/neighbours builds: the newest, if there are
    several. It need not exist."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torrentdist-neighbours"
    found = [
        path for path in cache.glob(f"{program}-*") if path.name.removeprefix(program + "-").strip("v")[:1].isdigit()
    ]
    return max(found, default=cache / f"{program}-not-built")


def with_own_tmp(command: Sequence[str]) -> list[str]:
    return [*_OWN_TMP, *command]


@contextmanager
def daemon(command: Sequence[str], home: Path) -> Iterator[None]:
    """Runs a daemon while the block runs."""
    signal.signal(signal.SIGTERM, _end)
    with (home / "daemon.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(0)


def await_port(host: str, port: int) -> None:
    deadline = time.monotonic() + READY_SECS
    while True:
        try:
            socket.create_connection((host, port), timeout=1.0).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def await_go() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def stay() -> None:
    """Keeps the daemon running until somebody ends this process."""
    signal.pause()
