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


async def finishes() -> None:
    return


def test_a_loop_that_ends_by_itself_is_missed() -> None:
    """A daemon runs on without one of its loops, and nobody learns of it."""

    async def play() -> bool:
        loops = Background()
        loops.spawn("a", goes_on())
        loops.spawn("b", finishes())
        async with asyncio.timeout(10):
            await loops.failed()
        failed = loops.has_failed
        await loops.stop()
        return failed

    assert asyncio.run(play())


def test_a_task_that_ends_by_itself_is_not_missed() -> None:
    """A daemon ends because a message to another one failed, or keeps every such task."""

    async def play() -> tuple[bool, bool, int]:
        loops = Background()
        loops.spawn("a", goes_on())
        loops.once("b", ends())
        loops.once("c", finishes())
        watching = asyncio.create_task(loops.failed())
        await asyncio.wait({watching}, timeout=0.02)
        found = watching.done(), loops.has_failed
        watching.cancel()
        left = len(asyncio.all_tasks()) - 2
        await loops.stop()
        return *found, left

    assert (False, False, 1) == asyncio.run(play())


def test_a_stop_ends_all_that_runs() -> None:
    """A daemon that has stopped still writes to the cluster."""

    async def play() -> int:
        loops = Background()
        loops.spawn("a", goes_on())
        loops.once("b", goes_on())
        await asyncio.sleep(0)
        await loops.stop()
        return len(asyncio.all_tasks())

    assert 1 == asyncio.run(play())
