"""What our client relies on in ZooKeeper: one suite for the real server and for the simulated one
of tests/simulation."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from simulation.operating_system import simulated
from simulation.virtual_loop import VirtualLoop
from zookeeper_fixtures import PATIENT, eventually, write_auth
from zookeeper_fixtures import expire as expire_at_server

from torrentdist.cluster.session.founding import found_cluster
from torrentdist.cluster.session.znode_operations import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionState,
    Set,
    Stat,
    TransactionFailed,
)
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.model.configuration.config import ZooKeeperConfig

Connect = Callable[..., Awaitable[ZooKeeper]]
Expire = Callable[[ZooKeeper], Awaitable[None]]
Scenario = Callable[[Connect, Expire], Coroutine[Any, Any, None]]
Play = Callable[[Scenario], None]


def connector(clients: list[ZooKeeper], servers: list[str], chroot: str) -> Connect:
    async def connect(resume: Any = None, *, auth_file: str = "", is_founder: bool = True) -> ZooKeeper:
        config = ZooKeeperConfig(servers=servers, chroot=chroot, auth_file=auth_file, **PATIENT)
        client = ZooKeeper(config, resume)
        clients.append(client)
        await client.start(10.0)
        if is_founder:
            await found_cluster(client)
        return client

    return connect


async def play(scenario: Scenario, servers: list[str], expire: Expire) -> None:
    clients: list[ZooKeeper] = []
    try:
        await scenario(connector(clients, servers, f"/test-{secrets.token_hex(6)}"), expire)
    finally:
        await asyncio.gather(*(client.close() for client in clients))


@pytest.fixture(params=["real", "simulated"])
def on(request: pytest.FixtureRequest) -> Play:
    """Plays a scenario on one of the two servers."""
    if request.param == "real":
        servers = request.getfixturevalue("zookeeper").addresses
        return lambda scenario: asyncio.run(play(scenario, servers, expire_at_server))

    def on_simulated(scenario: Scenario) -> None:
        loop = VirtualLoop(random.Random(1))
        with simulated(loop, 1) as server:

            async def expire(client: ZooKeeper) -> None:
                server.end_session(client.session_id or 0)

            loop.run_until_complete(play(scenario, ["zookeeper:2181"], expire))

    return on_simulated


def test_versions_guard_writes(on: Play) -> None:
    """If the simulated server differs, its stories show no lost race between two masters."""

    async def scenario(connect: Connect, _: Expire) -> None:
        zk = await connect()
        await zk.create("/a", b"1")
        stat = await zk.set("/a", b"2", 0)
        found = await zk.get("/a")

        assert found == (b"2", stat)
        assert stat.version == 1
        with pytest.raises(BadVersion):
            await zk.set("/a", b"", 0)
        with pytest.raises(NodeExists):
            await zk.create("/a")
        with pytest.raises(NoNode):
            await zk.create("/none/a")
        await zk.create("/a/b")
        with pytest.raises(NotEmpty):
            await zk.delete("/a")

    on(scenario)


def test_a_transaction_is_whole_or_nothing(on: Play) -> None:
    """If the simulated server differs, a story's leader writes half of a change, or is not told
    which operation was refused."""

    async def scenario(connect: Connect, _: Expire) -> None:
        zk = await connect()
        await zk.create("/a", b"1")
        before = await zk.exists("/")
        with pytest.raises(TransactionFailed) as refused:
            await zk.commit([Create("/b"), Set("/a", b"2"), Delete("/a", 0), Check("/none")])
        done = await zk.commit([Create("/s-", sequential=True), Set("/a", b"3"), Delete("/a", 1)])

        assert (refused.value.index, type(refused.value.reason)) == (2, BadVersion)
        assert before is not None
        assert str(done[0]).startswith("/s-00000")
        assert isinstance(done[1], Stat)
        assert await zk.exists("/a") is None
        assert await zk.exists("/b") is None

    on(scenario)


def test_sequence_numbers_never_come_again(on: Play) -> None:
    """If the simulated server differs, two masters of a story have the same place in the queue."""

    async def scenario(connect: Connect, _: Expire) -> None:
        zk = await connect()
        await zk.create("/q")
        first = await zk.create("/q/n-", sequential=True)
        await zk.delete(first)
        await zk.create("/q/other")
        last = await zk.create("/q/n-", sequential=True)

        assert (first, last) == ("/q/n-0000000000", "/q/n-0000000002")

    on(scenario)


def test_watches_fire_once_and_before_the_answer_that_follows(on: Play) -> None:
    """If the simulated server differs, a story's mirror reads old records as new, or in circles."""

    async def scenario(connect: Connect, _: Expire) -> None:
        zk, other = await connect(), await connect()
        await zk.create("/a", b"0")
        fired: list[str] = []
        await zk.get("/a", lambda: fired.append("data"))
        await zk.children("/a", lambda: fired.append("children"))
        await zk.exists("/b", lambda: fired.append("created"))
        await other.set("/a", b"1")
        await other.create("/a/1")
        await other.create("/b")
        await other.set("/a", b"2")
        await zk.sync()

        assert sorted(fired) == ["children", "created", "data"]

    on(scenario)


def test_both_watches_of_a_deleted_znode_fire(on: Play) -> None:
    """If the simulated server differs, a story's host waits for ever for a barrier that is gone."""

    async def scenario(connect: Connect, _: Expire) -> None:
        zk, other = await connect(), await connect()
        await zk.create("/a")
        fired: list[str] = []
        await zk.get("/a", lambda: fired.append("data"))
        await zk.children("/a", lambda: fired.append("children"))
        await zk.children("/", lambda: fired.append("parent"))
        await other.delete("/a")
        await zk.sync()

        assert sorted(fired) == ["children", "data", "parent"]

    on(scenario)


def test_the_end_of_a_session_takes_its_ephemeral_znodes(on: Play) -> None:
    """If the simulated server differs, no leader of a story is ever deposed."""

    async def scenario(connect: Connect, expire: Expire) -> None:
        zk, other = await connect(), await connect()
        states: list[SessionState] = []
        zk.on_state.append(states.append)
        await zk.create("/here", ephemeral=True)
        await zk.create("/stays")
        generation, gone = zk.generation, asyncio.Event()
        await other.exists("/here", gone.set)
        await expire(zk)
        await eventually(lambda: zk.generation > generation and zk.state is SessionState.CONNECTED)
        await eventually(gone.is_set)

        assert await other.exists("/here") is None
        assert await other.exists("/stays") is not None
        assert SessionState.LOST in states

    on(scenario)


def test_a_session_can_be_taken_over(on: Play) -> None:
    """If the simulated server differs, a story's supervisor that restarts loses its barriers."""

    async def scenario(connect: Connect, _: Expire) -> None:
        zk, other = await connect(), await connect()
        await zk.create("/here", ephemeral=True)
        session = zk.session
        await zk.abandon()
        again = await connect(resume=session)
        found = await other.exists("/here")

        assert found is not None
        assert (found.ephemeral_owner, again.session_id) == (session.id if session else 0, again.session_id)

    on(scenario)


def test_a_znode_is_closed_to_other_users(on: Play, tmp_path: Path) -> None:
    """If the simulated server differs, no story shows a host that writes what it must not, or
    cannot write what it has to."""
    ours, theirs = (write_auth(tmp_path / name, f"{name}:password-of-{name}") for name in ("ann", "bob"))

    async def scenario(connect: Connect, _: Expire) -> None:
        ann = await connect(auth_file=ours)
        await ann.create("/closed", b"1")
        await ann.create("/closed/below", b"1")
        bob = await connect(auth_file=theirs, is_founder=False)
        missing = await bob.exists("/closed/missing")
        asked = [
            bob.get("/closed"), bob.children("/closed"), bob.set("/closed", b"2"), bob.delete("/closed/below"),
            bob.create("/closed/own", b""), bob.commit([Set("/closed", b"2")]), bob.acls("/closed"),
            bob.exists("/closed"),
        ]  # fmt: skip
        answers = await asyncio.gather(*asked, return_exceptions=True)
        again = await connect(auth_file=ours)
        found = await again.get("/closed")

        assert missing is None
        assert [getattr(answer, "code", answer) for answer in answers] == ["forbidden"] * len(asked)
        assert found is not None
        assert found[0] == b"1"

    on(scenario)
