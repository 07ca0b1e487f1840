"""Finds the sender of a request to the gateway: a user of this host, or a job.

Always: the kernel names the user, and a caller that it does not name is refused. A user of jobs has
the role `job` for the jobs that run as it; a job's token narrows that to one job. Health stays open
to all.
"""

from __future__ import annotations

import asyncio
import ipaddress
import pwd
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from torrentdist.host.http.authentication import refuse
from torrentdist.host.http.web import PRINCIPAL
from torrentdist.host.telemetry.audit_log import Audit
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, JobId
from torrentdist.security.job_token import PREFIX, job_principal
from torrentdist.security.principal import LOCAL, STRANGER, VISITOR, Principal, host_user, job_user

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


class JobCallers(Protocol):
    """What the gateway asks about the jobs of its host."""

    @property
    def isolated(self) -> bool:
        """Whether jobs run as other users than the supervisor."""

    def jobs_of(self, user: int) -> frozenset[JobId] | None:
        """Returns the jobs that run as this user; None if it is no user of jobs."""

    def bundles_of(self, jobs: Collection[JobId]) -> frozenset[BundleId]:
        """Returns the bundles that these jobs need."""

    def job_of_token(self, token: str) -> JobId | None:
        """Returns the job of this host that the token proves."""


class GatewayCallers:
    """Sets the principal of each request. Refuses senders that may not use the gateway at all.

    `users`: those that may use the gateway, besides the users of jobs; empty: every user.
    """

    def __init__(self, app: ASGIApp, users: frozenset[int], jobs: JobCallers, audit: Audit) -> None:
        self._app = app
        self._users = users
        self._jobs = jobs
        self._audit = audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                scope[PRINCIPAL] = await self._sender(scope)
            except TorrentdistError as error:
                await refuse(scope, receive, send, error, self._audit, STRANGER)
                return
        await self._app(scope, receive, send)

    async def _sender(self, scope: Scope) -> Principal:
        if scope["path"] in OPEN_PATHS:
            return VISITOR
        if token := _job_token(scope):
            job = self._jobs.job_of_token(token)
            if job is None:
                raise TorrentdistError("unauthorized")
            return job_principal(job, self._jobs.bundles_of([job]))
        if not self._users and not self._jobs.isolated:
            return LOCAL
        client, server = tuple(scope["client"]), tuple(scope["server"])
        user = await asyncio.to_thread(lambda: user_of(client, server, _tables()))
        if user is None:
            raise TorrentdistError("forbidden", detail="an unknown user may not read from this gateway")
        if (jobs := self._jobs.jobs_of(user)) is not None:
            return job_user(user, jobs, self._jobs.bundles_of(jobs))
        if self._users and user not in self._users:
            detail = f"user {user} may not read from this gateway"
            raise TorrentdistError("forbidden", name=f"user {user}", detail=detail)
        return host_user(user)


def _job_token(scope: Scope) -> str:
    """Returns the token of a job that the request carries; empty if it carries none."""
    scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" and given.strip().startswith(PREFIX) else ""


def _tables() -> list[str]:
    return [Path(name).read_text() for name in _TABLES if Path(name).exists()]
