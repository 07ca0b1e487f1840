"""Takes over a listening socket that systemd opened for this daemon (sd_listen_fds). Nobody else
can take the port while the daemon is down.

Always: takes only a socket that was meant for this process, and only once. Processes that the
daemon starts do not inherit it.
"""

import os
import socket
from collections.abc import MutableMapping

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.loopback import is_loopback

FIRST_FD = 3


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
