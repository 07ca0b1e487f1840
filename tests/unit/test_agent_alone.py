"""Answers of several masters become one picture, and silent masters are told less often."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable

import msgspec
import pytest

from torrentdist.http.connection_pool import Http
from torrentdist.http.http_values import Answer, Headers, Patience, SentRequest
from torrentdist.model.ids import Digest, PeerId
from torrentdist.model.swarm_place import SwarmPlace
from torrentdist.model.wire.headers import AnswerAge
from torrentdist.model.wire.swarm_messages import (
    PeerAddress,
    PeerRole,
    SwarmAnnounce,
    SwarmAnswer,
    SwarmEntry,
    SwarmPeers,
)
from torrentdist.swarm import agent
from torrentdist.swarm.agent import LocalPeer, MasterAccess, SwarmAgent
from torrentdist.swarm.announce_schedule import AnnounceSchedule
from torrentdist.swarm.swarm_picture import SwarmPicture, merge

D1, D2 = Digest("1" * 64), Digest("2" * 64)


def peer(host: str, *, complete: bool = False, role: PeerRole = PeerRole.SUPERVISOR) -> PeerAddress:
    return PeerAddress(host=host, port=7000, role=role, complete=complete)


def test_peers_are_those_that_any_master_names_each_once() -> None:
    """A peer that only one master knows would be missed, or one that all know dialled three
    times."""
    one = SwarmAnswer(
        interval=2.0, you="x", swarms={D1: SwarmPeers(peers=[peer("a"), peer("b")])}, addresses=["a", "b"]
    )
    two = SwarmAnswer(interval=1.0, you="x", swarms={D1: SwarmPeers(peers=[peer("b", complete=True), peer("c")])})
    picture = merge({"m1": one, "m2": two}, SwarmPicture())

    assert picture.swarms[D1].peers == [peer("a"), peer("b", complete=True), peer("c")]
    assert (picture.interval, picture.answered) == (1.0, 2)
    assert picture.addresses == {"a", "b"}


def test_a_tombstone_or_pin_that_any_master_knows_counts() -> None:
    """A master whose view is behind would bring a removed bundle back, or have a pinned one
    dropped."""
    one = SwarmAnswer(interval=1.0, you="x", swarms={D1: SwarmPeers(replicas=3), D2: SwarmPeers(pinned=True)})
    two = SwarmAnswer(interval=1.0, you="x", swarms={D1: SwarmPeers(removed=True, replicas=1), D2: SwarmPeers()})
    for first, second in ((one, two), (two, one)):
        picture = merge({"m1": first, "m2": second}, SwarmPicture())

        assert {D1} == picture.removed.keys()
        assert (picture.swarms[D1].pinned, picture.swarms[D1].replicas) == (False, 3)
        assert picture.swarms[D2].pinned


def test_a_master_that_is_cut_off_calls_nothing_removed() -> None:
    """A host would drop, or never get, what was uploaded again since."""
    gone = SwarmAnswer(interval=1.0, you="x", swarms={D1: SwarmPeers(removed=True), D2: SwarmPeers()})
    there = SwarmAnswer(interval=1.0, you="x", swarms={D1: SwarmPeers(), D2: SwarmPeers(removed=True)})
    said = {"m1": gone, "m2": there, "m3": gone}
    ages = {"m1": AnswerAge(zxid=7), "m2": AnswerAge(zxid=9, stale_secs=4.0), "m3": AnswerAge(zxid=8)}

    assert {D1: 8} == merge(said, SwarmPicture(), ages).removed
    assert {D1: 0, D2: 0} == merge(said, SwarmPicture()).removed


def test_a_content_is_unknown_once_no_master_that_reaches_zookeeper_knows_it() -> None:
    """A host would go on with the old content of an id that another bundle has now, or ask again
    and again for one that a master has not heard of yet."""
    late = SwarmAnswer(interval=1.0, you="x", swarms={D1: SwarmPeers(unknown=True), D2: SwarmPeers(unknown=True)})
    there = SwarmAnswer(interval=1.0, you="x", swarms={D1: SwarmPeers(unknown=True), D2: SwarmPeers()})
    cut_off = {"m2": AnswerAge(zxid=9, stale_secs=4.0)}

    assert {D1} == merge({"m1": late, "m2": there}, SwarmPicture()).unknown
    assert {D1, D2} == merge({"m1": late, "m2": there}, SwarmPicture(), cut_off).unknown
    assert set() == merge({"m2": late}, SwarmPicture(), cut_off).unknown


def test_no_answer_keeps_everything_but_the_count() -> None:
    """Peers would be forgotten because the masters are down."""
    before = merge(
        {"m": SwarmAnswer(interval=1.0, you="x", swarms={D1: SwarmPeers(peers=[peer("a")])}, masters=["http://m"])},
        SwarmPicture(),
    )
    after = merge({}, before)

    assert (after.swarms, after.masters, after.answered) == (before.swarms, ("http://m",), 0)


def test_masters_are_listed_once_in_a_steady_order() -> None:
    """Clients would try one master twice and take its failure for that of two."""
    listed = {"a": ["a", "b"], "b": ["b", "c"], "c": ["a"]}
    answers = {url: SwarmAnswer(interval=1.0, you="x", masters=urls) for url, urls in listed.items()}

    assert merge(answers, SwarmPicture()).masters == ("a", "b", "c")


def test_a_swarm_follows_the_plan_of_one_master_and_of_the_next_when_that_is_gone() -> None:
    """Each host would follow the master that it asked first. Masters that see different receivers
    would give one share to two of them, and another share to none."""
    digests = [Digest(f"{n:064x}") for n in range(60)]
    said = {
        url: SwarmAnswer(
            interval=1.0, you="x", swarms={d: SwarmPeers(place=SwarmPlace(number=n, receivers=9)) for d in digests}
        )
        for n, url in enumerate(["http://m1", "http://m2", "http://m3"])
    }
    places = {d: peers.place for d, peers in merge(said, SwarmPicture()).swarms.items()}
    backwards = merge(dict(reversed(said.items())), SwarmPicture()).swarms
    alone = {url: answer for url, answer in said.items() if url != "http://m2"}
    without = merge(alone, SwarmPicture()).swarms

    assert places == {d: peers.place for d, peers in backwards.items()}
    planned = Counter(place.number for place in places.values() if place)
    assert planned.keys() == {0, 1, 2}
    assert min(planned.values()) >= 10
    moved = {d for d in digests if without[d].place != places[d]}
    assert moved == {d for d, place in places.items() if place and place.number == 1}


def test_a_planner_that_has_just_started_leaves_the_plan_to_the_next() -> None:
    """Receivers would fetch without a plan for as long as a restarted master knows no peers."""
    place = SwarmPlace(number=2, receivers=9)
    knows = SwarmAnswer(interval=1.0, you="x", swarms={D1: SwarmPeers(place=place), D2: SwarmPeers(place=place)})
    knows_nobody = SwarmAnswer(interval=1.0, you="x", swarms={D1: SwarmPeers(), D2: SwarmPeers()})
    for said in ({"a": knows, "b": knows_nobody}, {"a": knows_nobody, "b": knows}):
        assert {place} == {peers.place for peers in merge(said, SwarmPicture()).swarms.values()}


def agent_of(http: Http, *masters: str, swarms: Callable[[], list[SwarmEntry]] = list) -> SwarmAgent:
    peer = LocalPeer(id=PeerId("s1"), role=PeerRole.CLIENT, ports=lambda: (0, 0), swarms=swarms)
    return SwarmAgent(peer, MasterAccess(http=http, masters=lambda: masters), lambda _: None, clock=lambda: 0.0)


def test_a_dead_master_is_asked_ever_less_often() -> None:
    """Every agent would contact a dead master every second for as long as it is dead."""

    async def play() -> list[float]:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        async with Http() as http:
            one = agent_of(http, url)
            waits = []
            for _ in range(8):
                await one.announce()
                waits.append(one.statistics()[0].next_in)
        return waits

    waits = asyncio.run(play())

    assert all(full / 2 <= wait <= full for full, wait in zip([0.5, 1, 2, 4, 8, 15, 15, 15], waits, strict=True))


def test_what_a_callback_raises_ends_the_agent() -> None:
    """A bug of ours would look like a dead master, and the host would be alone without a
    message."""

    def broken() -> list[SwarmEntry]:
        raise ZeroDivisionError

    async def play() -> None:
        async with Http() as http:
            with pytest.raises(ZeroDivisionError):
                async with asyncio.timeout(5.0):
                    await agent_of(http, "http://127.0.0.1:9", swarms=broken).run()

    asyncio.run(play())


def test_an_agent_without_masters_waits_for_some() -> None:
    """A client that knows no master yet would end, or loop without a pause."""

    async def play() -> None:
        async with Http() as http:
            agent = agent_of(http)
            task = asyncio.create_task(agent.run())
            agent.poke()
            assert (await agent.announce()).answered == 0
            await agent.leave()
            async with asyncio.timeout(5.0):
                await task

    asyncio.run(play())


OWN = "http://127.0.0.1:9"


def own_agent(http: Http, heard: list[SwarmAnnounce]) -> SwarmAgent:
    """Returns the agent of a master that runs in this process, and fills `heard`."""

    def here(url: str, announce: SwarmAnnounce) -> SwarmAnswer | None:
        heard.append(announce)
        return SwarmAnswer(interval=60.0, you="127.0.0.1", swarms={}) if url == OWN else None

    peer = LocalPeer(id=PeerId("m1"), role=PeerRole.MASTER, ports=lambda: (0, 0), swarms=list)
    return SwarmAgent(peer, MasterAccess(http=http, masters=lambda: [OWN], here=here), lambda _: None)


def test_a_master_hears_its_own_announces_without_a_request() -> None:
    """Each change would cost a master a request to itself, which was a third of all of them."""

    async def play() -> int:
        async with Http() as http:  # nothing listens on that port
            return (await own_agent(http, []).announce()).answered

    assert 1 == asyncio.run(play())


@pytest.mark.case("F6")
@pytest.mark.parametrize("named", ["10.0.0.7", "10.0.0.5-10.0.0.9"])
def test_an_address_that_was_shut_out_is_forgotten_at_once(named: str) -> None:
    """If this fails, every host goes on to exchange pieces with a revoked host for two minutes."""
    told = [
        SwarmAnswer(interval=60.0, you="", addresses=[named, "10.0.0.20"]),
        SwarmAnswer(interval=60.0, you="", addresses=["10.0.0.1"], shut_out=["10.0.0.7", "no address"]),
        SwarmAnswer(interval=60.0, you="", addresses=["10.0.0.1", "10.0.0.7"], shut_out=["10.0.0.7"]),
    ]
    answers = iter(told)
    peer = LocalPeer(id=PeerId("s1"), role=PeerRole.SUPERVISOR, ports=lambda: (0, 0), swarms=list)

    async def play() -> list[frozenset[str]]:
        async with Http() as http:
            access = MasterAccess(http=http, masters=lambda: [OWN], here=lambda url, announce: next(answers))
            one = SwarmAgent(peer, access, lambda _: None)
            return [(await one.announce()).addresses for _ in told]

    before, after, again = asyncio.run(play())

    assert {named, "10.0.0.20"} == before
    assert {"10.0.0.1", "10.0.0.20"} == after
    assert {"10.0.0.1", "10.0.0.7", "10.0.0.20"} == again  # another host has the address now


def test_an_answer_that_cannot_be_used_is_none(caplog: pytest.LogCaptureFixture) -> None:
    """If this fails, one master's strange answer keeps a host from hearing of the others, and fills
    its log."""
    bad, good = "http://10.0.0.1:9", "http://10.0.0.2:9"
    heard: list[str] = []
    pictures: list[SwarmPicture] = []

    def here(url: str, announce: SwarmAnnounce) -> SwarmAnswer | None:
        heard.append(url)
        return SwarmAnswer(interval=0.01, you="", addresses=["strange" if url == bad else "10.0.0.9"])

    def draw(picture: SwarmPicture) -> None:
        if "strange" in picture.addresses:
            raise ZeroDivisionError
        pictures.append(picture)

    peer = LocalPeer(id=PeerId("s1"), role=PeerRole.SUPERVISOR, ports=lambda: (0, 0), swarms=list)

    async def play() -> dict[str, tuple[int, str]]:
        async with Http() as http:
            one = SwarmAgent(peer, MasterAccess(http=http, masters=lambda: [bad, good], here=here), draw)
            running = asyncio.create_task(one.run())
            for _ in range(3):
                await one.announce()
            while heard.count(good) < 5 and not running.done():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            return {master.url: (master.failures, master.problem) for master in one.statistics()}

    contacts = asyncio.run(play())

    assert heard.count(bad) >= 3
    assert (heard.count(bad), "internal") == contacts[bad]
    assert (0, "") == contacts[good]
    assert {frozenset({"10.0.0.9"})} == {picture.addresses for picture in pictures}
    assert 1 == sum(line.exc_info is not None for line in caplog.records)


def test_an_announce_that_begins_meanwhile_is_not_repeated() -> None:
    """Every upload would tell each master the same twice before it begins."""
    heard: list[SwarmAnnounce] = []

    async def play() -> None:
        async with Http() as http:
            agent = own_agent(http, heard)
            task = asyncio.create_task(agent.run())
            await agent.announce()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(play())

    assert 1 == len(heard)


def test_news_that_can_wait_travels_with_news_that_cannot() -> None:
    """Leaving a swarm would cost a request to each master, although nobody waits for it."""
    schedule = AnnounceSchedule()
    schedule.know([OWN], [], 0.0, announcing=set())
    (master,) = schedule.masters()
    master.begin(1, 0.0)
    master.answered(SwarmAnswer(interval=60.0, you="", swarms={}), 0.0)
    due = []
    for by in (10.5, 10.0):
        schedule.poke(by)
        due.append(master.due)

    assert [10.5, 10.0] == due


class BusyMaster(Http):
    """A master that holds the first announce until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[SwarmAnnounce] = []
        self.asked, self.released = asyncio.Event(), asyncio.Event()

    async def exchange(self, asked: SentRequest, patience: Patience) -> Answer:
        self.asked.set()
        await self.released.wait()
        self.heard.append(msgspec.json.decode(asked.content or b"", type=SwarmAnnounce))
        body = msgspec.json.encode(SwarmAnswer(interval=60.0, you="127.0.0.1"))
        return Answer(200, Headers({}), body, asked.url)


def test_a_goodbye_waits_for_the_announce_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a daemon that stops while a master is busy counts as gone for a week."""
    monkeypatch.setattr(agent, "LEAVE_SECS", 0.05)

    async def play() -> list[bool]:
        async with BusyMaster() as http:
            one = agent_of(http, OWN)
            running = asyncio.create_task(one.run())
            await http.asked.wait()
            leaving = asyncio.create_task(one.leave())
            await asyncio.wait({leaving}, timeout=0.15)
            http.released.set()
            await asyncio.gather(leaving, running)
        return [announce.left for announce in http.heard]

    assert [False, True] == asyncio.run(play())
