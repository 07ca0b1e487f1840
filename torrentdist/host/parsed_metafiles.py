"""Caches the most recently used metafiles of the store in parsed form.

Always: a metafile is parsed once, however many callers ask for it at once.
Never: hold more than KEPT metafiles, or remember a failure.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any

from torrentdist.bundle.metafile import Metafile
from torrentdist.model.ids import Digest

KEPT = 4


class ParsedMetafiles:
    def __init__(self, read: Callable[[Digest], Coroutine[Any, Any, Metafile | None]]) -> None:
        """`read` returns the parsed metafile, or None if there is none."""
        self._read = read
        self._parsed: OrderedDict[Digest, asyncio.Task[Metafile | None]] = OrderedDict()
        """Ordered by last use, the oldest first."""

    async def get(self, digest: Digest) -> Metafile | None:
        task = self._parsed.get(digest)
        if task is None:
            task = self._parsed[digest] = asyncio.create_task(self._read(digest))
            task.add_done_callback(lambda done: self._drop_failure(digest, done))
            if len(self._parsed) > KEPT:
                self._parsed.popitem(last=False)
        self._parsed.move_to_end(digest)
        return await asyncio.shield(task)

    def _drop_failure(self, digest: Digest, done: asyncio.Task[Metafile | None]) -> None:
        failed = done.cancelled() or done.exception() is not None or done.result() is None
        if failed and self._parsed.get(digest) is done:
            del self._parsed[digest]
