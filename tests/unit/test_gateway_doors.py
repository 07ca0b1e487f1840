"""The gateway's doors: ranges, the users behind connections, a socket that was handed over."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from torrentdist.host.activation import inherited_socket
from torrentdist.model.errors import TorrentdistError
from torrentdist.supervisor.callers import user_ids, user_of
from torrentdist.supervisor.serving import single_range


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bytes=0-9", (0, 10)),
        ("bytes=90-", (90, 100)),
        ("bytes=-10", (90, 100)),
        ("bytes=50-500", (50, 100)),
        ("bytes=-500", (0, 100)),
        ("", None),
        ("bytes=0-1,5-6", None),
        ("bytes=9-0", None),
        ("lines=1-2", None),
    ],
)
def test_a_range_is_a_part_or_all(text: str, expected: tuple[int, int] | None) -> None:
    """A resumed download would get other bytes than it asked for."""
    assert expected == single_range(text, 100)


@pytest.mark.parametrize("text", ["bytes=100-", "bytes=-0"])
def test_a_range_outside_is_refused(text: str) -> None:
    """A client would take nothing for the rest of its file."""
    with pytest.raises(TorrentdistError, match="100 bytes"):
        single_range(text, 100)


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_kernel_knows_the_user_of_a_connection(family: socket.AddressFamily) -> None:
    """Another user of the host would pass for an allowed one; Java connects by IPv6 sockets."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(family, socket.SOCK_STREAM) as client:
        port = server.getsockname()[1]
        client.connect(("127.0.0.1", port) if family == socket.AF_INET else ("::ffff:127.0.0.1", port))
        accepted, address = server.accept()
        tables = [Path("/proc/net/tcp").read_text(), Path("/proc/net/tcp6").read_text()]
        with accepted:
            found = user_of(address, ("127.0.0.1", port), tables)

    assert os.getuid() == found


def test_who_is_not_in_the_tables_is_nobody() -> None:
    """A connection that cannot be told would be let in."""
    assert user_of(("127.0.0.1", 1), ("127.0.0.1", 2), [Path("/proc/net/tcp").read_text()]) is None


def test_users_are_named_or_numbered() -> None:
    """An operator's list would let in somebody else."""
    assert {0, 4711} == user_ids(["root", "4711"])
    with pytest.raises(TorrentdistError, match="no user 'nobody-at-all'"):
        user_ids(["nobody-at-all"])


HAND_OVER = """
import os, sys
from torrentdist.host.activation import inherited_socket
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
sock = inherited_socket(os.environ, what="the gateway")
print(sock.getsockname()[1], os.get_inheritable(sock.fileno()), "LISTEN_FDS" in os.environ)
"""


def handed_over(sock: socket.socket) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", HAND_OVER, str(sock.fileno())]
    return subprocess.run(command, pass_fds=[sock.fileno()], capture_output=True, text=True)


def test_a_socket_of_systemd_is_taken_once_and_not_passed_on() -> None:
    """Somebody else could take the port while the supervisor is down, or a worker would listen in its place."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ran = handed_over(server)

        assert f"{server.getsockname()[1]} False False" == ran.stdout.strip()


def test_a_socket_that_others_reach_is_refused() -> None:
    """A unit that listens on all addresses would open the host's bundles to the network."""
    with socket.create_server(("0.0.0.0", 0)) as server:
        ran = handed_over(server)

    assert "not on loopback" in ran.stderr


def test_a_socket_for_somebody_else_is_left_alone() -> None:
    """A daemon that is started by an activated one would take its descriptor 3."""
    assert inherited_socket({"LISTEN_PID": "1", "LISTEN_FDS": "1"}, what="the gateway") is None
