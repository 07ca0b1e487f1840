"""One rate limit for the engine and for what moves beside it."""

from __future__ import annotations

import asyncio
import time

from torrentdist.supervisor.border.shared_limit import LEFT, WINDOW_SECS, SharedLimit

LIMIT = 1_000_000


def test_what_moves_beside_the_engine_is_paced() -> None:
    """A host's limit would hold for the engine alone."""
    given: list[int] = []

    async def play() -> tuple[bool, float]:
        limit = SharedLimit(lambda: LIMIT, given.append)
        limit.moved(LIMIT // 5)
        soon = await limit.allowed(0.01)
        began = time.monotonic()
        await limit.allowed()
        return soon, time.monotonic() - began

    soon, waited = asyncio.run(play())

    assert not soon
    assert 0.1 <= waited <= 0.3


def test_the_engine_has_what_is_left_and_later_everything() -> None:
    """Both together would move twice the limit, or the engine would stay slow for ever."""
    given: list[int] = []

    async def play() -> None:
        limit = SharedLimit(lambda: LIMIT, given.append)
        limit.moved(int(LIMIT * WINDOW_SECS / 4))
        await asyncio.sleep(2.5 * WINDOW_SECS)

    asyncio.run(play())

    assert given == [LIMIT * 3 // 4, LIMIT]


def test_the_engine_always_has_a_part() -> None:
    """Hosts of the same zone would get nothing."""
    given: list[int] = []

    async def play() -> None:
        limit = SharedLimit(lambda: LIMIT, given.append)
        limit.moved(int(LIMIT * WINDOW_SECS * 3))
        await asyncio.sleep(1.2 * WINDOW_SECS)

    asyncio.run(play())

    assert given == [int(LIMIT * LEFT)]


def test_without_a_limit_nothing_waits() -> None:
    given: list[int] = []

    async def play() -> bool:
        limit = SharedLimit(lambda: 0, given.append)
        limit.moved(10**12)
        return await limit.allowed(0.0)

    assert asyncio.run(play())
    assert given == []
