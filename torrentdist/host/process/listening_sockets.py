"""Sockets to listen on: bound here, or taken over from systemd (sd_listen_fds, so that nobody else
can take the port while the daemon is down).

Always: only a socket that was meant for this process is taken over, and only once. Processes that
the daemon starts do not inherit it. No outgoing connection takes a port that was chosen because it
was free, so a daemon can listen there again after a restart.
"""

import contextlib
import os
import random
import socket
from collections.abc import MutableMapping
from typing import Final

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.loopback import is_loopback

FREE_PORTS: Final = range(20_000, 32_000)
"""Usual kernels give none of these ports to an outgoing connection."""
TRIES: Final = 200
FIRST_FD: Final = 3


def bind_free(sock: socket.socket, host: str) -> None:
    """Binds to a port that is free now, and that no outgoing connection takes later."""
    for port in random.SystemRandom().sample(FREE_PORTS, TRIES):
        with contextlib.suppress(OSError):
            sock.bind((host, port))
            return
    sock.bind((host, 0))


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Returns different ports on which no process listens now, and that no outgoing connection
    takes later."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in sockets:
            bind_free(sock, host)
        return [sock.getsockname()[1] for sock in sockets]


def bind_socket(host: str, port: int, *, what: str) -> socket.socket:
    """Returns a listening socket, or raises `port_in_use`. Port 0 stands for any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol is named; without it every answer waits 40 ms
    # for an ACK.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if not port:
            bind_free(sock, host)  # first, since others might share a port that may be used again
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if port:
            sock.bind((host, port))
        sock.listen(1024)
        sock.setblocking(False)
    except OSError as exc:
        sock.close()
        raise TorrentdistError("port_in_use", what=what, address=f"{host}:{port}", detail=exc.strerror) from exc
    return sock


def inherited_socket(environ: MutableMapping[str, str], *, what: str) -> socket.socket | None:
    """Returns the socket that systemd handed over, or None if there is none. Raises `port_in_use`
    if it does not listen on loopback."""
    pid, count = environ.pop("LISTEN_PID", ""), environ.pop("LISTEN_FDS", "")
    environ.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or not count.isdigit() or int(count) < 1:
        return None
    if int(count) > 1:
        raise _refused(what, f"{count} sockets were handed over, and one is wanted")
    os.set_inheritable(FIRST_FD, False)
    try:
        sock = socket.socket(fileno=FIRST_FD)
    except OSError as exc:
        raise _refused(what, f"what was handed over is no socket: {exc.strerror}") from exc
    if sock.type is not socket.SOCK_STREAM or not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise _refused(what, "the socket that was handed over does not listen")
    if sock.family not in (socket.AF_INET, socket.AF_INET6) or not is_loopback(sock.getsockname()[0]):
        raise _refused(what, f"the socket that was handed over is not on loopback: {sock.getsockname()!r}")
    sock.setblocking(False)
    return sock


def _refused(what: str, detail: str) -> TorrentdistError:
    return TorrentdistError("port_in_use", what=what, address="the socket of its unit", detail=detail)
