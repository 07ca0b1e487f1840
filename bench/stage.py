"""Runs the processes of a measurement, commands and references, and records their time and memory.

Always: the clock runs from before the start of a process to its end. Earlier writes are synced
first, so that no run pays for the bytes of another. Never: leave a process behind.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torrentdist.bundle.files.durability import sync_filesystem
from torrentdist.dev.dev_cluster import DevCluster, DevSpec

SAMPLE_SECS = 0.02
LONGEST_SECS = 900.0
BARE = Path(__file__).with_name("bare_libtorrent.py")
"""The program of every libtorrent reference."""
ON_LOOPBACK = "127.0.0.1:0"
MB = 1_000_000


@dataclass(frozen=True)
class Memory:
    """Memory in MB. Anonymous memory is the process's own; the rest are pages of files, which the
    kernel can take back."""

    rss: float
    anon: float
    peak_rss: float


def memory_of(pid: int) -> Memory | None:
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in text.splitlines())
    kib = {key: int(fields[key].split()[0]) for key in ("VmRSS", "RssAnon", "VmHWM") if key in fields}
    if len(kib) < 3:  # the process is a zombie
        return None
    return Memory(*(kib[key] * 1024 / MB for key in ("VmRSS", "RssAnon", "VmHWM")))


@dataclass
class Ended:
    """A process that ended with exit code 0."""

    seconds: float
    stdout: bytes
    memory: list[Memory] = field(default_factory=list)
    """Samples over the life of the process."""

    @property
    def answer(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.stdout)
        return answer


def run(command: Sequence[str], cwd: Path) -> Ended:
    """Runs a command to its end and samples its memory."""
    sync_filesystem(cwd)
    began = time.perf_counter()
    process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=_environment(cwd))
    samples: list[Memory] = []
    watcher = threading.Thread(target=_watch, args=(process, samples))
    watcher.start()
    try:
        out, err = process.communicate(timeout=LONGEST_SECS)
        seconds = time.perf_counter() - began
    finally:
        process.kill()
        process.wait()
        watcher.join()
    if process.returncode:
        raise RuntimeError(f"{command} ended with {process.returncode}: {err.decode()}")
    return Ended(seconds, out, samples)


def _environment(cwd: Path) -> dict[str, str]:
    ours = {key: value for key, value in os.environ.items() if not key.startswith("TORRENTDIST_")}
    return {**ours, "XDG_CACHE_HOME": str(cwd / "cache"), "XDG_CONFIG_HOME": str(cwd / "config")}


def _watch(process: subprocess.Popen[bytes], samples: list[Memory]) -> None:
    while process.returncode is None and (sample := memory_of(process.pid)) is not None:
        samples.append(sample)
        time.sleep(SAMPLE_SECS)


def torrentdist(cluster: DevCluster, *arguments: str) -> Ended:
    """Runs a torrentdist command as a user's shell would."""
    config = str(cluster.dir / "client.toml")
    return run(
        [sys.executable, "-m", "torrentdist_cli", *arguments, "--config", config, "-o", "json"], cluster.dir.parent
    )


@contextmanager
def cluster_of(directory: Path, **spec: Any) -> Iterator[DevCluster]:
    cluster = DevCluster(DevSpec(dir=directory, **spec))
    cluster.up()
    try:
        yield cluster
    finally:
        cluster.down()


@contextmanager
def bare_seeder(metafile: Path, home: Path) -> Iterator[int]:
    """Seeds `home` with bare libtorrent, and yields its port."""
    command = [sys.executable, str(BARE), "seed", "loopback", str(metafile), str(home), ON_LOOPBACK]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


def bare_fetch(metafile: Path, home: Path, port: int) -> Ended:
    command = [sys.executable, str(BARE), "fetch", "loopback", str(metafile), str(home), ON_LOOPBACK]
    return run([*command, f"127.0.0.1:{port}"], home.parent)
