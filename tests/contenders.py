"""Registered masters that queue for leadership, for tests of the election against a real
ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from zookeeper_fixtures import Connect, eventually

from torrentdist.cluster.election.elector import Elector
from torrentdist.cluster.election.term import Term
from torrentdist.cluster.records.registration import Registration
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.model.ids import MasterId, StoreId
from torrentdist.model.records import MasterRecord


@dataclass
class Contender:
    zk: ZooKeeper
    elector: Elector
    registration: Registration
    ready: bool = True
    asked: int = 0
    gained: list[Term] = field(default_factory=list)
    lost: list[Term] = field(default_factory=list)

    async def is_ready(self) -> bool:
        self.asked += 1
        return self.ready

    async def leads(self) -> None:
        await eventually(self.elector.is_leader)

    async def in_the_queue(self) -> bool:
        return self.registration.record.id in await self.elector.candidates()

    async def stop(self) -> None:
        await self.elector.leave_queue()
        await self.registration.close()


def master_record(name: str, store: str = "") -> MasterRecord:
    return MasterRecord(
        id=MasterId(name),
        host="h",
        port=1,
        url="http://h",
        swarm_port=2,
        store=StoreId(store or f"store-{name}"),
        version="0",
        started_at=0.0,
    )


Contend = Callable[..., Awaitable[Contender]]


@pytest.fixture
async def contend(connect: Connect) -> AsyncIterator[Contend]:
    """Makes masters: contend(name, client=None, ready=True, store="")."""
    contenders: list[Contender] = []

    async def make(name: str, zk: ZooKeeper | None = None, ready: bool = True, store: str = "") -> Contender:
        zk = zk or await connect()
        contender = Contender.__new__(Contender)
        elector = Elector(
            zk,
            MasterId(name),
            lambda: contender.is_ready(),
            on_gained=lambda term: contender.gained.append(term),
            on_lost=lambda term: contender.lost.append(term),
            pause_secs=0.1,
        )
        contender.__init__(zk, elector, Registration(zk, master_record(name, store)), ready)  # type: ignore[misc]
        contenders.append(contender)
        await contender.registration.start()
        await elector.queue_up()
        return contender

    yield make
    await asyncio.gather(*(contender.stop() for contender in contenders))
