"""Changes records as the leader: decide on a snapshot, commit through the fence, and wait until the
mirror shows the change.

Always: a change is one fenced transaction. It checks the versions of the records that were decided
on; if they changed meanwhile, the decision is made again. The answer to a request is part of its
last transaction, so a retry finds it. A dry run makes the same decision and answer, and commits
nothing.
Never: write to ZooKeeper without the fence.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from torrentdist.cluster.election.fence import Fence
from torrentdist.cluster.records.mirror import Mirror
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Op, TransactionFailed, fitting
from torrentdist.host.telemetry.metrics import Metrics
from torrentdist.master.changes.answered_requests import Kept, Mutation, Requests, can_be_kept, note
from torrentdist.master.changes.predicted_records import predicted
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.policies.quotas import has_quota
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import MasterId

ATTEMPTS = 8
WHOLE = sys.maxsize
READABLE_SECS = 5.0

Decision = Callable[[ClusterSnapshot], Sequence[Op]]
Render = Callable[[ClusterSnapshot], Any]
"""Makes the answer from a snapshot that shows the change."""
Shorten = Callable[[Any], Any]
"""Makes the answer that a retry gets, from one that is too large to keep."""


class LeaderChanges:
    """Each method returns the answer as JSON. A repeated request gets its first answer."""

    def __init__(self, mirror: Mirror, leadership: Leadership, requests: Requests, metrics: Metrics) -> None:
        self._mirror = mirror
        self._leadership = leadership
        self._requests = requests
        self._metrics = metrics
        self._alone = asyncio.Lock()

    @property
    def me(self) -> MasterId:
        return self._leadership.me

    async def make_alone(
        self,
        mutation: Mutation | None,
        decide: Decision,
        render: Render,
        batch: int = WHOLE,
        shorten: Shorten = lambda answer: answer,
    ) -> bytes:
        """Makes one such change at a time. Use it for a decision on something that does not exist,
        such as a free name or a bundle that no job needs: it has no version that a transaction
        could check."""
        began = time.monotonic()
        async with self._alone:
            return await self._make(began, mutation, decide, render, batch, shorten)

    async def make(self, mutation: Mutation | None, decide: Decision, render: Render, batch: int = WHOLE) -> bytes:
        """Commits what `decide` wants, at most `batch` operations at a time. Decides again after
        another change came first."""
        return await self._make(time.monotonic(), mutation, decide, render, batch)

    async def make_for(
        self, owner: str, mutation: Mutation | None, decide: Decision, render: Render, batch: int = WHOLE
    ) -> bytes:
        """Makes a change that counts for its owner. If the owner has a quota, makes one at a time:
        the sum that is compared with the quota has no version either."""
        limited = has_quota(self._mirror.snapshot, owner)
        return await (self.make_alone if limited else self.make)(mutation, decide, render, batch)

    async def _make(
        self,
        began: float,
        mutation: Mutation | None,
        decide: Decision,
        render: Render,
        batch: int,
        shorten: Shorten = lambda answer: answer,
    ) -> bytes:
        if mutation is not None and mutation.dry_run:
            self._leadership.fence()
            snapshot = self._mirror.snapshot
            return _json(render(predicted(snapshot, decide(snapshot))))
        failures = 0
        async with self._requests.turn(mutation):
            self._metrics.observe("change_queue_seconds", time.monotonic() - began)
            while failures < ATTEMPTS:
                fence = self._leadership.fence()
                kept = await self._requests.find(mutation)
                if kept is not None and kept.done:
                    return await self._answer_again(kept) or _json(render(self._mirror.snapshot))
                snapshot = self._mirror.snapshot
                ops = decide(snapshot)
                count = len(ops) if batch == WHOLE else fitting(ops, batch)
                answer = to_keep = None
                if count == len(ops):
                    view = render(predicted(snapshot, ops))
                    answer = _json(view)
                    to_keep = answer if can_be_kept(answer) else _json(shorten(view))
                if answer is not None and not ops and kept is None:
                    return answer
                if not await self._commit(fence, [*ops[:count], *note(mutation, kept, to_keep)], mutation):
                    failures += 1
                elif answer is not None:
                    return answer
        raise TorrentdistError("not_ready", detail="the record keeps changing under this request")

    async def _commit(self, fence: Fence, ops: Sequence[Op], mutation: Mutation | None) -> bool:
        """Returns whether the transaction was committed. The mirror shows the newest records in any
        case."""
        began = time.monotonic()
        try:
            await fence.commit(ops)
            self._metrics.observe("commit_seconds", time.monotonic() - began)
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
        """Returns the earlier answer to this mutation, or None. Raises `request_reused` if its id
        stands for another request."""
        self._leadership.fence()
        kept = await self._requests.find(mutation)
        return await self._answer_again(kept) if kept is not None and kept.done else None


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value)
