"""What a worker inherits from the supervisor that started it: no descriptor of it."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest
from job_host import NewHost

from torrentdist.host.process.listening_sockets import free_ports

pytestmark = pytest.mark.anyio


def sockets_of(pid: int) -> set[str]:
    links = (os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir())
    return {link for link in links if link.startswith("socket:")}


@pytest.mark.case("F2")
async def test_a_supervisor_restarts_on_its_ports_under_a_running_worker(new_host: NewHost) -> None:
    """If this fails, a worker holds libtorrent's sockets, and its supervisor cannot start again."""
    ports = {"gateway_port": free_ports(1)[0], "port": free_ports(1)[0]}
    swarm = free_ports(1)[0]
    host = await new_host(settings={"supervisor": ports, "swarm": {"port": swarm}})
    host.job("etl")
    await host.assign(("etl", 0))
    await host.running("etl")
    status = host.statuses()[0]
    ours = sockets_of(host.pid)
    inherited = {name: sockets_of(status[name]) & ours for name in ("guardian", "init", "pid")}
    await host.end(signal.SIGKILL)
    await host.start()
    with socket.create_connection(("127.0.0.1", swarm), 5.0):
        pass

    assert {"guardian": set(), "init": set(), "pid": set()} == inherited
    assert host.alive("etl")
    assert status["run"] == host.statuses()[0]["run"]
