"""What a host does while its writes to ZooKeeper are unanswered: whom it asks, and until when what
they say lets its workers run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import msgspec
import pytest

from torrentdist.cluster.rebalance.barrier_ownership import NEVER, BarrierLease
from torrentdist.http.connection_pool import Http
from torrentdist.http.http_values import Answer, ConnectError
from torrentdist.model.ids import MasterId, SupervisorId
from torrentdist.model.wire.ha_views import OutageView
from torrentdist.supervisor.exclusivity.barriers import Barriers, HostLease
from torrentdist.supervisor.exclusivity.isolation import (
    ASK_AGAIN_SECS,
    FORGET_SECS,
    IDLE_LOOK_SECS,
    LOOK_SECS,
    PROOF_SECS,
    SHORTEST_LOOK_SECS,
    Isolation,
    look_secs,
)
from torrentdist.supervisor.exclusivity.lease_file import Inherited, ToProve

AHEAD = 50.0
"""How far the host's clock is ahead of the monotonic one."""
SENT, TIMEOUT, ENDING = 1000.0, 40.0, 4.0
LEASE = BarrierLease(SENT, TIMEOUT)
OVERDUE = LEASE.renewal + TIMEOUT / 40
"""From when on a write counts as unanswered."""
BLIND = OutageView(sees=False, newest=7)
M1, M2, M3 = (MasterId(name) for name in ("m1", "m2", "m3"))


@dataclass
class World:
    """A host with its lease, and the masters that it can ask."""

    monkeypatch: pytest.MonkeyPatch
    answers: dict[MasterId, OutageView | bytes | None] = field(default_factory=dict)
    registered: dict[MasterId, str] = field(default_factory=dict)
    known_at: float = SENT
    lease: BarrierLease = LEASE
    timeout: float = TIMEOUT
    ending_secs: float = ENDING
    busy: bool = True
    generation: int = 7
    prolongations: int = 0
    asked: list[MasterId] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.isolation = Isolation(cast(Http, self), SupervisorId("h1"), self)
        self.masters_are(dict.fromkeys((M1, M2), BLIND))

    def masters_are(self, answers: Mapping[MasterId, OutageView | bytes | None]) -> None:
        self.answers = dict(answers)
        self.registered = {id_: url_of(id_) for id_ in answers}

    def at(self, now: float) -> bool:
        """Looks for a proof at this time, and returns whether one was needed."""
        self.set_clock(now)
        return asyncio.run(self.isolation.prolong(cast(Barriers, self), self))

    def set_clock(self, now: float) -> None:
        self.monkeypatch.setattr(time, "monotonic", lambda: now)
        self.monkeypatch.setattr(time, "clock_gettime", lambda _: now + AHEAD)

    @property
    def proven(self) -> float:
        """Until when a proof lets workers run, on the monotonic clock."""
        return self.isolation.proven - AHEAD

    # what the host asks for

    @property
    def leased(self) -> bool:
        return self.lease.sent != NEVER

    def host_lease(self) -> HostLease:
        return HostLease(1, self.lease.stop + AHEAD, self.lease.end + AHEAD, 0.0)

    def masters(self) -> Mapping[MasterId, str]:
        return self.registered

    def prolonged(self) -> None:
        self.prolongations += 1

    async def get(self, url: str, *, params: Mapping[str, str]) -> Answer:
        assert {"supervisor": "h1", "within": "0.3"} == params
        (master,) = (id_ for id_ in self.answers if f"{url_of(id_)}/v1/sight" == url)
        self.asked.append(master)
        answer = self.answers[master]
        if answer is None:
            raise ConnectError
        return Answer(200, content=answer if isinstance(answer, bytes) else msgspec.json.encode(answer))


def url_of(master: MasterId) -> str:
    return f"http://{master}"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_workers_run_on_while_no_master_sees_zookeeper(world: World) -> None:
    """If this failed, an outage of ZooKeeper would end every job that may run on."""
    assert world.at(OVERDUE + 1)
    assert OVERDUE + 1 + PROOF_SECS == world.proven
    assert ([M1, M2], 1) == (world.asked, world.prolongations)
    assert world.at(OVERDUE + 2)
    assert OVERDUE + 2 + PROOF_SECS == world.proven


@pytest.mark.parametrize(
    "other",
    [
        None,
        b"{}",
        OutageView(sees=True, newest=7),
        OutageView(sees=False, newest=8),
        OutageView(sees=False, newest=None),
    ],
    ids=["silent", "no master", "sees", "knows a newer assignment", "may know one"],
)
def test_one_master_is_enough_to_prevent_a_proof(world: World, other: OutageView | bytes | None) -> None:
    """C12: the worker would run twice, since that master may have given it to another host."""
    world.masters_are({M1: BLIND, M2: other})

    assert world.at(OVERDUE + 1)
    assert (NEVER, 0) == (world.proven, world.prolongations)


def test_nobody_is_asked_while_writes_are_answered_or_nothing_runs(world: World) -> None:
    """If this failed, every host would ask every master all the time."""
    assert not world.at(OVERDUE)
    world.busy = False
    assert not world.at(OVERDUE + 1)
    assert ([], NEVER) == (world.asked, world.proven)


@pytest.mark.parametrize(("late", "proven"), [(-0.5, True), (0.0, False), (0.5, False)])
def test_a_proof_counts_only_if_it_was_asked_for_in_time(world: World, late: float, proven: bool) -> None:
    """C12: a worker would run on whose place was given away before the masters were asked."""
    world.at(LEASE.end + late)

    assert proven is (world.proven > NEVER)


@pytest.mark.parametrize(("late", "again"), [(-0.5, True), (0.0, False)])
def test_a_proof_makes_time_for_the_next_one(world: World, late: float, again: bool) -> None:
    """If this failed, a job that may run on would end after one lease, or never."""
    world.at(LEASE.end - 1)
    first = world.proven
    world.at(first + ENDING + late)

    assert again is (world.proven > first)


def test_a_master_that_others_name_is_asked_until_zookeeper_is_back(world: World) -> None:
    """C12: a master that this host has never seen could lead, and give its workers away."""
    named = OutageView(sees=False, newest=7, masters={M1: url_of(M1), M3: url_of(M3)})
    world.answers |= {M1: named, M3: None}

    world.at(OVERDUE + 1)
    assert ([M1, M2], NEVER) == (world.asked, world.proven)
    world.answers |= {M1: BLIND}
    world.at(OVERDUE + 2)
    assert ([M1, M2, M3], NEVER) == (world.asked[2:], world.proven)
    world.answers |= {M3: BLIND}
    world.at(OVERDUE + 3)
    assert OVERDUE + 3 + PROOF_SECS == world.proven

    world.lease = BarrierLease(OVERDUE + 4, TIMEOUT)
    world.known_at = OVERDUE + 4
    world.at(OVERDUE + 4)
    world.lease, world.known_at, world.asked = LEASE, SENT, []
    world.at(OVERDUE + 5)
    assert [M1, M2] == world.asked, "the next outage begins with the masters that are known here"


@pytest.mark.parametrize(("later", "counts"), [(FORGET_SECS - 1, True), (FORGET_SECS, False)])
def test_a_master_counts_for_a_while_after_its_registration(world: World, later: float, counts: bool) -> None:
    """C12: a master that was cut off a moment ago may return and lead before this host hears of
    it."""
    world.at(SENT)
    world.registered.pop(M2)
    world.lease = BarrierLease(SENT + later - 20.0, TIMEOUT)
    world.known_at = SENT + later
    world.at(SENT + later)

    assert ([M1, M2] if counts else [M1]) == world.asked


def test_a_host_that_has_not_looked_since_its_last_write_gets_no_proof(world: World) -> None:
    """C12: a master that came between the look and the write could lead unseen."""
    world.known_at = SENT - 0.1
    world.at(OVERDUE + 1)

    assert NEVER == world.proven
    world.set_clock(OVERDUE + 2)
    assert ToProve(TIMEOUT, {M1: (url_of(M1), OVERDUE + 2 + AHEAD), M2: (url_of(M2), OVERDUE + 2 + AHEAD)}) == left(
        world
    )
    world.known_at = SENT
    assert left(world).informed


def left(world: World) -> ToProve:
    return world.isolation.for_next_process(cast(Barriers, world))


@pytest.mark.parametrize("informed", [True, False])
@pytest.mark.parametrize(("late", "in_time"), [(-0.5, True), (0.0, False)])
def test_the_next_process_goes_on_with_what_was_left(world: World, informed: bool, late: float, in_time: bool) -> None:
    """If this failed, an update of the supervisor during an outage would end every job, or let a
    worker run twice."""
    kill = LEASE.end + AHEAD
    world.registered, world.lease = {}, BarrierLease()
    seen = {id_: (url_of(id_), SENT + AHEAD) for id_ in (M1, M2)}
    world.isolation.resume(Inherited(kill=kill, proven=kill - 10.0, to_prove=ToProve(TIMEOUT, seen, informed)))
    was_proven = world.proven

    assert (informed and in_time) is world.at(LEASE.end + late)
    assert (LEASE.end - 10.0 if informed else NEVER) == was_proven
    assert (informed and in_time) is (world.proven > was_proven)
    assert ([M1, M2] if informed and in_time else []) == world.asked


@pytest.mark.parametrize(
    ("timeout", "busy", "secs"),
    [(10.0, True, 0.5), (0.5, True, SHORTEST_LOOK_SECS), (60.0, True, LOOK_SECS), (10.0, False, IDLE_LOOK_SECS)],
)
def test_a_host_looks_more_often_the_shorter_its_session(timeout: float, busy: bool, secs: float) -> None:
    """If this failed, the lease would be over before the first question, or an idle host would be
    busy."""
    assert secs == look_secs(timeout, busy=busy)


@pytest.mark.parametrize(("now", "pause"), [(SENT, LOOK_SECS), (OVERDUE + 1, ASK_AGAIN_SECS)])
def test_the_host_pauses_between_two_looks(world: World, now: float, pause: float) -> None:
    """If this failed, a host would do nothing but ask during an outage, or ask too late."""
    pauses: list[float] = []

    async def sleep(secs: float) -> None:
        pauses.append(secs)
        raise asyncio.CancelledError

    world.set_clock(now)
    world.monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(world.isolation.watch(cast(Barriers, world), world))

    assert [pause] == pauses
