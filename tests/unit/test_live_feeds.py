"""Parts of the console's pages are made as often as they are cheap, and leave nothing behind."""

from __future__ import annotations

import asyncio
import time

import pytest

from torrentdist.master.console.live_feeds import MOST_PARTS, LiveFeeds, _Timed
from torrentdist.model.errors import TorrentdistError


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


def test_unknown_parts_leave_nothing_behind() -> None:
    """Anybody who may read could fill the memory of a master with made-up parts."""
    feeds = LiveFeeds()

    async def fails() -> str:
        raise TorrentdistError("bundle_not_found", id="x")

    async def works() -> str:
        return "part"

    async def play() -> None:
        with pytest.raises(TorrentdistError):
            await feeds._event("wrong", fails)
        assert {} == feeds._parts
        for number in range(MOST_PARTS + 5):
            await feeds._event(f"{number}", works)

    asyncio.run(play())
    assert [f"{number}" for number in range(5, MOST_PARTS + 5)] == [*feeds._parts]
