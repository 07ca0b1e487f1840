"""The loop in which a leader does what is due for records."""

from __future__ import annotations

import asyncio
import itertools
from functools import partial

import pytest

from torrentdist.cluster.records.mirror import Mirror
from torrentdist.cluster.session.znode_operations import Create, NodeExists, TransactionFailed
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.master.changes import record_loop
from torrentdist.master.changes.record_loop import RecordLoop
from torrentdist.model.configuration.config import ZooKeeperConfig
from torrentdist.model.errors import TorrentdistError

pytestmark = pytest.mark.anyio

RECORDS = ("a", "b", "c")


class Work:
    """Acts on records, as long as it is not told to fail for one of them."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.failing = {"b"}
        self.done: list[str] = []

    async def act(self, record: str) -> bool:
        if record in self.failing:
            raise self.error
        self.done.append(record)
        return True


@pytest.fixture
def mirror() -> Mirror:
    return Mirror(ZooKeeper(ZooKeeperConfig()))


@pytest.fixture
def loop(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> RecordLoop:
    monkeypatch.setattr(record_loop, "FIRST_PAUSE_SECS", 0.0)
    return RecordLoop(mirror, "tests")


@pytest.mark.parametrize("error", [TorrentdistError("too_large", what="it", size=2, limit=1), KeyError("a bug")])
async def test_a_record_that_fails_holds_up_no_other(loop: RecordLoop, error: Exception) -> None:
    """One bundle, job or host would stop what the leader owes to all others."""
    work = Work(error)
    first = [await loop.attempt(record, partial(work.act, record)) for record in RECORDS]
    work.failing.clear()
    second = [await loop.attempt(record, partial(work.act, record)) for record in RECORDS]

    assert [True, None, True] == first
    assert [True, True, True] == second


async def test_a_record_that_fails_rests_before_its_next_turn(
    loop: RecordLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader would write a record that is refused thousands of times a second."""
    monkeypatch.setattr(record_loop, "FIRST_PAUSE_SECS", 60.0)
    work = Work(ValueError())
    await loop.attempt("b", partial(work.act, "b"))
    work.failing.clear()
    await loop.attempt("b", partial(work.act, "b"))

    assert [] == work.done


async def test_a_change_that_was_overtaken_is_told_if_it_lasts(
    loop: RecordLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each new leader would warn of every record that another one wrote a moment before."""
    said: list[str] = []
    monkeypatch.setattr(record_loop.log, "warning", lambda event, **_: said.append(event))
    work = Work(TransactionFailed([Create("b")], 0, NodeExists("b")))
    told = []
    for _ in range(3):
        await loop.attempt("b", partial(work.act, "b"))
        told.append(len(said))

    assert [0, 1, 1] == told


async def test_what_concerns_all_records_ends_the_step(loop: RecordLoop) -> None:
    """A leader that lost its lease would try each of its records in vain."""
    work = Work(TorrentdistError("leadership_lost"))

    with pytest.raises(TorrentdistError):
        await loop.attempt("b", partial(work.act, "b"))


async def test_a_step_that_fails_is_repeated(loop: RecordLoop) -> None:
    """What was due would wait for the next change of a record, maybe for hours."""
    steps, over = 0, asyncio.Event()

    async def step(_: object) -> float:
        nonlocal steps
        steps += 1
        if steps == 1:
            raise TorrentdistError("zookeeper_unavailable", detail="away")
        over.set()
        return 60.0

    running = asyncio.create_task(loop.run(step))
    async with asyncio.timeout(10):
        await over.wait()
    running.cancel()

    assert 2 == steps


@pytest.mark.parametrize("early", [True, False])
async def test_a_change_of_the_records_is_followed_by_one_step(mirror: Mirror, loop: RecordLoop, early: bool) -> None:
    """A removed bundle would stay until the next look, ten seconds later. `early`: the change comes
    during a step."""
    steps: asyncio.Queue[int] = asyncio.Queue()
    numbers = itertools.count()

    async def step(_: object) -> float:
        steps.put_nowait(number := next(numbers))
        if early and number == 0:
            tell_of_change(mirror)
        return 60.0

    running = asyncio.create_task(loop.run(step))
    async with asyncio.timeout(10):
        await steps.get()
        if not early:
            tell_of_change(mirror)
        assert 1 == await steps.get()
    for _ in range(10):
        await asyncio.sleep(0)
    running.cancel()

    assert steps.empty()


def tell_of_change(mirror: Mirror) -> None:
    for tell in mirror.on_change:
        tell()
