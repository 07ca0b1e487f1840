"""At most once: the records by which the retry of a mutation is recognised, by this leader or the
next.

Always holds: what is remembered of a request is written by the transaction that makes its change,
or not at all; one id stands for one content. Must not do: list or mirror anything; a lookup reads a
single znode.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from weakref import WeakValueDictionary

import msgspec

from torrentdist.cluster import paths
from torrentdist.cluster.election.fence import Fence
from torrentdist.cluster.session.znode_operations import Create, NoNode, Op, Set, TransactionFailed
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import RequestId
from torrentdist.model.records import RequestRecord, decode, encode

MAX_ANSWER_BYTES = 64 * 1024
"""A longer answer is not kept but made anew for a retry, from what there is then."""


@dataclass(frozen=True)
class Mutation:
    """What its sender calls it, and a hash of all that it asks for."""

    id: RequestId
    content: str


@dataclass(frozen=True)
class Kept:
    """What is remembered of a request."""

    record: RequestRecord
    version: int
    zxid: int

    @property
    def done(self) -> bool:
        return self.record.status != 0

    @property
    def body(self) -> bytes | None:
        """The answer, None if it was too large to keep."""
        return self.record.body.encode() or None


def mutation(id_: RequestId, method: str, target: bytes, query: bytes, body: bytes) -> Mutation:
    parts = (method, target, query, hashlib.sha256(body).hexdigest())
    return Mutation(id_, hashlib.sha256(msgspec.json.encode(parts)).hexdigest())


def note(mutation: Mutation | None, kept: Kept | None, answer: bytes | None) -> list[Op]:
    """What a transaction of this mutation says about it. `answer`: None while further transactions
    are to come."""
    if mutation is None:
        return []
    record = RequestRecord(content=mutation.content)
    if answer is not None:
        body = answer.decode() if len(answer) <= MAX_ANSWER_BYTES else ""
        record = RequestRecord(content=mutation.content, status=200, body=body)
    path = paths.request(mutation.id)
    return [Create(path, encode(record)) if kept is None else Set(path, encode(record), kept.version)]


async def make_buckets(zookeeper: ZooKeeper, fence: Fence) -> None:
    """Make all buckets that are missing, so that no request finds its own missing."""
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
        """One attempt at a time: a retry that comes while the first is under way waits for its
        answer."""
        if mutation is None:
            yield
            return
        turn = self._turns.setdefault(mutation.id, asyncio.Lock())
        async with turn:
            yield

    async def find(self, mutation: Mutation | None) -> Kept | None:
        """To be asked after the fence was given: a leader has seen all that leaders before it
        did."""
        if mutation is None:
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
        """A transaction of it failed; if its bucket is missing, a leader that has just been elected
        makes it."""
        if mutation is None or not isinstance(failure.reason, NoNode):
            return
        if failure.op.path == paths.request(mutation.id):
            await make_buckets(self._zookeeper, fence)
