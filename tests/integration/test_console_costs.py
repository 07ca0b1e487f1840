"""What the console costs a master of 1,000 hosts and 500 bundles: the size and the processor time
of its first page, and how often and for how long it makes what open pages show.

A master counts the processor time of the live parts by itself, so nothing else that it does is
measured with them."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx
import msgspec
import pytest
from cluster_fixtures import Cluster, make_source, running_cluster, until
from quick_callbacks import overlook_start

from torrentdist.cluster import paths
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.model.configuration.config import ZooKeeperConfig
from torrentdist.model.ids import BundleId, Digest, PeerId, StoreId, SupervisorId
from torrentdist.model.records import BundleRecord, BundleState, SupervisorRecord, encode
from torrentdist.model.wire.headers import CLIENT
from torrentdist.model.wire.job_messages import HeartbeatBody
from torrentdist.model.wire.swarm_messages import PeerRole, SwarmAnnounce, SwarmEntry

pytestmark = pytest.mark.alone

HOSTS, BUNDLES = 1000, 500
FETCHING = 100
"""Hosts that are on their way. More would be a crowd, whose plan costs more than the console."""
SIZE = 200_000
PAGE_BYTES, PAGE_SECS, OPEN_SHARE = 30_000, 0.050, 0.01
PAGES = 20
OPEN_SECS = 6.0
BROWSERS = 3
"""Browsers that show the same page."""
ANNOUNCES_PER_SEC = 40
"""Number of announces that 100 fetching hosts send per second."""
AT_ONCE = 50
SETTINGS = {
    "swarm": {"fetching_secs": 600.0, "seeding_secs": 600.0},
    "replication": {"lost_secs": 86_400.0},
    "jobs": {"silent_secs": 0.0},
}
"""What is announced once stays, so that the figures are of the console alone."""


def supervisor(number: int) -> SupervisorRecord:
    id_ = SupervisorId(f"host-{number:04}")
    return SupervisorRecord(
        id=id_, host="127.0.0.1", gateway="", swarm_port=9, store=StoreId(f"store-{id_}"), version="1", speaks=1
    )


def bundle(number: int, digest: Digest) -> BundleRecord:
    """Returns one of many bundles with the same content, which the master has. Each lacks a copy,
    so that the overview has much to tell."""
    return BundleRecord(
        id=BundleId(f"bundle-{number:03}"),
        digest=digest,
        size=SIZE,
        files=1,
        state=BundleState.AVAILABLE,
        min_replicas=2,
        created_at=time.time(),
    )


async def register(zookeeper: ZooKeeper, digest: Digest) -> None:
    room = asyncio.Semaphore(AT_ONCE)

    async def create(path: str, data: bytes, *, ephemeral: bool = False) -> None:
        async with room:
            await zookeeper.create(path, data, ephemeral=ephemeral)

    async with asyncio.TaskGroup() as tasks:
        for number in range(HOSTS):
            record = supervisor(number)
            tasks.create_task(create(paths.supervisor(record.id), encode(record), ephemeral=True))
        for number in range(BUNDLES):
            record_of = bundle(number, digest)
            tasks.create_task(create(paths.bundle(record_of.id), encode(record_of)))


@dataclass(frozen=True)
class Fleet:
    """A master, and the hosts that are simulated for it."""

    cluster: Cluster
    digest: Digest
    steps: Iterator[int] = field(default_factory=partial(itertools.count, 1))
    """Never begin anew: a host that says the same again has not moved."""

    @property
    def url(self) -> str:
        return self.cluster.url("master-1")

    def client(self) -> httpx.AsyncClient:
        headers = {**self.cluster.dev.headers(), CLIENT: "1"}
        return httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=30.0, headers=headers)

    async def announce(self, http: httpx.AsyncClient, number: int, done: int) -> None:
        entry = SwarmEntry(digest=self.digest, complete=done == SIZE, done=done, size=SIZE, rate=1e5, from_peers=done)
        peer = PeerId(supervisor(number).id)
        said = SwarmAnnounce(peer=peer, role=PeerRole.SUPERVISOR, port=9, host="127.0.0.1", swarms=[entry])
        answer = await http.post("/v1/swarm", content=msgspec.json.encode(said))
        assert answer.status_code == 200, answer.text

    async def report(self, http: httpx.AsyncClient, number: int) -> None:
        said = HeartbeatBody(supervisor=supervisor(number).id, generation=0, workers=[])
        answer = await http.post("/v1/heartbeat", content=msgspec.json.encode(said))
        assert answer.status_code == 200, answer.text

    async def each(self, act: Callable[[httpx.AsyncClient, int], Awaitable[None]]) -> None:
        async with self.client() as http, asyncio.TaskGroup() as tasks:
            room = asyncio.Semaphore(AT_ONCE)

            async def one(number: int) -> None:
                async with room:
                    await act(http, number)

            for number in range(HOSTS):
                tasks.create_task(one(number))

    async def arrive(self) -> None:
        """Most hosts say that they have the bundle, some that they have half of it."""
        await self.each(lambda http, n: self.announce(http, n, SIZE if n < HOSTS - FETCHING else SIZE // 2))

    async def move(self) -> None:
        """The hosts that are on their way get further, for ever. One completes each second."""
        async with self.client() as http:
            for step in self.steps:
                number = HOSTS - FETCHING + step % FETCHING
                is_done = step % ANNOUNCES_PER_SEC == 0
                await self.announce(http, number, SIZE if is_done else SIZE // 2 + step)
                await asyncio.sleep(1 / ANNOUNCES_PER_SEC)

    async def watch(self, part: str) -> list[str]:
        """Returns what each browser is sent of one open page."""
        async with self.client() as http:
            query = {"timeout": f"{OPEN_SECS:g}"}
            get = [http.get(f"/ui/live/{part}", params=query, timeout=OPEN_SECS + 30) for _ in range(BROWSERS)]
            return [answer.text for answer in await asyncio.gather(*get)]

    def counted(self, name: str) -> float:
        told = self.cluster.http.get(f"{self.url}/metrics").text
        found = re.search(rf"(?m)^torrentdist_console_{name}_total\S* (\S+)$", told)
        assert found
        return float(found[1])


def processor_secs(cluster: Cluster, name: str) -> float:
    """Returns the processor time of a daemon so far."""
    fields = Path(f"/proc/{cluster.dev.member(name).pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    work = tmp_path_factory.mktemp("large")
    with running_cluster(SETTINGS, work=work, masters=1, supervisors=0) as cluster, asyncio.Runner() as runner:
        digest = Digest(cluster.upload(make_source(work / "seen", 1, SIZE), "seen", replicas=1)["digest"])
        zookeeper = ZooKeeper(ZooKeeperConfig(servers=[cluster.dev.state.zookeeper], chroot=cluster.root))
        runner.run(zookeeper.start(10.0))
        runner.run(register(zookeeper, digest))
        cluster.run("bundle", "distribute", "seen", "--wait", "0").ok()
        fleet = Fleet(cluster, digest)
        runner.run(fleet.arrive())
        last = f"{fleet.url}/v1/bundles/bundle-{BUNDLES - 1:03}"
        until(lambda: cluster.http.get(last).json()["replicas"] == 1, "the master has told of its copies", 60.0)
        cluster.http.get(f"{fleet.url}/ui/")  # the first look at so many records walks over all of them
        overlook_start()  # so many records come at once nowhere else
        yield fleet
        runner.run(zookeeper.close())


def test_the_first_page_is_small_and_quick(large: Fleet) -> None:
    """An operator of a large fleet would wait for the page, and hold up its master by it."""
    cluster, html = large.cluster, {"Accept": "text/html"}
    page = cluster.http.get(f"{large.url}/ui/", headers=html)
    began = processor_secs(cluster, "master-1")
    for _ in range(PAGES):
        cluster.http.get(f"{large.url}/ui/", headers=html)
    took = (processor_secs(cluster, "master-1") - began) / PAGES

    assert "1,000" in page.text
    print(f"first page: {len(page.content):,} bytes, {took * 1000:.1f} ms of processor time")
    assert len(page.content) <= PAGE_BYTES
    assert took <= PAGE_SECS


@pytest.mark.parametrize("part", ["overview", "bundles/seen"])
def test_an_open_page_is_made_once_while_nothing_changes(large: Fleet, part: str) -> None:
    """A console that hangs on a wall would cost its master all day what a distribution costs. It
    takes long: many browsers are shown a page."""

    async def play() -> tuple[float, float, list[str]]:
        await large.each(large.report)  # nobody is silent for a while
        parts, secs = large.counted("parts"), large.counted("seconds")
        shown = await large.watch(part)
        return large.counted("parts") - parts, large.counted("seconds") - secs, shown

    made, took, shown = asyncio.run(play())

    print(f"open page {part}, at rest: made {made:g} times, {took / OPEN_SECS:.3%} of a processor")
    assert all(text.count(": the same") >= OPEN_SECS / 2 for text in shown)
    assert made <= 2
    overlook_start()


@pytest.mark.parametrize("part", ["overview", "bundles/seen"])
def test_an_open_page_costs_next_to_nothing_while_hosts_fetch(large: Fleet, part: str) -> None:
    """Three operators who watch a distribution would slow it down."""

    async def play() -> tuple[float, float, list[str]]:
        before = large.counted("parts")
        moving, watching = asyncio.create_task(large.move()), asyncio.create_task(large.watch(part))
        # What it costs to open the page is another matter.
        await asyncio.to_thread(until, lambda: large.counted("parts") > before, "the page is open")
        parts, secs = large.counted("parts"), large.counted("seconds")
        shown = await watching
        assert not moving.done(), moving
        moving.cancel()
        return large.counted("parts") - parts, large.counted("seconds") - secs, shown

    made, took, shown = asyncio.run(play())

    print(
        f"open page {part}, moving: made {made:g} times again, {took / max(made, 1) * 1000:.1f} ms each,"
        f" {took / OPEN_SECS:.3%} of a processor"
    )
    assert 1 <= made <= OPEN_SECS + 1
    assert took / OPEN_SECS < OPEN_SHARE
    assert all(text.count("\n\n") >= OPEN_SECS / 2 for text in shown)
    overlook_start()
