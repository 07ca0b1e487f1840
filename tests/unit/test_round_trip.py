"""The distance to a master as the kernel measures it, over real connections."""

from __future__ import annotations

import asyncio
import math

import msgspec
import pytest

from torrentdist.http.connection_pool import Http
from torrentdist.http.http_values import Answer
from torrentdist.model.ids import PeerId
from torrentdist.model.wire.swarm_messages import PeerRole, SwarmAnswer
from torrentdist.swarm.agent import LocalPeer, MasterAccess, SwarmAgent
from torrentdist.swarm.round_trip import round_trip

pytestmark = pytest.mark.anyio
BUSY_SECS = 0.2


async def test_the_work_of_a_busy_master_is_no_distance() -> None:
    """Hosts would take busy masters in the same building for distant ones, ask for a second's worth
    each, and use up the holders while others wait."""

    body = msgspec.json.encode(SwarmAnswer(interval=1.0, you="127.0.0.1"))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(BUSY_SECS)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server, Http() as http:
        host, port = server.sockets[0].getsockname()
        peer = LocalPeer(id=PeerId("s1"), role=PeerRole.SUPERVISOR, ports=lambda: (1, 0), swarms=list)
        access = MasterAccess(http=http, masters=lambda: [f"http://{host}:{port}"])
        agent = SwarmAgent(peer, access, lambda _: None)
        picture = await agent.announce()

    assert 1 == picture.answered
    assert 0 < picture.rtt < BUSY_SECS / 4


def test_a_connection_that_the_kernel_knows_nothing_of_has_no_distance() -> None:
    """An announce would fail where the kernel does not tell the round trip."""
    assert math.inf == round_trip(Answer(200))
