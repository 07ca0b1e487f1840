"""Leadership handed over by name, against a real ZooKeeper."""

from __future__ import annotations

import time

import pytest
from contenders import Contend, Contender
from zookeeper_fixtures import eventually, eventually_async

from torrentdist.cluster import paths
from torrentdist.cluster.election.epoch import place_of
from torrentdist.model.ids import MasterId
from torrentdist.model.records import FailoverRecord, decode

pytestmark = pytest.mark.anyio


async def queued(contend: Contend, name: str, *, ready: bool = True) -> Contender:
    contender = await contend(name, ready=ready)
    await eventually_async(contender.in_the_queue)
    return contender


async def hand_over(leader: Contender, target: str) -> None:
    await eventually(leader.elector.is_leader)
    place = await place_of(leader.zk, MasterId(target))
    assert place is not None
    leader.elector.hand_over(place)


@pytest.mark.alone
@pytest.mark.case("D12")
async def test_the_named_master_leads_within_a_second_though_others_stand_before_it(contend: Contend) -> None:
    """If this fails, an operator who drains a host cannot choose the next leader, or waits for
    it."""
    first, *others = [await queued(contend, f"m{n}") for n in range(6)]
    began = time.monotonic()
    await hand_over(first, "m5")
    await eventually(others[-1].elector.is_leader)
    seconds = time.monotonic() - began
    names = sorted(await first.zk.children(paths.FAILOVERS) or ())
    found = await first.zk.get(paths.failover(names[-1]))
    assert found is not None
    last = decode(found[0], FailoverRecord, path="")
    print(f"handed over in {seconds:.3f} s")

    assert (last.previous, last.current, last.reason) == ("m0", "m5", "transferred")
    assert len(names) == 2, "somebody led in between"
    assert seconds <= 1.0


@pytest.mark.case("D12")
async def test_a_successor_that_dies_or_is_not_ready_keeps_nobody_from_leading(contend: Contend) -> None:
    """If this fails, a handover to a dying master leaves the cluster without a leader."""
    first = await queued(contend, "m0")
    second, unready, third = (
        await queued(contend, "m1"),
        await queued(contend, "m2", ready=False),
        await queued(contend, "m3"),
    )
    await hand_over(first, "m2")
    await eventually(lambda: any(c.elector.is_leader() for c in (first, second, third)))
    leader = next(c for c in (first, second, third) if c.elector.is_leader())
    heir, spare = [c for c in (second, third) if c is not leader]
    places: list[str | None] = []

    async def found_its_place() -> bool:  # it may just be stepping aside
        places.append(await place_of(leader.zk, MasterId(heir.registration.record.id)))
        return places[-1] is not None

    await eventually_async(found_its_place)
    place = places[-1]
    assert place is not None
    await heir.elector.leave_queue()
    leader.elector.hand_over(place)

    await eventually(lambda: any(c.elector.is_leader() for c in (first, spare)))
    assert not unready.elector.is_leader()
