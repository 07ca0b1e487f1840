"""Bodies of requests share the memory that there is for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from torrentdist.host.http import body_room
from torrentdist.host.http.body_room import SMALL_BYTES, BodyRoom
from torrentdist.model.errors import TorrentdistError

MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_room, "ROOM_SECS", 0.02)


async def finds_room(grow: Callable[[int], Awaitable[None]], size: int) -> bool:
    try:
        await grow(size)
    except TorrentdistError as error:
        return error.code != "not_ready"
    return True


def test_one_sender_has_half_of_the_room() -> None:
    """One sender would keep everybody from sending a metafile."""

    async def play() -> list[bool]:
        room = BodyRoom(8 * MIB)
        async with room.taken("a") as first, room.taken("a") as second, room.taken("b") as other:
            return [await finds_room(*each) for each in ((first, 3 * MIB), (second, 2 * MIB), (other, 2 * MIB))]

    assert [True, False, True] == asyncio.run(play())


def test_the_oldest_body_can_always_end() -> None:
    """Bodies that each have a part of the room would wait for each other, and all fail."""

    async def play() -> list[bool]:
        room = BodyRoom(8 * MIB)
        async with room.taken("a") as oldest, room.taken("b") as second, room.taken("c") as third:
            steps = [(oldest, 2), (second, 2), (third, 2), (third, 3), (oldest, 4)]
            return [await finds_room(grow, size * MIB) for grow, size in steps]

    assert [True, True, True, False, True] == asyncio.run(play())


def test_room_comes_back_when_a_request_is_answered() -> None:
    """A master would refuse every large body after some of them, or remember all who ever sent
    one."""
    room = BodyRoom(8 * MIB)

    async def play() -> list[bool]:
        found = []
        for _ in range(4):
            async with room.taken("a") as grow:
                found.append(await finds_room(grow, 4 * MIB))
        return found

    assert [True] * 4 == asyncio.run(play())
    assert {} == room._held


def test_a_small_body_needs_no_room() -> None:
    """An announce would wait for uploads."""

    async def play() -> bool:
        async with BodyRoom(0).taken("a") as grow:
            return await finds_room(grow, SMALL_BYTES)

    assert asyncio.run(play())


def test_a_body_without_room_is_refused_before_it_is_sent() -> None:
    """A client sends 64 MiB to a master that has no room for them, or an announce is refused."""

    async def begins(room: BodyRoom, announced: int) -> bool:
        try:
            async with room.taken("a", announced):
                return True
        except TorrentdistError as error:
            return error.code != "not_ready"

    async def play() -> list[bool]:
        small = BodyRoom(0)
        return [
            await begins(BodyRoom(8 * MIB), 4 * MIB),
            await begins(BodyRoom(8 * MIB), 4 * MIB + 1),
            await begins(small, SMALL_BYTES),
            await begins(small, SMALL_BYTES + 1),
        ]

    assert [True, False, True, False] == asyncio.run(play())


def test_a_body_takes_room_for_what_it_has_grown_by() -> None:
    """A master has less room after each large body, until it refuses all of them."""
    room = BodyRoom(8 * MIB)

    async def play() -> list[int]:
        left = []
        async with room.taken("a") as grow:
            for size in (SMALL_BYTES, 2 * MIB, 3 * MIB):
                await grow(size)
                left.append(room._left)
        return [*left, room._left]

    assert [8 * MIB, 6 * MIB, 5 * MIB, 8 * MIB] == asyncio.run(play())


def test_a_body_that_waits_goes_on_when_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload fails although another one has just ended."""
    monkeypatch.setattr(body_room, "ROOM_SECS", 60.0)

    async def play() -> tuple[bool, bool]:
        room = BodyRoom(8 * MIB)
        async with asyncio.timeout(10), room.taken("a") as second:
            async with room.taken("a") as first:
                await first(3 * MIB)
                waiting = asyncio.create_task(finds_room(second, 2 * MIB))
                await asyncio.sleep(0)
                before = waiting.done()
            return before, await waiting

    assert (False, True) == asyncio.run(play())
