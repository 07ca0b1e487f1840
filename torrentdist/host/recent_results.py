"""Keeps what was computed about the last digests that somebody asked for.

Always: a result is computed once, however many callers ask for it at once.
Never: remember a failure, or a result that is None.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from torrentdist.model.ids import Digest

_T = TypeVar("_T")
KEPT = 4


class RecentResults(Generic[_T]):
    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._results: OrderedDict[Digest, asyncio.Task[_T]] = OrderedDict()
        """Ordered by last use, the oldest first."""

    async def get(self, digest: Digest, compute: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Returns the result about this digest, which `compute` finds out if it is not known."""
        task = self._results.get(digest)
        if task is None:
            task = self._results[digest] = asyncio.create_task(compute())
            task.add_done_callback(lambda done: self._drop_failure(digest, done))
            if len(self._results) > self._kept:
                self._results.popitem(last=False)
        self._results.move_to_end(digest)
        return await asyncio.shield(task)

    def _drop_failure(self, digest: Digest, done: asyncio.Task[_T]) -> None:
        failed = done.cancelled() or done.exception() is not None or done.result() is None
        if failed and self._results.get(digest) is done:
            del self._results[digest]
