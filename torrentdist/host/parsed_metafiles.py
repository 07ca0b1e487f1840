"""Metafiles of the store in their parsed form, for those who ask for the same few again and again.

Always: however many ask at once, a metafile is parsed once, and not on the event loop.
Never: hold more than a few, or remember a failure.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from torrentdist.bundle.metafile import Metafile
from torrentdist.host.process.heavy_work import in_heavy_thread
from torrentdist.model.ids import Digest

KEPT = 4


class ParsedMetafiles:
    def __init__(self, read: Callable[[Digest], Metafile | None]) -> None:
        """`read`: parses the metafile; None if there is none. It blocks."""
        self._read = read
        self._parsed: OrderedDict[Digest, asyncio.Task[Metafile | None]] = OrderedDict()
        """The one that was asked for last is the last."""

    async def get(self, digest: Digest) -> Metafile | None:
        task = self._parsed.get(digest)
        if task is None:
            task = self._parsed[digest] = asyncio.create_task(in_heavy_thread(self._read, digest))
            task.add_done_callback(lambda done: self._drop_failure(digest, done))
            if len(self._parsed) > KEPT:
                self._parsed.popitem(last=False)
        self._parsed.move_to_end(digest)
        return await asyncio.shield(task)

    def _drop_failure(self, digest: Digest, done: asyncio.Task[Metafile | None]) -> None:
        failed = done.cancelled() or done.exception() is not None or done.result() is None
        if failed and self._parsed.get(digest) is done:
            del self._parsed[digest]
