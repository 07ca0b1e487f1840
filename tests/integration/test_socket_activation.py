"""A supervisor whose port belongs to another process, as with systemd's socket unit; here the test
plays systemd."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from cluster_fixtures import Cluster, until

NAME = "supervisor-activated"
LAUNCH = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", LISTEN_FDNAMES="torrentdist-supervisor.socket")
os.execv(sys.executable, [sys.executable, "-m", "torrentdist_cli", "supervisor", "--config", sys.argv[2]])
"""


@contextmanager
def activated(cluster: Cluster, held: socket.socket) -> Iterator[subprocess.Popen[bytes]]:
    """A supervisor with that socket. It is killed at the end, whatever it does."""
    cluster.dev.write_config(NAME, port=1)  # it must use the socket, and not this port
    command = [sys.executable, "-c", LAUNCH, str(held.fileno()), str(cluster.dev.config_of(NAME))]
    with open(cluster.dir / f"{NAME}.log", "ab") as log:
        daemon = subprocess.Popen(command, pass_fds=[held.fileno()], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield daemon
    finally:
        daemon.kill()
        daemon.wait()


def registered(cluster: Cluster) -> str:
    view = cluster.get(cluster.leader(), "/v1/cluster")
    return next((s["gateway"] for s in view["supervisors"] if s["id"] == NAME), "") if view else ""


@pytest.fixture
def held() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as sock:
        yield sock


def test_the_port_is_never_free_and_who_asks_is_answered(cluster: Cluster, held: socket.socket, tmp_path: Path) -> None:
    """If this failed, while a supervisor restarts, another user of the host could serve executors,
    or executors would be refused."""
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "data").write_bytes(data := os.urandom(300_000))
    cluster.upload(tmp_path / "env", "activated-1")
    port = held.getsockname()[1]

    def ask() -> httpx.Response:
        return httpx.get(f"http://127.0.0.1:{port}/bundles/activated-1/files/data", trust_env=False, timeout=60.0)

    with ThreadPoolExecutor(2) as pool:
        early: Future[httpx.Response] = pool.submit(ask)
        with activated(cluster, held):
            assert data == early.result().content  # requested before any supervisor ran
        with pytest.raises(OSError, match="in use"), socket.create_server(("127.0.0.1", port)):
            pass
        meanwhile = pool.submit(ask)
        with activated(cluster, held) as daemon:
            assert data == meanwhile.result().content
            until(lambda: f"http://127.0.0.1:{port}" == registered(cluster), "it registers the port that it was given")
            daemon.terminate()
            assert 0 == daemon.wait(30)
