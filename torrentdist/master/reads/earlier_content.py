"""Compares a bundle with all earlier ones of the cluster: how many of its bytes are new, and which
bundles have the rest.

Always: it reads metafiles and recipes only, for one bundle when somebody asks, and remembers few
answers. An answer comes within a second; what takes longer is there at the next question.
Never: compare with a bundle that was removed or lost.
"""

import asyncio
import time
from collections import OrderedDict
from contextlib import suppress
from typing import Final

import msgspec

from torrentdist.bundle.metafile import parse_metafile
from torrentdist.bundle.reuse.recipe import parse_recipe
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.host.host_store import HostStore
from torrentdist.host.process.heavy_work import in_heavy_thread
from torrentdist.master.bundles.recipes import RawMetafiles, Recipes
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.records import BundleState
from torrentdist.model.wire.bundle_messages import EarlierView

ANSWER_SECS: Final = 1.0
LONGEST_SECS: Final = 60.0
"""Time after which a comparison is given up."""
UNSURE_SECS: Final = 10.0
"""How long an answer is remembered that lacks some bundles, or that failed."""
MOST_REMEMBERED: Final = 16


class _Comparison(msgspec.Struct, frozen=True):
    digest: Digest
    earlier: dict[Digest, BundleId]
    begun_at: float
    task: asyncio.Task[EarlierView | None]

    def is_of(self, digest: Digest, earlier: dict[Digest, BundleId]) -> bool:
        """Whether it compares the same bundles, and its answer still counts."""
        if (self.digest, self.earlier) != (digest, earlier):
            return False
        if not self.task.done() or time.monotonic() - self.begun_at < UNSURE_SECS:
            return True
        found = None if self.task.cancelled() else self.task.result()
        return found is not None and not found.not_compared


class EarlierContent:
    def __init__(self, store: HostStore, metafiles: RawMetafiles, recipes: Recipes) -> None:
        self._store = store
        self._metafiles = metafiles
        self._recipes = recipes
        self._remembered: OrderedDict[tuple[BundleId, ...], _Comparison] = OrderedDict()
        """By the bundle and those that it is compared with, of which not all see the same."""

    async def of(self, seen: ClusterSnapshot, bundle: BundleId) -> EarlierView | None:
        """Returns what earlier bundles among those that are `seen` have of this one. None: this
        master does not know yet."""
        digest, earlier = seen.bundles[bundle].record.digest, earlier_bundles(seen, bundle)
        key = (bundle, *earlier.values())
        known = self._remembered.pop(key, None)
        if known is None or not known.is_of(digest, earlier):
            task = asyncio.create_task(self._compared(bundle, digest, earlier), name="compare bundles")
            known = _Comparison(digest, earlier, time.monotonic(), task)
        self._remembered[key] = known
        while len(self._remembered) > MOST_REMEMBERED:
            self._remembered.popitem(last=False)
        done, _ = await asyncio.wait({known.task}, timeout=ANSWER_SECS)
        return known.task.result() if done and not known.task.cancelled() else None

    async def _compared(self, bundle: BundleId, digest: Digest, earlier: dict[Digest, BundleId]) -> EarlierView | None:
        try:
            async with asyncio.timeout(LONGEST_SECS):
                meta = await in_heavy_thread(parse_metafile, await self._metafiles.of(digest))
                raw_recipe = None
                with suppress(TorrentdistError):
                    raw_recipe = await self._recipes.of_bundle(bundle)
                recipe = await in_heavy_thread(parse_recipe, raw_recipe)
                found = await self._store.reused(meta, recipe, list(earlier))
        except (TimeoutError, TorrentdistError):
            return None
        return EarlierView(
            size=meta.size,
            new_bytes=meta.size - found.total,
            reused_bytes=found.total,
            reused_from=[earlier[source] for source in found.counts],
            not_compared=found.unread,
        )


def earlier_bundles(snapshot: ClusterSnapshot, bundle: BundleId) -> dict[Digest, BundleId]:
    """Returns the available bundles that were created before this one, the newest first. Of several
    with one content it names the newest."""
    own = snapshot.bundles[bundle].record
    before = [
        entry.record
        for id_, entry in snapshot.bundles.items()
        if entry.record.state is BundleState.AVAILABLE and (entry.record.created_at, id_) < (own.created_at, bundle)
    ]
    found: dict[Digest, BundleId] = {}
    for record in sorted(before, key=lambda record: (record.created_at, record.id), reverse=True):
        found.setdefault(record.digest, record.id)
    return found
