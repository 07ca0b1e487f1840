"""Uploads share the fetches of a master by uploader."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

import pytest

from torrentdist.host.process.shared_slots import SharedSlots
from torrentdist.master.policies import quotas
from torrentdist.master.policies.quotas import check_uploads
from torrentdist.master.replication.replica_fetches import LEAST_RATE, is_slow
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.wire.transfer_messages import TransferPhase, TransferView

SIZE = 1 << 30


class Fetching:
    """Fetches that hold a slot until the test ends, and the order in which they got it."""

    def __init__(self, slots: SharedSlots, held: AsyncExitStack) -> None:
        self._slots = slots
        self._held = held
        self.began: list[str] = []

    async def begin(self, owner: str | None) -> None:
        await self._held.enter_async_context(self._slots.taken(owner))
        self.began.append(str(owner))


async def let_run() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def began(owners: Sequence[str | None], most: int, most_each: int) -> list[str]:
    async def play() -> list[str]:
        async with AsyncExitStack() as held:
            fetching = Fetching(SharedSlots(most, most_each), held)
            tasks = [asyncio.create_task(fetching.begin(owner)) for owner in owners]
            await let_run()
            seen = list(fetching.began)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            return seen

    return asyncio.run(play())


def test_nobody_holds_more_than_a_share() -> None:
    """One uploader of empty bundles would stop everybody's uploads."""
    assert ["a", "a", "b"] == began(["a", "a", "a", "a", "b"], most=4, most_each=2)


def test_who_has_no_share_waits_for_a_slot_alone() -> None:
    """A host that fetches for nobody in particular would use one of its two threads."""
    assert ["None", "None"] == began([None, None, None], most=2, most_each=1)
    assert ["nobody", "a"] == began(["nobody", "nobody", "a"], most=2, most_each=1)


@pytest.mark.parametrize(
    ("before", "done", "slow"),
    [(None, 0, False), (0, 0, True), (0, 5 * LEAST_RATE - 1, True), (0, 5 * LEAST_RATE, False), (9, SIZE, False)],
)
def test_an_upload_that_drips_holds_no_slot_for_ever(before: int | None, done: int, slow: bool) -> None:
    """A byte a minute would hold a slot of a master that others wait for."""
    assert slow == is_slow(
        before, TransferView(digest=Digest("a" * 64), phase=TransferPhase.FETCHING, done=done, size=SIZE), 5.0
    )


def test_who_holds_the_fewest_comes_first() -> None:
    """A second uploader would wait for all that the first one began before it."""

    async def play() -> list[str]:
        slots, order = SharedSlots(most=2, most_each=2), []
        ends = [asyncio.Event() for _ in range(4)]

        async def fetch(owner: str, end: asyncio.Event) -> None:
            async with slots.taken(owner):
                order.append(owner)
                await end.wait()

        tasks = [asyncio.create_task(fetch(owner, end)) for owner, end in zip("aaab", ends, strict=True)]
        await let_run()
        assert (True, True) == (slots.are_wanted("a"), slots.are_wanted("b"))
        ends[0].set()
        await let_run()
        for end in ends:
            end.set()
        await asyncio.gather(*tasks)
        return order

    assert ["a", "a", "b", "a"] == asyncio.run(play())


def test_owners_take_turns() -> None:
    """Two senders with many requests each would keep a third one waiting for all of them."""

    async def play() -> list[str]:
        slots, order = SharedSlots(most=2, most_each=1), []

        async def use(owner: str) -> None:
            async with slots.taken(owner):
                order.append(owner)
                await asyncio.sleep(0)

        await asyncio.gather(*map(use, "aaaabbbbc"))
        return order

    assert "ababcabab" == "".join(asyncio.run(play()))


def test_an_upload_that_stands_still_makes_place_for_its_owners_others() -> None:
    """Without tokens all have one name, so a few dead clients would stop everybody's uploads.
    A slot that nobody else could take is kept."""

    async def play() -> list[bool]:
        slots = SharedSlots(most=4, most_each=1)
        async with slots.taken("a"), slots.taken("b"):
            waiting = asyncio.create_task(slots.taken("a").__aenter__())
            await let_run()
            found = [slots.are_wanted("a"), slots.are_wanted("b")]
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            return found

    assert [True, False] == asyncio.run(play())


def test_a_fetch_that_is_given_up_while_it_waits_takes_no_slot() -> None:
    """Each upload that is removed while it waits would cost a slot for ever."""

    async def play() -> bool:
        slots = SharedSlots(most=1, most_each=1)
        async with slots.taken("a"):
            waiting = asyncio.create_task(slots.taken("b").__aenter__())
            await let_run()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        async with asyncio.timeout(1.0), slots.taken("c"):
            return slots.are_wanted("c")

    assert not asyncio.run(play())


def test_open_uploads_are_limited_by_owner_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """One token could open uploads until every master does nothing else."""
    monkeypatch.setattr(quotas, "MOST_UPLOADS", 5)
    monkeypatch.setattr(quotas, "MOST_UPLOADS_EACH", 2)
    uploads = {BundleId(name): name[0] for name in ("a-1", "a-2", "b-1")}

    check_uploads(uploads, "b")
    with pytest.raises(TorrentdistError, match="'a' has 2 uploads"):
        check_uploads(uploads, "a")
    with pytest.raises(TorrentdistError, match="the cluster 5"):
        check_uploads(uploads | {BundleId("c-1"): "c", BundleId("d-1"): "d"}, "e")
