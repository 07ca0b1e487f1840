"""Finds the sender of a request to the gateway: a user of this host, or a job.

Always: the kernel names the user, and a caller that it does not name is refused. A user of jobs has
the role `job` for the jobs that run as it; a job's token narrows that to one job. Health stays open
to all.
"""

import asyncio
import ipaddress
import pwd
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from torrentdist.host.http.authentication import ErrorAnswer, as_json, refuse
from torrentdist.host.http.web import PRINCIPAL
from torrentdist.host.telemetry.audit_log import Audit
from torrentdist.model.errors import TorrentdistError, required
from torrentdist.model.ids import BundleId, JobId
from torrentdist.security.authorization import LOCAL, STRANGER, VISITOR, Principal, host_user, job_user
from torrentdist.security.job_token import PREFIX, job_principal

Address = tuple[str, int]
OPEN_PATHS = ("/livez", "/readyz", "/metrics")
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_ESTABLISHED = "01"


Reads = Mapping[int, tuple[str, ...]]
"""The patterns of the bundles that each user of this host may read."""


def readers_of(users: Sequence[str] | Mapping[str, bool | str | Sequence[str]]) -> Reads | None:
    """Returns what the configured users may read; None: every user may read everything."""
    if isinstance(users, Mapping):
        return {_user_id(user): _patterns(reads) for user, reads in users.items() if reads not in (False, "false")}
    return {_user_id(user): ("*",) for user in users} or None


def _user_id(user: str) -> int:
    try:
        return int(user) if user.isdigit() else pwd.getpwnam(user).pw_uid
    except KeyError:
        detail = f"supervisor.gateway_users: there is no user {user!r} on this host"
        raise TorrentdistError("config_invalid", origin="the configuration", detail=detail) from None


def _patterns(reads: bool | str | Sequence[str]) -> tuple[str, ...]:
    if isinstance(reads, str):
        return ("*",) if reads == "true" else (reads,)
    return ("*",) if isinstance(reads, bool) else tuple(reads)


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

    `readers`: what users may read, besides the users of jobs; None: every user reads everything.
    `told` makes the answer of a refusal.
    """

    def __init__(
        self, app: ASGIApp, readers: Reads | None, jobs: JobCallers, audit: Audit, told: ErrorAnswer = as_json
    ) -> None:
        self._app = app
        self._told = told
        self._readers = readers
        self._jobs = jobs
        self._audit = audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                scope[PRINCIPAL] = await self._sender(scope)
            except TorrentdistError as error:
                await refuse(scope, receive, send, error, self._audit, STRANGER, self._told)
                return
        await self._app(scope, receive, send)

    async def _sender(self, scope: Scope) -> Principal:
        if scope["path"] in OPEN_PATHS:
            return VISITOR
        if token := _job_token(scope):
            job = required(self._jobs.job_of_token(token), "unauthorized")
            return job_principal(job, self._jobs.bundles_of([job]))
        if self._readers is None and not self._jobs.isolated:
            return LOCAL
        client, server = tuple(scope["client"]), tuple(scope["server"])
        user = await asyncio.to_thread(lambda: user_of(client, server, _tables()))
        if user is None:
            raise TorrentdistError("forbidden", detail="an unknown user may not read from this gateway")
        if (jobs := self._jobs.jobs_of(user)) is not None:
            return job_user(user, jobs, self._jobs.bundles_of(jobs))
        reads = ("*",) if self._readers is None else self._readers.get(user)
        if reads is None:
            detail = f"user {user} may not read from this gateway"
            raise TorrentdistError("forbidden", name=f"user {user}", detail=detail)
        return host_user(user, reads)


def _job_token(scope: Scope) -> str:
    """Returns the token of a job that the request carries; empty if it carries none."""
    scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" and given.strip().startswith(PREFIX) else ""


def _tables() -> list[str]:
    return [Path(name).read_text() for name in _TABLES if Path(name).exists()]
