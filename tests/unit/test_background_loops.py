"""The loops of a daemon, and whether one of them has ended."""

import asyncio

import pytest

from torrentdist.host.process.background_loops import Background


async def ends() -> None:
    raise ZeroDivisionError


async def goes_on() -> None:
    await asyncio.Event().wait()


def test_a_daemon_with_a_loop_that_has_ended_has_failed() -> None:
    """If this fails, a daemon that fails again and again says goodbye, and nobody misses it."""

    async def play() -> tuple[bool, bool, bool]:
        well, ill = Background(), Background()
        well.spawn("a", goes_on())
        ill.spawn("a", goes_on())
        ill.spawn("b", ends())
        with pytest.raises(ZeroDivisionError):
            await ill.failed()
        found = well.has_failed, ill.has_failed
        await asyncio.gather(well.stop(), ill.stop())
        return *found, well.has_failed

    assert (False, True, False) == asyncio.run(play())
