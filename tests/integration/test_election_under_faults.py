"""Many faults in a row: acts of leaders follow the order of epochs, with one master per epoch."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from contextlib import suppress

import pytest
from contenders import master_record
from kazoo.handlers.threading import KazooTimeoutError
from zookeeper_fixtures import Connect, TcpProxy, expire

from torrentdist.cluster import paths
from torrentdist.cluster.election.elector import Elector
from torrentdist.cluster.records.registration import Registration
from torrentdist.cluster.session.znode_operations import Create, TransactionFailed
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.dev.embedded_zookeeper import EmbeddedZooKeeper
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import MasterId

pytestmark = pytest.mark.anyio

SECONDS = 6.0


async def act(elector: Elector, name: str) -> None:
    """Acts as leader whenever this master believes that it leads, and sometimes a little later."""
    while True:
        try:
            fence = elector.fence()
            for _ in range(3):
                await asyncio.sleep(random.uniform(0, 0.02))
                await fence.commit([Create("/acts/a-", f"{fence.epoch} {name}".encode(), sequential=True)])
        except (TorrentdistError, TransactionFailed):
            await asyncio.sleep(0.02)


@pytest.mark.case("D16")
@pytest.mark.case("D5")
async def test_no_act_of_an_old_epoch(zookeeper: EmbeddedZooKeeper, connect: Connect) -> None:
    """If this fails, two masters act as leader in one epoch, or a deposed one acts after its
    successor."""
    seed = secrets.randbits(32)
    rng = random.Random(seed)
    print("seed", seed)
    observer = await connect()
    await observer.ensure("/acts")
    proxies, clients, electors, actors, registrations = [], [], [], [], []
    for n in range(3):
        proxy = TcpProxy(zookeeper.servers[0])
        await proxy.start()
        zk = await connect(servers=[proxy.address], session_timeout_secs=1.0)
        name = f"m{n}"
        registration = Registration(zk, master_record(name))
        await registration.start()
        elector = Elector(zk, MasterId(name), lambda: asyncio.sleep(0, rng.random() < 0.8), pause_secs=0.05)
        await elector.queue_up()
        proxies.append(proxy)
        clients.append(zk)
        electors.append(elector)
        registrations.append(registration)
        actors.append(asyncio.create_task(act(elector, name)))
    await _harass(rng, zookeeper, observer, proxies, clients)
    for actor in actors:
        actor.cancel()
    for elector, registration, proxy in zip(electors, registrations, proxies, strict=True):
        await elector.leave_queue()
        await registration.close()
        await proxy.close()
    acts = await _acts(observer)
    epochs = [epoch for epoch, _ in acts]
    print(len(acts), "acts in", len(set(epochs)), "epochs")

    assert epochs == sorted(epochs)
    assert len(set(acts)) == len(set(epochs))
    assert len(set(epochs)) > 1, "the faults changed nothing"
    assert len(acts) > 30, "nobody led for long"


async def _harass(
    rng: random.Random,
    zookeeper: EmbeddedZooKeeper,
    observer: ZooKeeper,
    proxies: list[TcpProxy],
    clients: list[ZooKeeper],
) -> None:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        await asyncio.sleep(rng.uniform(0.02, 0.15))
        victim = rng.randrange(len(proxies))
        match rng.randrange(5):
            case 0 | 1:
                proxies[victim].drop()
            case 2:
                proxies[victim].hold_answers()
            case 3:
                if clients[victim].session_id is not None:
                    # The victim takes its session back as often as the thief takes it over.
                    with suppress(KazooTimeoutError):
                        await expire(clients[victim], zookeeper.addresses)
            case 4:
                names = await observer.children(paths.ELECTION)
                with suppress(Exception):
                    await observer.delete(paths.election_node(rng.choice(names or [""])))
        if rng.random() < 0.4:
            rng.choice(proxies).mend()
    for proxy in proxies:
        proxy.mend()


async def _acts(observer: ZooKeeper) -> list[tuple[int, str]]:
    names = sorted(await observer.children("/acts") or ())
    found = [await observer.get(f"/acts/{name}") for name in names]
    pairs = [node[0].decode().split(" ") for node in found if node]
    return [(int(epoch), name) for epoch, name in pairs]
