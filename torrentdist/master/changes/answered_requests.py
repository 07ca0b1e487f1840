"""Remembers answers to mutations, so that a retry is recognised by this leader or the next, and
deletes those that are too old to be retried.

Always: the record of a request is written by the transaction that makes its change, or not at
all. One id stands for one content. One round of deletions looks at a bounded number of znodes and
continues where the last one stopped. Ages are by ZooKeeper's clock.
Never: list or mirror requests, because a lookup reads a single znode; or delete without the
leader's fence.
"""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import AsyncIterator, Mapping
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from torrentdist.cluster import paths
from torrentdist.cluster.election.fence import Fence
from torrentdist.cluster.session.znode_operations import Create, Delete, NoNode, Op, Set, Stat, TransactionFailed
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.log import get_logger
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import RequestId
from torrentdist.model.records import RequestRecord, decode, encode

MAX_ANSWER_BYTES = 64 * 1024
"""Largest answer that is kept. A retry of a request with a larger one gets a shorter answer, or a
new one, made from the records of that time."""


class Mutation(msgspec.Struct, frozen=True):
    """A change that a client asks for: the id of the request, and a hash of everything in it."""

    id: RequestId
    content: str
    dry_run: bool = False
    """Whether only its checks and its answer are wanted. Nothing of it is remembered."""


class Kept(msgspec.Struct, frozen=True):
    """The stored record of a request."""

    record: RequestRecord
    version: int
    zxid: int

    @property
    def done(self) -> bool:
        return self.record.status != 0

    @property
    def body(self) -> bytes | None:
        """The stored answer; None if it was too large."""
        return self.record.body.encode() or None


def mutation(id_: RequestId, method: str, target: bytes, query: bytes, body: bytes) -> Mutation:
    parts = (method, target, query, hashlib.sha256(body).hexdigest())
    return Mutation(id_, hashlib.sha256(msgspec.json.encode(parts)).hexdigest())


A_DRY_RUN: Final = Mutation(RequestId("dry-run"), "", dry_run=True)


def note(mutation: Mutation | None, kept: Kept | None, answer: bytes | None) -> list[Op]:
    """Returns the write that records this mutation, for its transaction.

    `answer`: None while further transactions are to come.
    """
    if mutation is None:
        return []
    record = RequestRecord(content=mutation.content)
    if answer is not None:
        body = answer.decode() if can_be_kept(answer) else ""
        record = RequestRecord(content=mutation.content, status=200, body=body)
    path = paths.request(mutation.id)
    return [Create(path, encode(record)) if kept is None else Set(path, encode(record), kept.version)]


def can_be_kept(answer: bytes) -> bool:
    return len(answer) <= MAX_ANSWER_BYTES


async def make_buckets(zookeeper: ZooKeeper, fence: Fence) -> None:
    """Makes all buckets that are missing, so that the first request of a bucket does not fail."""
    names = await zookeeper.children(paths.REQUESTS)
    missing = [bucket for bucket in paths.request_buckets() if paths.name(bucket) not in (names or ())]
    root = [Create(paths.REQUESTS)] if names is None else []
    if missing:
        with contextlib.suppress(TransactionFailed):  # another leader made some of them
            await fence.commit([*root, *(Create(bucket) for bucket in missing)])


class Requests:
    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._turns: WeakValueDictionary[RequestId, asyncio.Lock] = WeakValueDictionary()

    @contextlib.asynccontextmanager
    async def turn(self, mutation: Mutation | None) -> AsyncIterator[None]:
        """Lets one attempt run at a time. A retry that comes meanwhile waits for the first one's
        answer."""
        if mutation is None or mutation.dry_run:
            yield
            return
        turn = self._turns.setdefault(mutation.id, asyncio.Lock())
        async with turn:
            yield

    async def find(self, mutation: Mutation | None) -> Kept | None:
        """Returns the stored record of a mutation. Get the fence first: then this leader has seen
        everything that earlier leaders wrote."""
        if mutation is None or mutation.dry_run:
            return None
        path = paths.request(mutation.id)
        found = await self._zookeeper.get(path)
        if found is None:
            return None
        record = decode(found[0], RequestRecord, path=path)
        if record.content != mutation.content:
            raise TorrentdistError("request_reused", id=mutation.id)
        return Kept(record, found[1].version, found[1].modified_zxid)

    async def refused(self, mutation: Mutation | None, fence: Fence, failure: TransactionFailed) -> None:
        """Handles a failed transaction: makes the buckets if the mutation's own was missing."""
        if mutation is None or not isinstance(failure.reason, NoNode):
            return
        if failure.op.path == paths.request(mutation.id):
            await make_buckets(self._zookeeper, fence)


log = get_logger()

BUCKETS_A_ROUND = 16
LOOKS_A_ROUND = 400
CIRCLES = 2
"""How often every record is looked at within the time that it is kept. So a record stays at most
half as long again."""
_ALL_BUCKETS = 256


def expired(stats: Mapping[str, Stat | None], server_now: float, keep_secs: float) -> list[Delete]:
    """Returns the deletions of those paths that are too old. A path that is written again meanwhile
    stays."""
    return [
        Delete(path, stat.version)
        for path, stat in stats.items()
        if stat is not None and server_now - stat.mtime > keep_secs
    ]


class RequestTrimmer:
    def __init__(self, zookeeper: ZooKeeper, keep_secs: float) -> None:
        self._zookeeper = zookeeper
        self._keep_secs = keep_secs
        self._pause = keep_secs / CIRCLES * BUCKETS_A_ROUND / _ALL_BUCKETS
        self._next_at = 0.0
        self._after = ""
        """The path at which the last round stopped; empty: it was the last of all."""

    async def trim_when_due(self, fence: Fence) -> float:
        """Trims if it is time, and returns the seconds until the next time. Call it as often as you
        like."""
        if time.monotonic() >= self._next_at:
            is_over = await self.trim(fence)
            self._next_at = time.monotonic() + (self._pause if is_over else 0.0)
        return max(0.0, self._next_at - time.monotonic())

    async def trim(self, fence: Fence) -> bool:
        """Does one round. Returns False if it looked at as many requests as a round may."""
        server_now = self._zookeeper.server_now()
        if server_now is None:
            return True
        requests = await self._some()
        stats = await asyncio.gather(*(self._zookeeper.exists(path) for path in requests))
        old = expired(dict(zip(requests, stats, strict=True)), server_now, self._keep_secs)
        if old:
            log.debug("forgetting requests", count=len(old))
            try:
                await fence.commit(old)
            except TransactionFailed as exc:
                log.debug("a request changed meanwhile", why=str(exc))
        return len(requests) < LOOKS_A_ROUND

    async def _some(self) -> list[str]:
        """Returns the paths for the next round."""
        buckets = sorted(map(paths.request_bucket, await self._zookeeper.children(paths.REQUESTS) or ()))
        due = [bucket for bucket in buckets if _end(bucket) > self._after][:BUCKETS_A_ROUND]
        found: list[str] = []
        for bucket in due:
            names = await self._zookeeper.children(bucket) or ()
            found += sorted(path for name in names if (path := f"{bucket}/{name}") > self._after)
            if len(found) > LOOKS_A_ROUND:
                self._after = found[LOOKS_A_ROUND - 1]
                return found[:LOOKS_A_ROUND]
        self._after = _end(due[-1]) if due and due[-1] != buckets[-1] else ""
        return found


def _end(bucket: str) -> str:
    """Returns a path after all paths of a bucket: "~" sorts after every character of an id."""
    return f"{bucket}/~"
