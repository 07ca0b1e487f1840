"""What a retry is told of a change whose answer was too large to keep, and what is told of a
decision that was made again; with a real ZooKeeper."""

from __future__ import annotations

import asyncio

import pytest
from masters_in_process import Enter, InProcess, leader_with_bundle, put_bundle, request
from msgspec.json import decode

from torrentdist.master.bundles.pruning import Pruning
from torrentdist.master.changes import answered_requests
from torrentdist.master.master_session import MasterSession
from torrentdist.master.policies.retention_operations import RetentionOperations
from torrentdist.model.ids import BundleId, MasterId
from torrentdist.model.policies.policy_messages import RetentionBody, RetentionView
from torrentdist.model.wire.bundle_messages import LISTED_AGAIN, UnusedView

pytestmark = pytest.mark.anyio

MANY = LISTED_AGAIN + 20


async def with_bundles(enter: Enter, count: int) -> InProcess:
    """Returns a leader with one bundle and so many others."""
    master = await leader_with_bundle(enter)
    await asyncio.gather(*(put_bundle(master.zk, BundleId(f"old-{n:03}")) for n in range(count)))
    await master.zk.create("/clock")
    await master.zk.set("/clock", b"")  # tells the time by ZooKeeper
    await master.mirror.wait_for(lambda s: len(s.bundles) == count + 1, 10.0)
    return master


def pruning(master: InProcess) -> Pruning:
    return Pruning(MasterSession(MasterId("m1"), master.zk, master.mirror), master.changes)


async def test_a_prune_that_is_repeated_tells_how_much_it_removed(
    enter: Enter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator whose answer was lost would read that nothing was removed."""
    monkeypatch.setattr(answered_requests, "MAX_ANSWER_BYTES", 4000)
    master = await with_bundles(enter, MANY)
    first, again = [decode(await pruning(master).prune(request("p"), 0.0), type=UnusedView) for _ in range(2)]

    assert (MANY + 1, 0) == (len(first.removed), first.more)
    assert (first.removed[:LISTED_AGAIN], MANY + 1 - LISTED_AGAIN) == (again.removed, again.more)
    assert first.bytes == again.bytes


async def test_the_end_of_a_rule_that_is_repeated_tells_what_it_was(
    enter: Enter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator whose answer was lost would be told of a bug."""
    monkeypatch.setattr(answered_requests, "MAX_ANSWER_BYTES", 1000)
    master = await with_bundles(enter, MANY)
    rules = RetentionOperations(master.changes, master.zk.server_now)
    await rules.put(None, RetentionBody(pattern="old-*", keep=5), "ann")
    first, again = [decode(await rules.remove(request("r"), "old-*"), type=RetentionView) for _ in range(2)]

    assert (MANY, 0) == (len(first.goes) + len(first.stays), first.more)
    assert (MANY, MANY, {}) == (again.bundles, again.more, again.goes)


async def test_a_prune_does_not_tell_of_bundles_that_stayed(enter: Enter) -> None:
    """An operator would read that a bundle was removed that somebody has just pinned."""
    master = await with_bundles(enter, 2)
    pinned = BundleId("old-000")
    _, answer = await asyncio.gather(master.operations.set_pinned(None, pinned, True), pruning(master).prune(None, 0.0))
    told = decode(answer, type=UnusedView)

    assert ["bundle", "old-001"] == told.removed
    assert [pinned] == [kept.id for kept in told.stays]
