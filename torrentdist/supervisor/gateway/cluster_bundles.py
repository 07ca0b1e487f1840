"""The ids of all bundles of the cluster, for doors that list what there is.

Always: a list is at most a few seconds old. While no master answers, it is the last one, and what
is on this host is in every list.
Never: decide who may read what.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Final

from torrentdist.host.host_store import HostStore
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.model.wire.bundle_messages import BundleView

FRESH_SECS: Final = 3.0
ASK_SECS: Final = 5.0
PAGE: Final = 1000
MOST_PAGES: Final = 100

Page = Callable[[str, int], Awaitable[list[BundleView]]]
"""Returns the bundles after an id, at most so many, in the order of their ids."""


class ClusterBundles:
    def __init__(self, page: Page, store: HostStore) -> None:
        self._page = page
        self._store = store
        self._told: frozenset[BundleId] = frozenset()
        self._told_at = float("-inf")
        self._asking = asyncio.Lock()

    async def ids(self) -> list[BundleId]:
        """Returns the ids in their order."""
        async with self._asking:
            if time.monotonic() - self._told_at > FRESH_SECS:
                with contextlib.suppress(TorrentdistError, TimeoutError):
                    async with asyncio.timeout(ASK_SECS):
                        self._told = frozenset(await self._ask())
                self._told_at = time.monotonic()
        return sorted({*self._told, *self._store.bindings()})

    def forget(self) -> None:
        """Has the masters asked again the next time: something was published or removed here."""
        self._told_at = float("-inf")

    async def _ask(self) -> list[BundleId]:
        found: list[BundleId] = []
        for _ in range(MOST_PAGES):
            page = await self._page(found[-1] if found else "", PAGE)
            new = [view.id for view in page if not found or view.id > found[-1]]
            found += new
            if len(page) < PAGE or not new:
                break
        return found
