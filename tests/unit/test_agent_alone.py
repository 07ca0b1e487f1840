"""What several masters say, as one picture; and what the agent does with those that say nothing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import httpx
import pytest

from torrentdist.model.ids import Digest, PeerId
from torrentdist.model.views import PeerAddress, PeerRole, SwarmAnswer, SwarmEntry, SwarmPeers
from torrentdist.swarm.agent import SwarmAgent, SwarmPicture, merge

D1, D2 = Digest("1" * 64), Digest("2" * 64)


def peer(host: str, *, complete: bool = False, role: PeerRole = PeerRole.SUPERVISOR) -> PeerAddress:
    return PeerAddress(host=host, port=7000, role=role, complete=complete)


def test_peers_are_those_that_any_master_names_each_once() -> None:
    """A peer that only one master knows would be missed, or one that all know dialled three times."""
    one = SwarmAnswer(
        interval=2.0, you="x", swarms={D1: SwarmPeers(peers=[peer("a"), peer("b")])}, addresses=["a", "b"]
    )
    two = SwarmAnswer(interval=1.0, you="x", swarms={D1: SwarmPeers(peers=[peer("b", complete=True), peer("c")])})
    picture = merge([one, two], SwarmPicture())

    assert picture.swarms[D1].peers == [peer("a"), peer("b", complete=True), peer("c")]
    assert (picture.interval, picture.answered) == (1.0, 2)
    assert picture.addresses == {"a", "b"}


def test_a_tombstone_or_pin_that_any_master_knows_counts() -> None:
    """A master whose view is behind would bring a removed bundle back, or have a pinned one dropped."""
    one = SwarmAnswer(interval=1.0, you="x", swarms={D1: SwarmPeers(replicas=3), D2: SwarmPeers(pinned=True)})
    two = SwarmAnswer(interval=1.0, you="x", swarms={D1: SwarmPeers(removed=True, replicas=1), D2: SwarmPeers()})
    for answers in ([one, two], [two, one]):
        swarms = merge(answers, SwarmPicture()).swarms

        assert (swarms[D1].removed, swarms[D1].pinned, swarms[D1].replicas) == (True, False, 3)
        assert (swarms[D2].removed, swarms[D2].pinned) == (False, True)


def test_no_answer_keeps_everything_but_the_count() -> None:
    """Peers would be forgotten because the masters are down."""
    before = merge(
        [SwarmAnswer(interval=1.0, you="x", swarms={D1: SwarmPeers(peers=[peer("a")])}, masters=["http://m"])],
        SwarmPicture(),
    )
    after = merge([], before)

    assert (after.swarms, after.masters, after.answered) == (before.swarms, ("http://m",), 0)


def test_masters_are_listed_once_in_a_steady_order() -> None:
    """Clients would try one master twice and take its failure for that of two."""
    answers = [SwarmAnswer(interval=1.0, you="x", masters=urls) for urls in (["a", "b"], ["b", "c"], ["a"])]

    assert merge(answers, SwarmPicture()).masters == ("a", "b", "c")


def agent_of(http: httpx.AsyncClient, *masters: str, swarms: Callable[[], list[SwarmEntry]] = list) -> SwarmAgent:
    return SwarmAgent(
        peer=PeerId("s1"),
        role=PeerRole.CLIENT,
        host="",
        http=http,
        masters=masters,
        port=lambda: 0,
        swarms=swarms,
        on_picture=lambda _: None,
        clock=lambda: 0.0,
    )


def test_a_dead_master_is_asked_ever_less_often() -> None:
    """Every agent would knock at a dead master every second for as long as it is dead."""

    async def play() -> list[float]:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        async with httpx.AsyncClient(trust_env=False) as http:
            agent = agent_of(http, url)
            waits = []
            for _ in range(8):
                await agent.announce()
                waits.append(agent.statistics()[0].next_in)
        return waits

    assert asyncio.run(play()) == [0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0]


def test_what_a_callback_raises_ends_the_agent() -> None:
    """A bug of ours would look like a dead master, and the host be silently alone."""

    def broken() -> list[SwarmEntry]:
        raise ZeroDivisionError

    async def play() -> None:
        async with httpx.AsyncClient(trust_env=False) as http:
            with pytest.raises(ZeroDivisionError):
                async with asyncio.timeout(5.0):
                    await agent_of(http, "http://127.0.0.1:9", swarms=broken).run()

    asyncio.run(play())


def test_an_agent_without_masters_waits_for_some() -> None:
    """A client whose masters are not known yet would end, or spin."""

    async def play() -> None:
        async with httpx.AsyncClient(trust_env=False) as http:
            agent = agent_of(http)
            task = asyncio.create_task(agent.run())
            agent.poke()
            assert (await agent.announce()).answered == 0
            await agent.leave()
            async with asyncio.timeout(5.0):
                await task

    asyncio.run(play())
