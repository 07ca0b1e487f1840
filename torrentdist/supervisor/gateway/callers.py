"""Finds the user behind a connection to the gateway, and refuses users that may not use it.

Always: the kernel names the user. Nothing that a request says about itself counts, and a caller
that the kernel does not name is refused. Health stays open to all.
"""

from __future__ import annotations

import asyncio
import ipaddress
import pwd
import sys
from collections.abc import Sequence
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from torrentdist.host.http.web import PRINCIPAL, json_response
from torrentdist.model.errors import TorrentdistError
from torrentdist.security.principal import VISITOR, host_user

Address = tuple[str, int]
OPEN_PATHS = ("/livez", "/readyz", "/metrics")
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_ESTABLISHED = "01"


def user_ids(users: Sequence[str]) -> frozenset[int]:
    """Returns the numbers of users that are given by name or number."""
    found = set()
    for user in users:
        try:
            found.add(int(user) if user.isdigit() else pwd.getpwnam(user).pw_uid)
        except KeyError:
            detail = f"supervisor.gateway_users: there is no user {user!r} on this host"
            raise TorrentdistError("config_invalid", origin="the configuration", detail=detail) from None
    return frozenset(found)


def user_of(client: Address, server: Address, tables: Sequence[str]) -> int | None:
    """Returns the user that owns the client's end, by the kernel's tables of connections."""
    wanted = {(f"{_hex(client, wide)}", f"{_hex(server, wide)}") for wide in (False, True)}
    for table in tables:
        for line in table.splitlines()[1:]:
            fields = line.split()
            if fields[3] == _ESTABLISHED and (fields[1], fields[2]) in wanted:
                return int(fields[7])
    return None


def _hex(address: Address, wide: bool) -> str:
    """Writes an address as the kernel does: words of 32 bits in this machine's byte order.

    `wide`: an IPv4 address on an IPv6 socket.
    """
    ip = ipaddress.ip_address(address[0])
    packed = ip.packed
    if wide and ip.version == 4:
        packed = bytes(10) + b"\xff\xff" + packed
    words = (int.from_bytes(packed[i : i + 4], sys.byteorder) for i in range(0, len(packed), 4))
    return "".join(f"{word:08X}" for word in words) + f":{address[1]:04X}"


class OnlyUsers:
    """Lets requests of these users pass. Empty: every user passes."""

    def __init__(self, app: ASGIApp, users: frozenset[int]) -> None:
        self._app = app
        self._users = users

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._users and scope["type"] == "http" and scope["path"] in OPEN_PATHS:
            scope[PRINCIPAL] = VISITOR
        elif self._users and scope["type"] == "http":
            client, server = tuple(scope["client"]), tuple(scope["server"])
            user = await asyncio.to_thread(lambda: user_of(client, server, _tables()))
            if user is None or user not in self._users:
                who = "an unknown user" if user is None else f"user {user}"
                error = TorrentdistError("forbidden", detail=f"{who} may not read from this gateway")
                await json_response(error.to_wire(), status=error.http_status)(scope, receive, send)
                return
            scope[PRINCIPAL] = host_user(user)
        await self._app(scope, receive, send)


def _tables() -> list[str]:
    return [Path(name).read_text() for name in _TABLES if Path(name).exists()]
