"""How a daemon looks up names, above all while a DNS server is slow or away."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from zookeeper_fixtures import eventually

from torrentdist.host.event_loop import daemon_loop
from torrentdist.host.event_loop.daemon_loop import DaemonLoop
from torrentdist.host.process.daemon_process import run_daemon

NAMES = [f"master-{number}" for number in range(3)]


class Dns:
    """Stands for the system's resolver. It finds each name at one address, says that there is none,
    or waits as it does for a server that is away."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.answers.set()
        self.address = "10.0.0.1"
        self.error = 0
        self.asked: list[str] = []

    def __call__(self, host: str, port: int, **_: int) -> list[Any]:
        self.asked.append(host)
        self.answers.wait(10.0)
        if self.error:
            raise socket.gaierror(self.error, "no address")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (self.address, port))]


@pytest.fixture
def dns(monkeypatch: pytest.MonkeyPatch) -> Iterator[Dns]:
    made = Dns()
    monkeypatch.setattr(socket, "getaddrinfo", made)
    yield made
    made.answers.set()


async def address_of(name: str, within: float = 5.0) -> str:
    async with asyncio.timeout(within):
        found = await asyncio.get_running_loop().getaddrinfo(name, 7060, type=socket.SOCK_STREAM)
    return str(found[0][4][0])


def run(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=DaemonLoop) as runner:
        runner.run(work)


def test_a_dns_server_that_is_away_keeps_no_other_work_waiting(dns: Dns) -> None:
    """If this fails, a host that is cut off from DNS reads no files and notes no leases, so that
    its programs do not even get the bundles that lie on it."""

    async def work() -> None:
        dns.answers.clear()
        asking = [address_of(name, 0.1) for name in NAMES * 20]
        given_up = await asyncio.gather(*asking, return_exceptions=True)
        async with asyncio.timeout(5.0):
            free = await asyncio.to_thread(lambda: "free")

        assert "free" == free
        assert [TimeoutError] * 60 == list(map(type, given_up))
        assert NAMES == sorted(dns.asked)

    run(work())


def test_a_lookup_that_outlives_its_connection_serves_the_next(dns: Dns) -> None:
    """If this fails, a daemon that starts while the first of two DNS servers is away never connects
    to a master: each lookup takes longer than the attempt to connect."""

    async def work() -> None:
        dns.answers.clear()
        with pytest.raises(TimeoutError):
            await address_of("master-0", 0.05)
        dns.answers.set()
        joined = await address_of("master-0")
        dns.answers.clear()

        assert "10.0.0.1" == joined == await address_of("master-0")
        assert "10.0.0.1" == await address_of("master-0")
        assert ["master-0"] * 2 == dns.asked

    run(work())


def test_a_name_that_was_found_is_used_until_dns_says_otherwise(dns: Dns, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a host whose DNS fails for a moment loses its masters, or it goes on with the
    address of a master that was moved or is gone."""
    monkeypatch.setattr(daemon_loop, "PATIENCE_SECS", 5.0)

    async def work() -> None:
        first = await address_of("master-0")
        dns.error = socket.EAI_AGAIN
        without = await address_of("master-0")
        dns.error, dns.address = 0, "10.0.0.2"
        moved = await address_of("master-0")
        dns.error = socket.EAI_NONAME
        for _ in range(2):
            with pytest.raises(socket.gaierror):
                await address_of("master-0")
            dns.error = socket.EAI_AGAIN

        assert ("10.0.0.1", "10.0.0.1", "10.0.0.2") == (first, without, moved)

    run(work())


def test_names_that_were_found_are_bounded(dns: Dns, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, hosts that register under ever new names use up a master's memory."""
    monkeypatch.setattr(daemon_loop, "MOST_FOUND", 2)
    monkeypatch.setattr(daemon_loop, "PATIENCE_SECS", 5.0)

    async def work() -> None:
        for name in (*NAMES[:2], NAMES[0], NAMES[2]):
            await address_of(name)
        dns.error = socket.EAI_AGAIN

        assert ["10.0.0.1"] * 2 == [await address_of(name) for name in (NAMES[0], NAMES[2])]
        with pytest.raises(socket.gaierror):
            await address_of(NAMES[1])

    run(work())


def test_a_daemon_ends_while_a_name_is_looked_up(dns: Dns, caplog: pytest.LogCaptureFixture) -> None:
    """If this fails, the last lines of a daemon's log are an error that nobody can do anything
    about; or it looks up names as if it were no daemon."""
    loops: list[asyncio.AbstractEventLoop] = []

    class Asking:
        async def start(self) -> None:
            loops.append(asyncio.get_running_loop())
            dns.answers.clear()
            with pytest.raises(TimeoutError):
                await address_of("master-0", 0.05)

        async def failed(self) -> None: ...

        async def stop(self) -> None: ...

    with caplog.at_level(logging.WARNING):
        run_daemon(Asking, shutdown_secs=5.0)
        dns.answers.set()
        asyncio.run(eventually(lambda: not any(each.name.startswith("names") for each in threading.enumerate())))

    assert [DaemonLoop] == list(map(type, loops))
    assert [] == caplog.records
