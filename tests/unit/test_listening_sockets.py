"""The ports that daemons and tests choose stay theirs until they listen again."""

import socket

import pytest

from torrentdist.host.process.listening_sockets import bind_socket, free_ports
from torrentdist.model.errors import TorrentdistError


def outgoing_ports() -> tuple[int, int]:
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        first, last = map(int, file.read().split())
    return first, last


def test_a_free_port_is_none_that_a_connection_takes() -> None:
    """A daemon that starts again would find that its port is the near end of somebody's
    connection."""
    first, last = outgoing_ports()
    with bind_socket("127.0.0.1", 0, what="the test") as sock:
        ports = [sock.getsockname()[1], *free_ports(50)]

    assert 51 == len(set(ports))
    assert not [port for port in ports if first <= port <= last]


def test_a_taken_port_is_refused_and_left_is_bound_again() -> None:
    with bind_socket("127.0.0.1", 0, what="the test") as sock:
        port = sock.getsockname()[1]
        with pytest.raises(TorrentdistError) as refused:
            bind_socket("127.0.0.1", port, what="another")
        with socket.create_connection(("127.0.0.1", port)):
            served, _ = sock.accept()
            served.close()  # this end waits for late packets now

    assert "port_in_use" == refused.value.code
    bind_socket("127.0.0.1", port, what="the test").close()
