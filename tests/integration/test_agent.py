"""The agent and the masters that it announces to: HTTP servers with a directory, killed, stalled
and restarted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from zookeeper_fixtures import eventually

from torrentdist.host.http.uvicorn_adapter import WebServer
from torrentdist.host.http.web import decode_body, json_response
from torrentdist.host.process.listening_sockets import bind_socket
from torrentdist.http.connection_pool import Http
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest, PeerId
from torrentdist.model.wire.swarm_messages import PeerRole, SwarmAnnounce, SwarmEntry
from torrentdist.swarm.agent import LocalPeer, MasterAccess, SwarmAgent
from torrentdist.swarm.announce_schedule import POKE_SPACING_SECS
from torrentdist.swarm.directory.directory import Periods, SwarmDirectory
from torrentdist.swarm.engine.connections import admits
from torrentdist.swarm.swarm_picture import SwarmPicture

D1 = Digest("1" * 64)
HAS = SwarmEntry(digest=D1, complete=True)
LACKS = SwarmEntry(digest=D1, complete=False)
FAST = Periods(fetching_secs=0.1, seeding_secs=0.3, grace_secs=0.1)
SLOW = Periods(fetching_secs=60.0, seeding_secs=60.0)


@dataclass
class Door:
    """A master as agents see it."""

    directory: SwarmDirectory
    masters: list[str] = field(default_factory=list)
    refusal: TorrentdistError | None = None
    stalled: asyncio.Event | None = None
    requests: list[SwarmAnnounce] = field(default_factory=list)
    connections: set[tuple[str, int]] = field(default_factory=set)
    port: int = 0
    server: WebServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def open(self, port: int = 0) -> None:
        sock = bind_socket("127.0.0.1", port, what="a test's master")
        self.server = WebServer(Starlette(routes=[Route("/v1/swarm", self.hear, methods=["POST"])]), sock)
        self.port = self.server.port
        await self.server.start()

    async def close(self) -> None:
        if self.stalled is not None:
            self.stalled.set()
        if self.server is not None:
            server, self.server = self.server, None
            await server.stop()

    async def hear(self, request: Request) -> Response:
        said = decode_body(await request.body(), SwarmAnnounce)
        self.requests.append(said)
        assert request.client is not None
        self.connections.add((request.client.host, request.client.port))
        if self.stalled is not None:
            await self.stalled.wait()
        if self.refusal is not None:
            return json_response(self.refusal.to_wire(), status=self.refusal.http_status)
        now, host = asyncio.get_running_loop().time(), request.client.host
        answer = self.directory.announce(said, source_host=host, now=now, masters=self.masters)
        return json_response(answer)


def door(periods: Periods = FAST) -> Door:
    return Door(SwarmDirectory(periods=periods))


@dataclass
class Peer:
    agent: SwarmAgent
    pictures: list[SwarmPicture]
    swarms: list[SwarmEntry]


@asynccontextmanager
async def peer_of(
    *masters: str, name: str = "s1", swarms: list[SwarmEntry] | None = None, host: str = "", deadline: float = 0.5
) -> AsyncIterator[Peer]:
    pictures: list[SwarmPicture] = []
    entries = [LACKS] if swarms is None else swarms
    async with Http() as http:
        peer = LocalPeer(
            id=PeerId(name),
            role=PeerRole.SUPERVISOR,
            host=host,
            ports=lambda: (7000, 0),
            swarms=lambda: list(entries),
        )
        access = MasterAccess(http=http, masters=lambda: masters, deadline_secs=deadline)
        agent = SwarmAgent(peer, access, pictures.append)
        yield Peer(agent, pictures, entries)


@asynccontextmanager
async def running(agent: SwarmAgent) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(agent.run())
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def with_doors(*doors: Door) -> Callable[[Callable[[], Coroutine[Any, Any, None]]], None]:
    """Runs a test's body while the doors are open."""

    def play(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            try:
                for each in doors:
                    await each.open()
                await body()
            finally:
                for each in doors:
                    await each.close()

        asyncio.run(whole())

    return play


def test_an_agent_is_known_by_all_masters_and_hears_of_others() -> None:
    """No process would ever join a swarm."""
    one, two = door(), door()

    @with_doors(one, two)
    async def _() -> None:
        one.masters = two.masters = [one.url, two.url]
        async with peer_of(one.url, two.url, name="holder", swarms=[HAS], host="127.0.0.2") as holder:
            await holder.agent.announce()
        async with peer_of(one.url, two.url) as peer, running(peer.agent):
            await eventually(lambda: peer.agent.picture.answered == 2)
            picture = await peer.agent.announce()  # it is not told the addresses again, and knows them

        assert [(p.host, p.port, p.complete) for p in picture.swarms[D1].peers] == [("127.0.0.2", 7000, True)]
        assert picture.addresses == {"127.0.0.1-127.0.0.2"}
        assert picture.masters == (one.url, two.url)
        assert [m.peer for m in two.directory.members(D1)] == ["holder", "s1"]


def test_announces_travel_on_kept_alive_connections() -> None:
    """If this failed, a thousand hosts would open a connection to every master each second."""
    master = door()

    @with_doors(master)
    async def _() -> None:
        async with peer_of(master.url) as peer, running(peer.agent):
            await eventually(lambda: len(master.requests) >= 5)

        assert len(master.connections) == 1


def test_a_stalled_master_delays_nobody() -> None:
    """One hanging master would stop every peer from hearing of others (cases A23)."""
    live, stalled = door(), door()

    @with_doors(live, stalled)
    async def _() -> None:
        stalled.stalled = asyncio.Event()
        async with peer_of(live.url, stalled.url, deadline=30.0) as peer, running(peer.agent):
            await eventually(lambda: len(live.requests) >= 5)

            assert len(stalled.requests) == 1
            assert peer.agent.picture.answered == 1
            assert len(peer.pictures) >= 4


def test_a_killed_master_is_left_out_and_its_restart_is_noticed() -> None:
    """If this failed, a restarted master would know no peer until each peer restarts too."""
    stays, falls = door(), door()

    @with_doors(stays, falls)
    async def _() -> None:
        async with peer_of(stays.url, falls.url) as peer, running(peer.agent):
            await eventually(lambda: peer.agent.picture.answered == 2)
            port = falls.port
            await falls.close()
            await eventually(lambda: peer.agent.picture.answered == 1)
            falls.directory = SwarmDirectory(periods=FAST)
            await falls.open(port)
            await eventually(lambda: len(falls.directory.members(D1)) == 1)
            await eventually(lambda: peer.agent.picture.answered == 2)


def test_a_master_that_is_registered_again_is_told_at_once() -> None:
    """If this failed, a restarted master would hear of its peers only when their backoff ends,
    after minutes."""
    stays, falls = door(), door()

    @with_doors(stays, falls)
    async def _() -> None:
        stays.masters = [stays.url, falls.url]
        port = falls.port
        await falls.close()
        async with peer_of(stays.url, falls.url) as peer, running(peer.agent):
            await eventually(lambda: f"http://127.0.0.1:{port}" in peer.agent.picture.masters)
            stays.masters = [stays.url]
            await eventually(lambda: len(peer.agent.picture.masters) == 1)
            for _ in range(8):
                await peer.agent.announce()
            assert max(master.next_in for master in peer.agent.statistics()) > 5.0
            await falls.open(port)
            stays.masters = [stays.url, falls.url]
            await eventually(lambda: len(falls.directory.members(D1)) == 1, timeout=2.0)


def test_with_no_master_the_last_picture_stays() -> None:
    """If this failed, a download in flight would lose its peers together with the masters."""
    master = door()

    @with_doors(master)
    async def _() -> None:
        async with peer_of(master.url, name="holder", swarms=[HAS], host="127.0.0.2") as holder:
            await holder.agent.announce()
        async with peer_of(master.url) as peer, running(peer.agent):
            await eventually(lambda: peer.agent.picture.answered == 1)
            await master.close()
            await eventually(lambda: peer.agent.picture.answered == 0)

            assert [p.host for p in peer.agent.picture.swarms[D1].peers] == ["127.0.0.2"]
            assert admits(peer.agent.picture.addresses, "127.0.0.2")
            assert peer.pictures[-1] is peer.agent.picture


def test_an_address_outlives_the_memory_of_a_restarted_master() -> None:
    """If this failed, a restart of all masters would cut transfers between peers until all of them
    have announced again."""
    master = door()

    @with_doors(master)
    async def _() -> None:
        async with peer_of(master.url, name="holder", swarms=[HAS], host="127.0.0.2") as holder:
            await holder.agent.announce()
        async with peer_of(master.url) as peer:
            await peer.agent.announce()
            master.directory = SwarmDirectory(periods=FAST)
            picture = await peer.agent.announce()

        assert picture.swarms[D1].peers == []
        assert admits(picture.addresses, "127.0.0.2")


def test_masters_are_learned_from_answers() -> None:
    """If this failed, the configuration of every host would have to name every master."""
    known, learned = door(), door()

    @with_doors(known, learned)
    async def _() -> None:
        known.masters = [known.url, learned.url + "/", "file:///etc/passwd"]
        async with peer_of(known.url) as peer, running(peer.agent):
            await eventually(lambda: len(learned.directory.members(D1)) == 1)
            await eventually(lambda: peer.agent.picture.answered == 2)


def test_a_poke_is_told_at_once_and_many_are_one() -> None:
    """If this failed, others would learn of a finished download only after a period, or a thousand
    finished files would cause a thousand announces."""
    master = door(SLOW)

    @with_doors(master)
    async def _() -> None:
        async with peer_of(master.url) as peer, running(peer.agent):
            await eventually(lambda: peer.agent.picture.answered == 1)
            loop = asyncio.get_running_loop()
            began = loop.time()
            peer.swarms[:] = [HAS]
            for _ in range(100):
                peer.agent.poke()
                await asyncio.sleep(0)
            await eventually(lambda: master.requests[-1].swarms == [HAS])
            while loop.time() < began + 4 * POKE_SPACING_SECS:
                peer.agent.poke()
                await asyncio.sleep(0.001)
            took = loop.time() - began

        assert len(master.requests) <= 2 + took / POKE_SPACING_SECS
        assert len(master.requests) >= 3


def test_a_poke_during_an_announce_makes_another_one() -> None:
    """If this failed, a change during a request would stay unannounced for a whole period."""
    master = door(SLOW)

    @with_doors(master)
    async def _() -> None:
        master.stalled = asyncio.Event()
        async with peer_of(master.url, deadline=30.0) as peer, running(peer.agent):
            await eventually(lambda: len(master.requests) == 1)
            peer.swarms[:] = [HAS]
            peer.agent.poke()
            master.stalled.set()
            await eventually(lambda: len(master.requests) == 2)

        assert master.requests[1].swarms == [HAS]


def test_goodbye_reaches_the_masters_and_ends_the_agent() -> None:
    """If this failed, others would dial a process that has ended, or a late announce would bring it
    back."""
    master = door()

    @with_doors(master)
    async def _() -> None:
        async with peer_of(master.url) as peer, running(peer.agent) as task:
            await eventually(lambda: peer.agent.picture.answered == 1)
            await peer.agent.leave()
            async with asyncio.timeout(1.0):
                await task
            await peer.agent.announce()

        assert master.requests[-1].left
        assert master.directory.statistics().memberships == 0


def test_goodbye_is_the_last_word() -> None:
    """If this failed, an announce that is still on its way would arrive after the goodbye and bring
    the peer back."""
    master = door()

    @with_doors(master)
    async def _() -> None:
        slow = master.stalled = asyncio.Event()
        async with peer_of(master.url, deadline=30.0) as peer, running(peer.agent):
            await eventually(lambda: len(master.requests) == 1)
            master.stalled = None
            leaving = asyncio.create_task(peer.agent.leave())
            with suppress(TimeoutError):
                await eventually(lambda: len(master.requests) == 2, timeout=0.2)
            slow.set()
            await leaving

        assert [request.left for request in master.requests] == [False, True]
        assert master.directory.statistics().memberships == 0


def test_goodbye_waits_for_no_stalled_master() -> None:
    """If this failed, Ctrl-C would hang as long as one master hangs."""
    live, stalled = door(), door()

    @with_doors(live, stalled)
    async def _() -> None:
        async with peer_of(live.url, stalled.url, deadline=30.0) as peer:
            await peer.agent.announce()
            stalled.stalled = asyncio.Event()
            async with asyncio.timeout(2.0):
                await peer.agent.leave()

            assert live.directory.statistics().memberships == 0


def test_a_refused_token_is_said_once_and_clearly(caplog: pytest.LogCaptureFixture) -> None:
    """If this failed, a host with a wrong token would be alone without a message, or fill its
    log."""
    master = door()

    @with_doors(master)
    async def _() -> None:
        master.refusal = TorrentdistError("unauthorized")
        async with peer_of(master.url) as peer:
            for _ in range(3):
                picture = await peer.agent.announce()

        assert picture.answered == 0
        errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
        assert len(errors) == 1
        assert "token is missing or wrong" in errors[0]
        assert "client.token_file" in errors[0]


def test_a_host_name_is_looked_up_before_it_is_announced() -> None:
    """If this failed, every master would refuse a peer whose configuration gives a host name."""
    master = door()

    @with_doors(master)
    async def _() -> None:
        async with peer_of(master.url, host="localhost") as peer:
            await peer.agent.announce()
        async with peer_of(master.url, name="s2", host="no.such.host.invalid") as peer:
            await peer.agent.announce()

        assert [request.host for request in master.requests] in (["127.0.0.1", ""], ["::1", ""])
        assert len(master.directory.members(D1)) == 2
