"""How the leader goes round the records of requests and deletes the old ones."""

from __future__ import annotations

import asyncio
import time
from typing import cast

import pytest

from torrentdist.cluster import paths
from torrentdist.cluster.election.fence import Fence
from torrentdist.cluster.session.znode_operations import BadVersion, Delete, Stat, TransactionFailed
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.master.changes.answered_requests import BUCKETS_A_ROUND, LOOKS_A_ROUND, RequestTrimmer

KEEP_SECS = 640.0
NOW = 1000.0
OLD, YOUNG = NOW - KEEP_SECS - 1, NOW - 1
FEW = [f"{bucket}/r{n}" for bucket in paths.request_buckets() for n in range(2)]
MANY = [f"{bucket}/r{n:03}" for bucket in (paths.request_bucket("07"), paths.request_bucket("ff")) for n in range(900)]
FULL = [f"{paths.request_bucket('ff')}/r{n:03}" for n in range(LOOKS_A_ROUND)]


class Records:
    """The znodes of requests with the times at which they were written, and the fence that deletes
    them."""

    def __init__(self, written: dict[str, float], now: float | None = NOW) -> None:
        self.written, self._now = written, now
        self.looked: list[str] = []
        self.listed = 0
        self.buckets: list[str] | None = [paths.name(bucket) for bucket in reversed(paths.request_buckets())]
        self.changes_meanwhile = False

    def server_now(self) -> float | None:
        return self._now

    async def children(self, path: str) -> list[str] | None:
        if path == paths.REQUESTS:
            return self.buckets
        self.listed += 1
        names = [paths.name(request) for request in self.written if paths.parent(request) == path]
        return names[::-1] or None

    async def exists(self, path: str) -> Stat | None:
        self.looked.append(path)
        return Stat(4, 0, self.written[path], 1, 1) if path in self.written else None

    async def commit(self, ops: list[Delete]) -> None:
        if self.changes_meanwhile:
            raise TransactionFailed(list(ops), 0, BadVersion(ops[0].path))
        for op in ops:
            assert op.version == 4
            del self.written[op.path]

    def trimmer(self) -> RequestTrimmer:
        return RequestTrimmer(cast(ZooKeeper, self), KEEP_SECS)

    @property
    def fence(self) -> Fence:
        return cast(Fence, self)


@pytest.mark.parametrize(
    ("requests", "rounds"),
    [(FEW, 256 // BUCKETS_A_ROUND), (sorted(FEW + MANY), 20), (FULL, 256 // BUCKETS_A_ROUND), ([], 1)],
    ids=["few", "many", "as many as a round takes", "none"],
)
def test_each_circle_looks_at_every_request_once(requests: list[str], rounds: int) -> None:
    """B7: a record would stay for ever, or one round would take longer with more requests."""
    records = Records(dict.fromkeys(requests, YOUNG))
    trimmer = records.trimmer()
    for circle in (1, 2):
        for _ in range(rounds):
            before, records.listed = len(records.looked), 0
            is_over = asyncio.run(trimmer.trim(records.fence))
            looks = len(records.looked) - before

            assert looks <= LOOKS_A_ROUND
            assert is_over is (looks < LOOKS_A_ROUND)
            assert records.listed <= BUCKETS_A_ROUND

        assert requests * circle == records.looked


@pytest.mark.parametrize("left", [None, [], ["ff"]])
def test_buckets_that_are_gone_end_no_circle(left: list[str] | None) -> None:
    """B7: somebody who deletes buckets by hand would end the deletions of this leader."""
    records = Records(dict.fromkeys(FEW, YOUNG))
    trimmer = records.trimmer()
    asyncio.run(trimmer.trim(records.fence))
    whole, records.buckets = records.buckets, left
    for _ in range(2):
        asyncio.run(trimmer.trim(records.fence))
    records.buckets, records.looked = whole, []
    asyncio.run(trimmer.trim(records.fence))

    assert FEW[: 2 * BUCKETS_A_ROUND] == records.looked


def test_buckets_that_vanish_behind_the_last_round_end_no_circle() -> None:
    """B7: the leader would fail in each round from then on."""
    records = Records(dict.fromkeys(FEW, YOUNG))
    trimmer = records.trimmer()
    asyncio.run(trimmer.trim(records.fence))
    records.buckets, records.looked = ["00", "01"], []
    for _ in range(2):
        asyncio.run(trimmer.trim(records.fence))

    assert FEW[:4] == records.looked


def test_old_records_are_deleted_and_young_ones_stay() -> None:
    """B7: ZooKeeper would fill up, or a retry in time would run again."""
    records = Records({path: OLD if number % 3 else YOUNG for number, path in enumerate(sorted(FEW + MANY))})
    young = [path for path, at in records.written.items() if at == YOUNG]
    trimmer = records.trimmer()
    for _ in range(20):
        asyncio.run(trimmer.trim(records.fence))

    assert young == list(records.written)


def test_a_record_that_changes_meanwhile_stops_no_round() -> None:
    """B7: one retry at the wrong moment would end the deletions."""
    records = Records(dict.fromkeys(FEW, OLD))
    records.changes_meanwhile = True

    assert asyncio.run(records.trimmer().trim(records.fence))
    assert set(FEW) == records.written.keys()


def test_without_zookeepers_time_nothing_is_looked_at() -> None:
    """B7: ages by the master's own clock would delete records that a retry still needs."""
    records = Records(dict.fromkeys(FEW, OLD), now=None)

    assert asyncio.run(records.trimmer().trim(records.fence))
    assert [] == records.looked


@pytest.mark.parametrize(
    ("requests", "pauses", "looks"),
    [(FEW, [20.0, 15.0, 20.0, 19.5], [32, 32, 64, 64]), (MANY, [0.0, 0.0, 20.0, 19.5], [400, 800, 900, 900])],
    ids=["few", "many"],
)
def test_every_record_is_looked_at_twice_in_the_time_that_it_is_kept(
    requests: list[str], pauses: list[float], looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """B7: the leader would look at ZooKeeper all the time, or a record would stay long after its
    time."""
    records = Records(dict.fromkeys(requests, YOUNG))
    trimmer = records.trimmer()
    found = []
    for now in (0.0, 5.0, 20.0, 20.5):
        monkeypatch.setattr(time, "monotonic", lambda now=now: now)
        found.append((asyncio.run(trimmer.trim_when_due(records.fence)), len(records.looked)))

    assert list(zip(pauses, looks, strict=True)) == found
