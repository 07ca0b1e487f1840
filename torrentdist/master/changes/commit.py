"""How a leader changes records: decide on a snapshot, commit through the fence, wait until it can
be read.

Always holds: every change is one fenced transaction that also checks the version of what was
decided on; if that changed meanwhile, the decision is made anew. The answer to a request is part of
its last transaction, so that a retry finds it. Must not do: touch ZooKeeper but through the fence.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from torrentdist.cluster.election.fence import Fence
from torrentdist.cluster.records.mirror import Mirror
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Op, TransactionFailed
from torrentdist.master.changes.answered_requests import Kept, Mutation, Requests, note
from torrentdist.master.changes.predicted_records import foreseen
from torrentdist.master.leading.leadership import Leadership
from torrentdist.model.errors import TorrentdistError

ATTEMPTS = 8
WHOLE = sys.maxsize
READABLE_SECS = 5.0

Decision = Callable[[ClusterSnapshot], Sequence[Op]]
Render = Callable[[ClusterSnapshot], Any]
"""The answer, for a snapshot that shows the change."""


class LeaderChanges:
    """Every change returns its answer as JSON: that of the first time for a request that was made
    before."""

    def __init__(self, mirror: Mirror, leadership: Leadership, requests: Requests) -> None:
        self._mirror = mirror
        self._leadership = leadership
        self._requests = requests
        self._alone = asyncio.Lock()

    async def make_alone(
        self, mutation: Mutation | None, decide: Decision, render: Render, batch: int = WHOLE
    ) -> bytes:
        """One of these at a time, for what is decided on by something that isn't there: a name that
        is free, a bundle that no job needs. That has no version which a transaction could check."""
        async with self._alone:
            return await self.make(mutation, decide, render, batch)

    async def make(self, mutation: Mutation | None, decide: Decision, render: Render, batch: int = WHOLE) -> bytes:
        """Commit what `decide` wants, `batch` operations at a time, deciding anew when somebody was
        faster."""
        failures = 0
        async with self._requests.turn(mutation):
            while failures < ATTEMPTS:
                fence = self._leadership.fence()
                kept = await self._requests.find(mutation)
                if kept is not None and kept.done:
                    return await self._answer_again(kept) or _json(render(self._mirror.snapshot))
                snapshot = self._mirror.snapshot
                ops = decide(snapshot)
                answer = _json(render(foreseen(snapshot, ops))) if len(ops) <= batch else None
                if answer is not None and not ops and kept is None:
                    return answer
                if not await self._commit(fence, [*ops[:batch], *note(mutation, kept, answer)], mutation):
                    failures += 1
                elif answer is not None:
                    return answer
        raise TorrentdistError("not_ready", detail="the record keeps changing under this request")

    async def _commit(self, fence: Fence, ops: Sequence[Op], mutation: Mutation | None) -> bool:
        """Whether it was done; what there is now can be read here in any case."""
        try:
            await fence.commit(ops)
            done = True
        except TransactionFailed as exc:
            await self._requests.refused(mutation, fence, exc)
            done = False
        await self._mirror.sync(READABLE_SECS)
        return done

    async def _answer_again(self, kept: Kept) -> bytes | None:
        await self._mirror.sync_to(kept.zxid, READABLE_SECS)
        return kept.body

    async def recall(self, mutation: Mutation | None) -> bytes | None:
        """The answer that this mutation was given before; `request_reused` if its id stands for
        another one."""
        self._leadership.fence()
        kept = await self._requests.find(mutation)
        return await self._answer_again(kept) if kept is not None and kept.done else None


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value)
