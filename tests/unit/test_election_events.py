"""What the log of events says about the time without a leader."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from msgspec.structs import replace
from records_of import snapshot

from torrentdist.cluster.records.mirror import Mirror
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.master.leading.election_events import Elections
from torrentdist.model.configuration.config import ZooKeeperConfig
from torrentdist.model.events import Fact, LeaderElected
from torrentdist.model.ids import MasterId
from torrentdist.model.records import FailoverRecord

pytestmark = pytest.mark.anyio


async def no_failovers() -> list[FailoverRecord]:
    return []


async def for_a_moment(elections: Elections) -> None:
    """Lets both loops do what is due."""
    with suppress(TimeoutError):
        async with asyncio.timeout(0.1):
            await asyncio.gather(elections.watch(), elections.run())


async def test_the_time_without_a_leader_ends_with_the_next_leader() -> None:
    """If this fails, a report says that nobody led for days, because it counts from the first
    election that this master has seen."""
    told: list[Fact] = []
    mirror = Mirror(ZooKeeper(ZooKeeperConfig()))
    elections = Elections(mirror, told.append, no_failovers)
    for epoch, leader in enumerate((None, MasterId("m2"))):
        mirror.snapshot = replace(snapshot(), leader=leader)
        await for_a_moment(elections)
        elections.won(epoch)
    await for_a_moment(elections)
    measured = [fact.vacant_secs is not None for fact in told if isinstance(fact, LeaderElected)]

    assert [True, False] == measured
