"""Measures the rebalancing of a resource group for each algorithm: time, ZooKeeper requests and
lost work.

All members are in this process, each with its own ZooKeeper session; their callbacks take no time.
Requests are counted where they leave a member, keep-alives included. A transaction is one request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.results import Row
from torrentdist.cluster.paths import GroupPaths
from torrentdist.cluster.rebalance import Algorithm, ResourceGroup, Settings, add_resource, join
from torrentdist.cluster.session.founding import found_cluster
from torrentdist.cluster.session.znode_operations import Op, Result
from torrentdist.cluster.session.zookeeper_session import Watch, ZooKeeper
from torrentdist.dev.embedded_zookeeper import EmbeddedZooKeeper
from torrentdist.model.configuration.config import ZooKeeperConfig

GROUP = "bench"
SETTINGS = Settings(min_interval_secs=0.5)
PATIENCE_SECS = 60.0


class CountingZooKeeper(ZooKeeper):
    """Counts requests, notifications, and the bytes of plans."""

    def __init__(self, config: ZooKeeperConfig, counts: Counter[str]) -> None:
        super().__init__(config)
        self._counts = counts

    def _told(self, watch: Watch | None) -> Watch | None:
        if watch is None:
            return None

        def told() -> None:
            self._counts["notifications"] += 1
            watch()

        return told

    async def get(self, path: str, watch: Watch | None = None) -> Any:
        self._counts["get"] += 1
        return await super().get(path, self._told(watch))

    async def children(self, path: str, watch: Watch | None = None) -> list[str] | None:
        self._counts["children"] += 1
        return await super().children(path, self._told(watch))

    async def exists(self, path: str, watch: Watch | None = None) -> Any:
        self._counts["exists"] += 1
        return await super().exists(path, self._told(watch))

    async def sync(self) -> int:
        self._counts["sync"] += 1
        return await super().sync()

    async def commit(self, ops: list[Op] | tuple[Op, ...]) -> list[Result]:  # type: ignore[override]
        if len(ops) == 1:
            self._counts["keep-alives and places"] += 1
        else:
            self._counts["transactions"] += 1
            self._counts["operations in transactions"] += len(ops)
        return await super().commit(ops)


READS = ("get", "children", "exists", "sync")
REQUESTS = (*READS, "transactions", "keep-alives and places")


@dataclass(frozen=True)
class Rebalancing:
    algorithm: Algorithm
    what: str
    seconds: float
    requests: int
    operations: int
    notifications: int
    stopped: int
    """Members whose work was interrupted."""
    lost: float
    """Resource-seconds without work, counted from the first stop."""
    counts: dict[str, int]


class GroupBench:
    def __init__(self, server: EmbeddedZooKeeper, algorithm: Algorithm, resources: int) -> None:
        self.algorithm = algorithm
        self.resources = resources
        self.config = ZooKeeperConfig(
            servers=server.addresses, chroot=f"/{algorithm.value}", session_timeout_secs=40.0, operation_timeout_secs=20
        )
        self.counts: Counter[str] = Counter()
        self.members: list[tuple[ZooKeeper, ResourceGroup]] = []
        self.working: dict[str, int] = {}
        self.changed_at = 0.0
        self.lost = 0.0
        self._moved = asyncio.Event()

    async def client(self) -> ZooKeeper:
        zk = CountingZooKeeper(self.config, self.counts)
        await zk.start(60.0)
        await found_cluster(zk)
        return zk

    async def add(self) -> None:
        zk, mine = await self.client(), dict[str, int]()

        async def on_start(resources: Mapping[str, int]) -> None:
            self._account()
            mine.update(resources)
            for resource in resources:
                self.working[resource] = self.working.get(resource, 0) + 1

        async def on_stop() -> None:
            self._account()
            self.counts["stopped"] += 1
            for resource in mine:
                self.working[resource] -= 1
            mine.clear()

        group = await join(
            zk, GROUP, on_start=on_start, on_stop=on_stop, algorithm=self.algorithm, settings=SETTINGS, timeout=60.0
        )
        self.members.append((zk, group))

    async def remove(self) -> None:
        zk, group = self.members.pop()
        await group.leave()
        await zk.close()

    def _account(self) -> None:
        now = time.perf_counter()
        idle = self.resources - sum(count > 0 for count in self.working.values())
        self.lost += idle * (now - self.changed_at)
        self.changed_at = now
        self._moved.set()

    def balanced(self) -> bool:
        loads = [len(group.resources) for _, group in self.members]
        return sum(loads) == self.resources and max(loads) - min(loads) <= 1

    async def until_balanced(self) -> None:
        async with asyncio.timeout(PATIENCE_SECS):
            while not self.balanced():
                self._moved.clear()
                await self._moved.wait()
                await asyncio.sleep(0)

    async def measure(self, what: str, change: Callable[[], Awaitable[None]]) -> Rebalancing:
        await asyncio.sleep(2 * SETTINGS.min_interval_secs)
        self.counts.clear()
        self.changed_at, self.lost = time.perf_counter(), 0.0
        began = time.perf_counter()
        await change()
        await self.until_balanced()
        seconds = time.perf_counter() - began
        await asyncio.sleep(0.2)  # the last members may still send something
        counts = dict(self.counts)
        return Rebalancing(
            self.algorithm,
            what,
            round(seconds, 3),
            sum(counts.get(kind, 0) for kind in REQUESTS),
            counts.get("operations in transactions", 0),
            counts.get("notifications", 0),
            counts.get("stopped", 0),
            round(self.lost, 2),
            {kind: counts[kind] for kind in REQUESTS if kind in counts},
        )


async def measured(algorithm: Algorithm, members: int, resources: int, directory: Path) -> list[Rebalancing]:
    server = EmbeddedZooKeeper(directory)
    await asyncio.to_thread(server.start)
    try:
        bench = GroupBench(server, algorithm, resources)
        for _ in range(members - 1):
            await bench.add()
        admin = await bench.client()
        tree = GroupPaths(GROUP)

        async def fill() -> None:
            for start in range(0, resources, 50):
                await asyncio.gather(*(add_resource(admin, GROUP, f"r{n}") for n in range(start, start + 50)))

        await fill()
        await bench.until_balanced()
        found = [
            await bench.measure("one member comes", bench.add),
            await bench.measure("one member goes", bench.remove),
            await bench.measure("the coordinator goes", lambda: first_goes(bench)),
        ]
        assert len(await admin.children(tree.resources) or ()) == resources
        while bench.members:
            await bench.remove()
        await admin.close()
        return found
    finally:
        await asyncio.to_thread(server.kill)


async def first_goes(bench: GroupBench) -> None:
    bench.members.reverse()
    await bench.remove()


def run(members: int, resources: int) -> list[Rebalancing]:
    rows: list[Rebalancing] = []
    for algorithm in Algorithm:
        with tempfile.TemporaryDirectory(prefix="torrentdist-groups-") as directory:
            rows += asyncio.run(measured(algorithm, members, resources, Path(directory)))
    return rows


def measure(*, members: int = 50, resources: int = 1000) -> list[Row]:
    """Returns rows for the table of all measurements."""
    return [
        Row(
            key=f"groups_{row.algorithm.value}_{row.what.replace(' ', '_')}",
            what=f"{resources} resources over {members} members, {row.what}: {row.algorithm.value.replace('_', ' ')}",
            ours=row.seconds,
            unit="s",
            note=f"{row.requests} requests, {row.operations} operations in transactions, {row.notifications} "
            f"notifications; {row.stopped} members stopped, {row.lost:g} resource-seconds without work",
        )
        for row in run(members, resources)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.measures.groups", description=__doc__)
    parser.add_argument("--members", type=int, default=50)
    parser.add_argument("--resources", type=int, default=1000)
    args = parser.parse_args()
    columns = ("algorithm", "change", "seconds", "requests", "operations in transactions", "notifications", "members")
    print("| " + " | ".join((*columns, "resource-seconds lost")) + " |\n|" + "---|" * 8)
    for row in run(args.members, args.resources):
        name = row.algorithm.value.replace("_", " ")
        cells = (name, row.what, row.seconds, row.requests, row.operations, row.notifications, row.stopped, row.lost)
        print("| " + " | ".join(map(str, cells)) + " |")
        print(f"<!-- {json.dumps(row.counts)} -->")


if __name__ == "__main__":
    main()
