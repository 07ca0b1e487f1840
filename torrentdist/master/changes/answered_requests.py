"""Remembers answers to mutations, so that a retry is recognised by this leader or the next.

Always: the record of a request is written by the transaction that makes its change, or not at all.
One id stands for one content.
Never: list or mirror requests. A lookup reads a single znode.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final
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
"""Largest answer that is kept. A retry of a request with a larger one gets a new answer, made from
the records of that time."""


@dataclass(frozen=True)
class Mutation:
    """A change that a client asks for: the id of the request, and a hash of everything in it."""

    id: RequestId
    content: str
    dry_run: bool = False
    """Whether only its checks and its answer are wanted. Nothing of it is remembered."""


@dataclass(frozen=True)
class Kept:
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
        body = answer.decode() if len(answer) <= MAX_ANSWER_BYTES else ""
        record = RequestRecord(content=mutation.content, status=200, body=body)
    path = paths.request(mutation.id)
    return [Create(path, encode(record)) if kept is None else Set(path, encode(record), kept.version)]


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
