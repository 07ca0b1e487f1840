"""A peer that knows newer records than the master that it announces to; with a real ZooKeeper."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import httpx
import msgspec
import pytest
from masters_in_process import BUNDLE, Enter, leader_with_bundle, request
from records_of import supervisor
from zookeeper_fixtures import TcpProxy

from torrentdist.cluster import paths
from torrentdist.host.http.authentication import Authentication
from torrentdist.host.http.operation import api_app
from torrentdist.master.access.host_bundles import HostBundles
from torrentdist.master.policies.distribution_orders import DistributionOrder
from torrentdist.master.swarm.newer_records import NewerRecords, knows_more
from torrentdist.master.swarm.swarm_api import SwarmApi
from torrentdist.model.ids import Digest, PeerId, SupervisorId
from torrentdist.model.records import encode
from torrentdist.model.wire.swarm_messages import PeerRole, SwarmAnnounce, SwarmAnswer, SwarmEntry
from torrentdist.swarm.directory.announce_binding import AnnounceSender

pytestmark = pytest.mark.anyio
FLEET = [SupervisorId(f"s{n}") for n in range(4)]
DIGEST = Digest("a" * 64)


def announce(peer: str, role: PeerRole = PeerRole.SUPERVISOR, *, complete: bool = False) -> SwarmAnnounce:
    entry = SwarmEntry(digest=DIGEST, complete=complete)
    return SwarmAnnounce(peer=PeerId(peer), role=role, port=1, swarms=[entry])


def nobody(peer: PeerId, digest: Digest) -> bool:
    return False


async def test_the_first_that_fetches_hears_of_all_that_were_told_with_it(enter: Enter, proxy: TcpProxy) -> None:
    """If this failed, the first peer would believe that it is alone and use up the holders, and
    each newcomer would change the plan."""
    leader = await leader_with_bundle(enter)
    for id_ in FLEET:
        await leader.zk.create(paths.supervisor(id_), encode(supervisor(id_)))
    behind = await enter("m2", servers=[proxy.address])
    await leader.mirror.sync(5.0)
    newer = NewerRecords(behind.mirror, nobody)
    proxy.hold_answers()
    await leader.distributions.begin(request("r1"), DistributionOrder(BUNDLE), lambda _: None)
    waiting = [asyncio.create_task(newer.wait_for_those_of(announce(id_))) for id_ in FLEET]
    await asyncio.sleep(0)
    before = dict(behind.mirror.snapshot.assignments)
    proxy.mend()
    await asyncio.gather(*waiting)

    assert {} == before
    assert set(FLEET) == set(behind.mirror.snapshot.assignments)


async def test_only_who_is_new_and_has_more_than_our_records_say_waits(enter: Enter) -> None:
    """If this failed, every announce would cost a request to ZooKeeper."""
    leader = await leader_with_bundle(enter)
    await leader.zk.create(paths.supervisor(FLEET[0]), encode(supervisor(FLEET[0])))
    await leader.mirror.sync(5.0)
    await leader.distributions.begin(request("r1"), DistributionOrder(BUNDLE), lambda _: None)
    snapshot = await leader.mirror.sync(5.0)

    assert not knows_more(snapshot, announce(FLEET[0]), nobody)
    assert knows_more(snapshot, announce(FLEET[1]), nobody)
    assert not knows_more(snapshot, announce(FLEET[1]), lambda peer, digest: True)
    assert not knows_more(snapshot, announce(FLEET[1], complete=True), nobody)
    assert not knows_more(snapshot, announce("c1", PeerRole.CLIENT), nobody)


async def test_an_announce_is_answered_from_the_newer_records(enter: Enter, proxy: TcpProxy) -> None:
    """If this failed, a master that does not wait would answer without the other peers."""
    leader = await leader_with_bundle(enter)
    for id_ in FLEET:
        await leader.zk.create(paths.supervisor(id_), encode(supervisor(id_)))
    behind = await enter("m2", servers=[proxy.address])
    await leader.mirror.sync(5.0)
    known: list[set[SupervisorId]] = []

    def hear(announce: SwarmAnnounce, sender: AnnounceSender, _: object) -> SwarmAnswer:
        known.append(set(behind.mirror.snapshot.assignments))
        return SwarmAnswer(interval=1.0, you=sender.address)

    swarms = cast(Any, SimpleNamespace(hear=hear))
    bundles = HostBundles(lambda: behind.mirror.snapshot, lambda digest: [])
    api = SwarmApi(NewerRecords(behind.mirror, nobody), swarms, bundles, cast(Any, None), members_only=False)
    app = Authentication(api_app(api.operations()), None)
    proxy.hold_answers()
    await leader.distributions.begin(request("r1"), DistributionOrder(BUNDLE), lambda _: None)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://m") as http:
        asking = asyncio.create_task(http.post("/v1/swarm", content=msgspec.json.encode(announce(FLEET[0]))))
        await asyncio.sleep(0.05)
        early = list(known)
        proxy.mend()
        answer = await asking

    assert [] == early
    assert [set(FLEET)] == known
    assert 200 == answer.status_code
