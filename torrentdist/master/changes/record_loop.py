"""Repeats a step whenever the records change, when something is due, and after a failure.

Always: a failure is logged once until the next success, and is followed by a pause that grows; a
mistake of ours too, which would end one leader after the other. What one record does wrong holds up
no other: it is left out until its own pause is over. A record is known by its path.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from torrentdist.cluster.election.fence import Fence
from torrentdist.cluster.records.mirror import Mirror
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Op, TransactionFailed, batches
from torrentdist.log import get_logger
from torrentdist.model.backoff import Retry, kind_of
from torrentdist.model.errors import TorrentdistError

log = get_logger()
T = TypeVar("T")

LOOK_SECS: Final = 10.0
"""Longest time between two steps."""
FIRST_PAUSE_SECS: Final = 0.1
FORGET_SECS: Final = 60.0
"""How long after its pause a record is still known to have failed."""
CONCERNS_ALL: Final = frozenset(
    {
        "zookeeper_unavailable",
        "outcome_unknown",
        "leadership_lost",
        "not_leader",
        "no_leader",
        "no_cluster",
    }
)
"""Codes of errors that say nothing about the record at hand."""

OVERTAKEN: Final = "overtaken"

Step = Callable[[ClusterSnapshot], Awaitable[float]]
"""Does what is due. Returns the seconds after which to do it again though no record changes."""


class RecordLoop:
    """`what` waits while steps fail, says the log."""

    def __init__(self, mirror: Mirror, what: str) -> None:
        self._mirror = mirror
        self._what = what
        self._trouble = Retry(FIRST_PAUSE_SECS, LOOK_SECS)
        self._troubled: dict[str, tuple[Retry, float]] = {}
        """Records whose turn failed last, and the time.monotonic() of their next turn."""
        self._woken = asyncio.Event()
        mirror.on_change.append(self.wake)

    def wake(self) -> None:
        self._woken.set()

    async def run(self, step: Step) -> None:
        while True:
            await self.once(step)

    async def once(self, step: Step) -> None:
        self._woken.clear()
        snapshot = self._mirror.snapshot
        try:
            wait = await step(snapshot)
            self._trouble.succeeded()
        except Exception as error:
            if self._trouble.failed(kind_of(error)):
                log.info("the work of the leader waits", what=self._what, reason=str(error), exc_info=bug(error))
            wait = self._trouble.pause_secs
        wait = min(wait, self.secs_until_turn())
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, wait)):
                await self._woken.wait()

    def secs_until_turn(self) -> float:
        """Returns the seconds until the pause of a resting record is over; infinity: none rests."""
        now = time.monotonic()
        self._troubled = {record: known for record, known in self._troubled.items() if known[1] > now - FORGET_SECS}
        return min((at - now for _, at in self._troubled.values() if at > now), default=math.inf)

    def resting(self) -> frozenset[str]:
        """Returns the records whose turn failed, and whose pause is not over."""
        now = time.monotonic()
        return frozenset(record for record, (_, at) in self._troubled.items() if now < at)

    def rests(self, record: str) -> bool:
        """Whether the last turn of this record failed, and its pause is not over."""
        known = self._troubled.get(record)
        return known is not None and time.monotonic() < known[1]

    async def attempt(self, record: str, act: Callable[[], Awaitable[T]]) -> T | None:
        """Takes the turn of one record. Returns None if it failed, or if its pause is not over.
        Raises only what concerns every record."""
        if self.rests(record):
            return None
        try:
            done = await act()
        except Exception as error:
            self.failed(record, error)
            return None
        self._troubled.pop(record, None)
        return done

    def decide(self, record: str, make: Callable[[], T]) -> T | None:
        """Returns what is decided about one record. None: the decision failed, or its pause is not
        over. What is done about the record may still fail, so a decision ends no pause."""
        if self.rests(record):
            return None
        try:
            return make()
        except Exception as error:
            self.failed(record, error)
            return None

    async def commit_each(self, fence: Fence, ops: Iterable[Op], most: int) -> bool:
        """Commits changes that do not depend on each other: together, or one by one where they are
        refused. Returns whether all of them are made."""
        ops = list(ops)
        due = [op for op in ops if not self.rests(op.path)]
        made = len(due) == len(ops)
        for batch in batches(due, most):
            try:
                await fence.commit(batch)
            except Exception as error:
                if kind_of(error) in CONCERNS_ALL:
                    raise
                made &= None not in [await self.attempt(op.path, partial(fence.commit, [op])) for op in batch]
        return made

    def refused(self, ops: Sequence[Op], error: Exception) -> None:
        """Lets the record rest because of which ZooKeeper refused these changes. Raises all other
        errors."""
        path = error.op.path if isinstance(error, TransactionFailed) else None
        path = error.extra.get("znode") if isinstance(error, TorrentdistError) else path
        if path is None or path not in {op.path for op in ops}:
            raise error
        self.failed(path, error)

    def failed(self, record: str, error: Exception) -> None:
        """Lets a record rest after a failure. Raises what concerns every record.

        A change that was overtaken once is no news: the next plan has seen what overtook it.
        """
        if kind_of(error) in CONCERNS_ALL:
            raise error
        overtaken = isinstance(error, TransactionFailed) and record not in self._troubled
        trouble = self._troubled.get(record, (Retry(FIRST_PAUSE_SECS, LOOK_SECS), 0.0))[0]
        if trouble.failed(OVERTAKEN if overtaken else kind_of(error)) and not overtaken:
            log.warning("a record waits", what=self._what, record=record, reason=str(error), exc_info=bug(error))
        self._troubled[record] = trouble, time.monotonic() + trouble.pause_secs


def bug(error: Exception) -> Exception | None:
    """Returns an error that is a mistake of ours, whose traceback is logged."""
    return None if isinstance(error, TorrentdistError | TransactionFailed) else error
