"""Parts of the console's pages are made as often as they are cheap, and leave nothing behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from masters_in_process import uncounted
from starlette.requests import Request
from starlette.responses import StreamingResponse

from torrentdist.host.http.web import PRINCIPAL
from torrentdist.master.console import live_feeds
from torrentdist.master.console.live_feeds import (
    ALWAYS_NEW,
    MOST_PARTS,
    OLDEST_SECS,
    LiveFeeds,
    State,
    _PartSource,
    _Timed,
    period_of,
)
from torrentdist.model.errors import TorrentdistError
from torrentdist.security.authorization import Principal, Proof, Role


def busy(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_a_part_costs_only_its_own_time() -> None:
    """A part that waits for a host would be shown less often, because others work meanwhile."""

    async def make() -> str:
        busy(0.02)
        await asyncio.sleep(0.01)
        return "part"

    async def play() -> tuple[str, float]:
        work = _Timed(make)
        asyncio.get_running_loop().call_soon(busy, 0.3)
        return await work, work.cost

    text, cost = asyncio.run(play())

    assert "part" == text
    assert 0.02 <= cost < 0.2


def test_a_part_can_be_given_up() -> None:
    """A browser that leaves would keep a master asking a host for it."""
    ended: list[str] = []

    async def make() -> str:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("ended")
        return ""

    async def play() -> None:
        async with asyncio.timeout(0.01):
            await _Timed(make)

    with pytest.raises(TimeoutError):
        asyncio.run(play())
    assert ["ended"] == ended


@dataclass
class Pages:
    """Feeds that look at their parts each time, and a part that counts how often it is made."""

    state: int = 0
    made: int = 0
    feeds: LiveFeeds = field(init=False)

    def __post_init__(self) -> None:
        self.feeds = LiveFeeds(uncounted(), lambda: self.state)

    async def make(self) -> str:
        self.made += 1
        await asyncio.sleep(0)
        return f"state {self.state}"

    async def look(self, name: str = "part", state: State | None = None) -> bytes:
        event = await self.feeds._event(name, _PartSource(self.make, state or self.feeds._state))
        self.feeds._parts[name].next_at = float("-inf")  # as if a second had passed
        return event


def test_a_part_is_made_anew_only_if_its_state_is_another_one() -> None:
    """A console that hangs on a wall would cost its master all day what a distribution costs."""
    pages = Pages()

    async def play() -> list[bytes]:
        shown = [await pages.look(), await pages.look()]
        pages.state = 1
        return [*shown, await pages.look(), await pages.look()]

    shown = asyncio.run(play())

    assert [b"data: state 0\n\n"] * 2 + [b"data: state 1\n\n"] * 2 == shown
    assert 2 == pages.made


def test_a_part_that_hosts_are_asked_for_is_made_each_time() -> None:
    """The output of a worker would stand still."""
    pages = Pages()

    async def play() -> None:
        for _ in range(3):
            await pages.look("output", ALWAYS_NEW)

    asyncio.run(play())

    assert 3 == pages.made


def test_an_old_part_is_made_anew_though_its_state_is_the_same() -> None:
    """The overview would never tell of a certificate that comes to its end."""
    pages = Pages()

    async def play() -> None:
        await pages.look()
        pages.feeds._parts["part"].made_at -= OLDEST_SECS
        await pages.look()

    asyncio.run(play())

    assert 2 == pages.made


def test_browsers_that_show_the_same_part_share_it() -> None:
    """Each operator who looks would cost the master as much as the first."""
    pages = Pages()
    source = _PartSource(pages.make, pages.feeds._state)

    async def play() -> list[bytes]:
        return await asyncio.gather(*(pages.feeds._event("part", source) for _ in range(20)))

    shown = asyncio.run(play())

    assert [b"data: state 0\n\n"] * 20 == shown
    assert 1 == pages.made


@pytest.mark.parametrize(("cost", "secs"), [(0.0, 1.0), (0.004, 1.0), (0.01, 2.0), (1.0, 5.0)])
def test_a_part_that_takes_long_is_made_less_often(cost: float, secs: float) -> None:
    """A page about very many hosts would take a large share of a processor."""
    assert pytest.approx(secs) == period_of(cost)


def test_unknown_parts_leave_nothing_behind() -> None:
    """Anybody who may read could fill the memory of a master with made-up parts."""
    feeds = LiveFeeds(uncounted(), lambda: 0)

    async def fails() -> str:
        raise TorrentdistError("bundle_not_found", id="x")

    async def works() -> str:
        return "part"

    async def play() -> None:
        with pytest.raises(TorrentdistError):
            await feeds._event("wrong", _PartSource(fails, lambda: 0))
        assert {} == feeds._parts
        for number in range(MOST_PARTS + 5):
            await feeds._event(f"{number}", _PartSource(works, lambda: 0))

    asyncio.run(play())
    assert [f"{number}" for number in range(5, MOST_PARTS + 5)] == [*feeds._parts]


def test_one_sender_opens_a_share_of_the_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader with many pages would keep an operator's from showing what happens."""
    monkeypatch.setattr(live_feeds, "MOST_STREAMS_EACH", 2)
    pages = Pages()

    def asked(name: str) -> Request:
        sender = Principal(name, Role.READER, Proof.TOKEN)
        return Request({"type": "http", "headers": [], "query_string": b"", PRINCIPAL: sender})

    async def open_page(name: str) -> AsyncIterator[Any]:
        answer = await pages.feeds.answer(asked(name), "part", pages.make)
        assert isinstance(answer, StreamingResponse)
        stream = aiter(answer.body_iterator)
        await anext(stream)
        return stream

    async def play() -> None:
        first, second = await open_page("ann"), await open_page("ann")
        with pytest.raises(TorrentdistError, match="2 of them yours"):
            await open_page("ann")
        other = await open_page("bob")
        for stream in (first, second, other):
            await stream.aclose()  # type: ignore[attr-defined] # it is a generator
        await (await open_page("ann")).aclose()  # type: ignore[attr-defined]

    asyncio.run(play())

    assert {} == pages.feeds._streams


def test_pages_that_open_together_are_counted_while_their_part_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader could open any number of streams at once, if all of them wait for the same part."""
    monkeypatch.setattr(live_feeds, "MOST_STREAMS_EACH", 2)
    pages = Pages()
    sender = Principal("ann", Role.READER, Proof.TOKEN)
    request = Request({"type": "http", "headers": [], "query_string": b"", PRINCIPAL: sender})

    async def play() -> list[Any]:
        opened = (pages.feeds.answer(request, "part", pages.make) for _ in range(5))
        return await asyncio.gather(*opened, return_exceptions=True)

    opened = asyncio.run(play())

    assert 3 == sum(isinstance(one, TorrentdistError) for one in opened)
    assert {} == pages.feeds._opening
