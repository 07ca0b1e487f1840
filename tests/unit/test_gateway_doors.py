"""Access to the gateway, and the socket that systemd hands over to it."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from torrentdist.host.http.operation import api_app
from torrentdist.host.http.uvicorn_adapter import WebServer
from torrentdist.host.http.web import CutShort
from torrentdist.host.process.listening_sockets import bind_socket, inherited_socket
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.events import AccessAudited
from torrentdist.model.ids import BundleId, JobId
from torrentdist.security.job_token import job_of, key_of, token_of_job
from torrentdist.supervisor.bundles.host_bundle_api import HostBundleApi
from torrentdist.supervisor.gateway.bundle_server import BundleServer
from torrentdist.supervisor.gateway.callers import GatewayCallers, Reads, readers_of, user_of
from torrentdist.supervisor.jobs.worker_api import WorkerApi
from torrentdist.supervisor.process.output_api import OutputApi
from torrentdist.supervisor.repositories.maven_api import MavenApi
from torrentdist.supervisor.repositories.python_index_api import PythonIndexApi


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_kernel_knows_the_user_of_a_connection(family: socket.AddressFamily) -> None:
    """Another user of the host would count as an allowed one. Java connects by IPv6 sockets."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(family, socket.SOCK_STREAM) as client:
        port = server.getsockname()[1]
        client.connect(("127.0.0.1", port) if family == socket.AF_INET else ("::ffff:127.0.0.1", port))
        accepted, address = server.accept()
        tables = [Path("/proc/net/tcp").read_text(), Path("/proc/net/tcp6").read_text()]
        with accepted:
            found = user_of(address, ("127.0.0.1", port), tables)

    assert os.getuid() == found


def test_who_is_not_in_the_tables_is_nobody() -> None:
    """A connection of an unknown user would be let in."""
    assert user_of(("127.0.0.1", 1), ("127.0.0.1", 2), [Path("/proc/net/tcp").read_text()]) is None


def test_users_are_named_or_numbered() -> None:
    """A user that the operator did not name would be let in."""
    assert {0: ("*",), 4711: ("*",)} == readers_of(["root", "4711"])
    with pytest.raises(TorrentdistError, match="no user 'nobody-at-all'"):
        readers_of(["nobody-at-all"])


@pytest.mark.case("I1")
def test_a_table_says_what_each_user_may_read() -> None:
    """A user who is not in the table would read everything, as with an empty list."""
    table: dict[str, bool | str | list[str]] = {
        "root": True, "1": False, "2": "etl-*", "3": ["etl-*", "lib"], "4": "true",
    }  # fmt: skip

    assert {0: ("*",), 2: ("etl-*",), 3: ("etl-*", "lib"), 4: ("*",)} == readers_of(table)
    assert {} == readers_of({})
    assert readers_of([]) is None


HAND_OVER = """
import os, sys
from torrentdist.host.http.operation import Handler, api_app
from torrentdist.host.process.listening_sockets import inherited_socket
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
sock = inherited_socket(os.environ, what="the gateway")
print(sock.getsockname()[1], os.get_inheritable(sock.fileno()), "LISTEN_FDS" in os.environ)
"""


def handed_over(sock: socket.socket) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", HAND_OVER, str(sock.fileno())]
    return subprocess.run(command, pass_fds=[sock.fileno()], capture_output=True, text=True)


def test_a_socket_of_systemd_is_taken_once_and_not_passed_on() -> None:
    """Another program could take the port while the supervisor is down, or a worker could listen on
    it.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        ran = handed_over(server)

        assert f"{server.getsockname()[1]} False False" == ran.stdout.strip()


def test_a_socket_that_others_reach_is_refused() -> None:
    """A unit that listens on all addresses would open the host's bundles to the network."""
    with socket.create_server(("0.0.0.0", 0)) as server:
        ran = handed_over(server)

    assert "not on loopback" in ran.stderr


def test_a_socket_for_somebody_else_is_left_alone() -> None:
    """A daemon that an activated one starts would take its descriptor 3."""
    assert inherited_socket({"LISTEN_PID": "1", "LISTEN_FDS": "1"}, what="the gateway") is None


KEY = key_of("the cluster's secret")


# the doors at work


async def begin_and_fail(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["path"] == "/fails":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1000")]})
        await send({"type": "http.response.body", "body": b"abc", "more_body": True})
        raise TorrentdistError("bundle_lost", id="b")
    await Response("fine")(scope, receive, send)
    if scope["path"] == "/fails-late":
        raise RuntimeError("as Starlette does once it has answered an unexpected error")


class Heard:
    """What the gateway tells the audit."""

    def __init__(self) -> None:
        self.refusals: list[AccessAudited] = []

    def changed(self, fact: AccessAudited) -> None:
        raise AssertionError(fact)

    def refused(self, fact: AccessAudited) -> None:
        self.refusals.append(fact)


async def fine(_: Request) -> Response:
    return Response("fine")


def routes(heard: Heard) -> ASGIApp:
    """The gateway's own operations, with their roles, and with handlers that always answer."""
    kinds: tuple[Any, ...] = (HostBundleApi, BundleServer, PythonIndexApi, MavenApi, WorkerApi, OutputApi)
    declared = (op for kind in kinds for op in kind.operations(object.__new__(kind)))
    return api_app((replace(op, handler=fine) for op in declared), audit=heard)


class Jobs:
    """One job, as the supervisor tells the gateway of it."""

    def __init__(self, user: int | None = None) -> None:
        self.isolated = user is not None
        self._user = user

    def jobs_of(self, user: int) -> frozenset[JobId] | None:
        return frozenset([JobId("etl")]) if user == self._user else None

    def bundles_of(self, jobs: Collection[JobId]) -> frozenset[BundleId]:
        return frozenset([BundleId("etl-1")]) if "etl" in jobs else frozenset()

    def job_of_token(self, token: str) -> JobId | None:
        return job_of(KEY, token)


@asynccontextmanager
async def serving(
    readers: Reads | None, jobs: Jobs | None = None, app: ASGIApp = begin_and_fail, heard: Heard | None = None
) -> AsyncIterator[int]:
    sock = bind_socket("127.0.0.1", 0, what="a test")
    web: list[WebServer] = []
    callers = GatewayCallers(app, readers, jobs or Jobs(), heard or Heard())
    app = CutShort(callers, lambda client: web[0].cut(client))
    web.append(WebServer(app, sock))
    await web[0].start()
    yield web[0].port
    await web[0].stop()


async def ask(port: int, path: str, *headers: str) -> bytes:
    method = "POST" if path.endswith(("/fetch", "/verify", "/prune", "/heartbeat")) else "GET"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write("\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", "Connection: close", *headers, "\r\n"]).encode())
    try:
        return await reader.read()
    finally:
        writer.close()
        with suppress(ConnectionResetError):
            await writer.wait_closed()


@pytest.mark.anyio
async def test_an_answer_that_fails_is_reset_and_not_ended() -> None:
    """Java takes the end of a connection for the end of the file, whatever length was promised."""
    async with serving(None) as port:
        with pytest.raises(ConnectionResetError):
            await ask(port, "/fails")
        for path in ("/", "/fails-late"):  # and no whole answer is harmed
            assert (await ask(port, path)).endswith(b"fine")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("readers", "status"),
    [({os.getuid(): ("*",)}, b"200"), ({os.getuid() + 1: ("*",)}, b"403"), ({}, b"403"), (None, b"200")],
)
async def test_only_those_who_may_are_served(readers: Reads | None, status: bytes) -> None:
    """Every user of the host could read bundles that are meant for some."""
    heard = Heard()
    async with serving(readers, heard=heard) as port:
        answer = await ask(port, "/bundles/x")
        health = await ask(port, "/livez")

    assert [status, b"200"] == [answer.split()[1], health.split()[1]]
    assert (status == b"403") == bool(heard.refusals)


OWN = [
    "/bundles/etl-1", "/bundles/etl-1/files/a/b", "/bundles/etl-1/x.tar", "/bundles/etl-1/local/x", "/error/a/b",
    "/v1/host/bundles/etl-1", "/v1/host/bundles/etl-1/fetch", "/v1/host/bundles/etl-1/lease",
    "/v1/host/jobs/etl/0/log", "/v1/host/jobs/etl/logs", "/v1/host/jobs/etl/0/heartbeat", "/livez",
    "/simple/etl-1/", "/simple/etl-1/x/", "/simple/etl-1/x/x-1.tar.gz", "/maven/etl-1/a/b.jar",
]  # fmt: skip
FOREIGN = [
    "/bundles/etl-12", "/bundles/other/files/a", "/v1/host/prune", "/v1/host/workers", "/v1/host/jobs/other/0/log",
    "/v1/host/bundles/etl-1/verify", "/v1/host/jobs/other/0/heartbeat", "/v1/host/problems", "/v1/host/isolation",
    "/bundles/%2e%2e/files/a", "/bundles/other/etl-1.tar",
    "/simple/other/", "/simple/other/x/", "/simple/other/etl-1/x-1.tar.gz", "/maven/other/etl-1", "/maven/%2e%2e/a",
]  # fmt: skip


@pytest.mark.anyio
@pytest.mark.case("F1")
async def test_a_user_of_jobs_gets_what_belongs_to_its_jobs() -> None:
    """If this fails, a job reads every bundle of its host, or prunes its store."""
    heard = Heard()
    async with serving(None, Jobs(os.getuid()), routes(heard), heard) as port:
        own = {path: (await ask(port, path)).split()[1] for path in OWN}
        foreign = {path: (await ask(port, path)).split()[1] for path in FOREIGN}

    assert {b"200"} == set(own.values()) - {b"404"}, own  # the test serves no health
    assert {b"403"} == set(foreign.values()), foreign
    assert len(FOREIGN) == len(heard.refusals)
    assert {f"user {os.getuid()}"} == {fact.who for fact in heard.refusals}


@pytest.mark.anyio
@pytest.mark.case("F1")
async def test_a_jobs_token_is_bound_to_its_job() -> None:
    """If this fails, jobs that share a user cannot be told apart, or a forged token opens the
    gateway."""
    right, forged = token_of_job(KEY, JobId("etl")), token_of_job(key_of("other"), JobId("etl"))
    heard = Heard()
    async with serving(None, None, routes(heard), heard) as port:
        own = await ask(port, "/bundles/etl-1", f"Authorization: bearer {right}")
        foreign = await ask(port, "/bundles/other", f"Authorization: Bearer {right}")
        refused = [
            await ask(port, "/bundles/etl-1", f"Authorization: Bearer {t}") for t in (forged, "job:", "job:etl:")
        ]

    assert [b"200", b"403"] == [answer.split()[1] for answer in (own, foreign)]
    assert [b"401"] * 3 == [answer.split()[1] for answer in refused]
    assert [("job etl", "forbidden"), *[("anonymous", "unauthorized")] * 3] == [
        (f.who, f.result) for f in heard.refusals
    ]


@pytest.mark.case("F1")
def test_a_token_of_one_job_is_none_of_another() -> None:
    """If this fails, one job's token opens another one's bundles."""
    token = token_of_job(KEY, JobId("a:b"))

    assert "a:b" == job_of(KEY, token)
    assert job_of(KEY, token.replace("a:b", "a:c")) is None
    assert job_of(key_of("another secret"), token) is None
    assert all(job_of(KEY, text) is None for text in ("", "job:", "job:a:b", token[:-1], token + "0", "é"))
