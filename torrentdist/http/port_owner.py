"""Decides whether the program that listens on a port of this host may be this host's supervisor.

Always: the kernel names the user who listens. A listener whose user is not known is not trusted.
Never: refuse a listener. Its caller hashes what it takes from one that is not trusted.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from torrentdist.model.loopback import is_loopback

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTENS = "0A"
_UNMAPPED = 65534
"""The kernel shows every user that a user namespace does not know as this one."""


def is_trusted_listener(url: str, data_dir: str) -> bool:
    """Whether everybody who listens on the port of `url` is root, this user, or the owner of the
    supervisor's directory `data_dir`."""
    if not is_loopback(urlsplit(url).hostname or ""):
        return False
    users = _users(url)
    trusted = {0, os.geteuid(), _owner(Path(data_dir))} - {_UNMAPPED}
    return bool(users) and users <= trusted


def is_listening(url: str) -> bool:
    """Whether anybody listens on the port of `url` on this host."""
    return bool(_users(url))


def _users(url: str) -> set[int]:
    """Returns the users who listen on the port of `url`; none if that cannot be found out."""
    port = urlsplit(url).port or 80
    try:
        return {user for table in _TABLES if os.path.exists(table) for user in _listeners(table, port)}
    except (OSError, ValueError, IndexError):
        return set()


def _listeners(table: str, port: int) -> Iterator[int]:
    """Yields the users who listen on the port, on any address. The kernel lists listening sockets
    first, so the others need not be read."""
    with open(table, encoding="ascii") as lines:
        next(lines, None)
        for line in lines:
            fields = line.split()
            if fields[3] != _LISTENS:
                return
            if int(fields[1].rpartition(":")[2], 16) == port:
                yield int(fields[7])


def _owner(directory: Path) -> int | None:
    """Returns the user to whom a directory belongs, and None if others could have made it."""
    owner = None
    for place in reversed((directory, *directory.parents)):
        try:
            found = os.lstat(place)
        except PermissionError:
            return owner
        except OSError:
            return None
        if not stat.S_ISDIR(found.st_mode) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return None
        owner = found.st_uid
        if owner != 0:
            return owner
    return owner
