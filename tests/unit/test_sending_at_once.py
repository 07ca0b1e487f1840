"""Connections that a command's engine accepts hold no small message back."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from torrentdist.swarm.native_process import send_at_once


def accepted_by(server: socket.socket) -> socket.socket:
    with socket.create_connection(server.getsockname()):
        return server.accept()[0]


def test_accepted_connections_send_at_once() -> None:
    """The end of a tiny bundle would wait 40 ms for an acknowledgement."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as other:
        send_at_once([server.getsockname()[1]])
        with accepted_by(server) as ours, accepted_by(other) as theirs:
            found = [bool(s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)) for s in (ours, theirs)]

    assert [True, False] == found


def test_looking_for_the_port_leaves_no_descriptor_open(tmp_path: Path) -> None:
    """A program that uploads often would run out of descriptors."""
    with (tmp_path / "f").open("w"):
        before = os.listdir("/proc/self/fd")
        send_at_once([1])

        assert before == os.listdir("/proc/self/fd")
