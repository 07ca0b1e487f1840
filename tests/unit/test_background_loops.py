"""The loops of a daemon, and whether one of them has ended."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from torrentdist.host import scrub as scrubbing
from torrentdist.host.process import background_loops
from torrentdist.host.process.background_loops import Background
from torrentdist.host.process.room import Loop, Room, When, start_loops
from torrentdist.log import show_lines
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest

FAST_SECS = 0.001


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


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_loops, "FIRST_PAUSE_SECS", FAST_SECS)
    monkeypatch.setattr(background_loops, "LONGEST_PAUSE_SECS", FAST_SECS)


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("error", [ZeroDivisionError(), OSError(5, "EIO"), TorrentdistError("not_leader")])
def test_a_loop_that_fails_begins_anew(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, one strange answer ends a whole daemon again and again, or its log fills
    up."""
    told: list[Any] = []
    monkeypatch.setattr("torrentdist.log._shown", None)
    show_lines(lambda level, event, fields: told.append((level, fields["exc_info"])), logging.WARNING)

    async def play() -> tuple[int, bool]:
        begun, well, loops = 0, asyncio.Event(), Background()

        async def fails_twice() -> None:
            nonlocal begun
            begun += 1
            if begun < 3:
                raise error
            well.set()
            await goes_on()

        start_loops([Room(loops=[Loop("a", fails_twice)])], When.STARTED, loops)
        async with asyncio.timeout(10):
            await well.wait()
        assert {"a": 2} == loops.failures
        failed = loops.has_failed
        await loops.stop()
        return begun, failed or len(asyncio.all_tasks()) > 1

    assert (3, False) == asyncio.run(play())
    assert [("error", error)] == told


@pytest.mark.usefixtures("fast")
def test_a_failure_after_which_only_the_next_process_knows_ends_the_daemon() -> None:
    """If this fails, a daemon whose id is taken, or that does not know which barriers it has, goes
    on as if nothing were wrong."""

    async def play() -> None:
        loops = Background()
        start_loops([Room(loops=[Loop("a", ends, ends_daemon=True)])], When.STARTED, loops)
        async with asyncio.timeout(10):
            await loops.failed()

    with pytest.raises(ZeroDivisionError):
        asyncio.run(play())


def test_a_bundle_that_cannot_be_verified_keeps_no_other_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, damage on the disk is not found, because of one bundle that comes first."""
    monkeypatch.setattr(scrubbing, "SETTLE_SECS", 0.0)
    digests = [Digest(digit * 64) for digit in "12"]
    seen: list[Digest] = []
    others_too = asyncio.Event()

    async def verify(digest: Digest) -> list[str]:
        seen.append(digest)
        if digest == digests[0]:
            raise ZeroDivisionError
        others_too.set()
        return []

    store = SimpleNamespace(published=lambda: digests, data_dir="/data")
    runtime: Any = SimpleNamespace(store=store, verify=verify)

    async def play() -> bool:
        work = asyncio.create_task(scrubbing.scrub(runtime, 3600.0, lambda: None))
        looked = asyncio.create_task(others_too.wait())
        await asyncio.wait({work, looked}, timeout=10, return_when=asyncio.FIRST_COMPLETED)
        failed = work.done()
        for task in (work, looked):
            task.cancel()
        return failed

    assert not asyncio.run(play())
    assert digests == seen
