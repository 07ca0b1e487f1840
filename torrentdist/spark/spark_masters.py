"""Checks that something listens at a Spark master's address. Spark itself would try for a minute.

Always: the check fails within seconds. Success only means that a connection was accepted.
Never: talk to the master.
"""

import contextlib
import socket
from urllib.parse import urlsplit

from torrentdist.model.errors import TorrentdistError

ANSWER_SECS = 5.0
_PORTS = {"http": 80, "https": 443}

Address = tuple[str, int]


def addresses(master: str) -> list[Address]:
    """Returns the addresses in a master URL of Spark standalone or Kubernetes; empty for other
    kinds."""
    scheme, _, rest = master.partition("://")
    if scheme == "spark":
        urls = [f"spark://{part}" for part in rest.split(",")]
    elif scheme == "k8s":
        urls = [rest if "://" in rest else f"https://{rest}"]
    else:
        return []
    found = []
    for url in urls:
        with contextlib.suppress(ValueError):  # Spark says what is wrong with it
            parts = urlsplit(url)
            port = parts.port or _PORTS.get(parts.scheme)
            if parts.hostname and port:
                found.append((parts.hostname, port))
    return found


def require_master(master: str) -> None:
    """Raises `spark_unreachable` if no address accepts a connection."""
    reasons = []
    for address in addresses(master):
        try:
            socket.create_connection(address, ANSWER_SECS).close()
            return
        except OSError as exc:
            reasons.append(f"{address[0]}:{address[1]}: {exc.strerror or exc}")
    if reasons:
        raise TorrentdistError("spark_unreachable", master=master, detail="; ".join(reasons))
