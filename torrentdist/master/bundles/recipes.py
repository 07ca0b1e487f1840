"""The metafiles and recipes of bundles: from this master's store, or from another master. A
recipe is offered by an uploader and kept next to the metafile.

Always: a recipe is given out only if it has the hash that the bundle's record names. Few offers
are remembered, and each has a bounded size.
"""

from collections import OrderedDict
from contextlib import suppress
from typing import Final

from torrentdist.bundle.reuse.recipe import MAX_RECIPE_BYTES, recipe_hash
from torrentdist.cluster.records.mirror import Mirror
from torrentdist.host.host_store import HostStore
from torrentdist.host.master_links import MasterLinks
from torrentdist.master.reads.saved_records import Records
from torrentdist.model.errors import TorrentdistError, required
from torrentdist.model.ids import BundleId, Digest

MOST_OFFERED: Final = 4
"""Recipes of uploads that were not opened yet. An uploader opens its own at once."""


class Recipes:
    def __init__(self, store: HostStore, links: MasterLinks, records: Records) -> None:
        self._store = store
        self._links = links
        self._records = records
        self._offered: OrderedDict[str, bytes] = OrderedDict()

    def offer(self, raw: bytes) -> None:
        """Remembers a recipe until its upload is opened."""
        if len(raw) > MAX_RECIPE_BYTES:
            raise TorrentdistError("too_large", what="the recipe, in bytes,", size=len(raw), limit=MAX_RECIPE_BYTES)
        self._offered[recipe_hash(raw)] = raw
        if len(self._offered) > MOST_OFFERED:
            self._offered.popitem(last=False)

    async def accept(self, digest: Digest, hash: str) -> str:
        """Keeps the offered recipe of a bundle that was begun. Returns the hash of the recipe that
        is kept, or nothing if none was offered or it is not here.

        Another bundle with the same content may have a recipe already, which stays.
        """
        raw = self._offered.pop(hash, None)
        kept = await self._kept_hash(digest) if hash else ""
        if raw is not None and not self._is_named(digest, kept):
            await self._store.keep_recipe(digest, raw)
            kept = await self._kept_hash(digest)
        return kept if kept == hash or self._is_named(digest, kept) else ""

    async def _kept_hash(self, digest: Digest) -> str:
        raw = await self._store.raw_recipe(digest)
        return "" if raw is None else recipe_hash(raw)

    def _is_named(self, digest: Digest, hash: str) -> bool:
        """Whether the record of a bundle with this content names the recipe."""
        bundles = self._records.snapshot().bundles.values()
        return bool(hash) and any((one.record.digest, one.record.recipe) == (digest, hash) for one in bundles)

    async def of_bundle(self, bundle: BundleId) -> bytes:
        """Returns the recipe that the record names. Asks the other masters if this one lacks it."""
        entry = self._records.snapshot().bundles.get(bundle)
        if entry is not None and entry.record.recipe:
            digest = entry.record.digest
            raw = await self._store.raw_recipe(digest)
            if raw is None or recipe_hash(raw) != entry.record.recipe:
                with suppress(TorrentdistError):
                    raw = await self._links.recipe_of(digest)
            if raw is not None and recipe_hash(raw) == entry.record.recipe:
                return raw
        raise no_recipe(bundle)


def no_recipe(bundle: BundleId) -> TorrentdistError:
    return TorrentdistError("not_found", what=f"a recipe of bundle {bundle!r}")


class RawMetafiles:
    def __init__(self, store: HostStore, links: MasterLinks, mirror: Mirror) -> None:
        self._store = store
        self._links = links
        self._mirror = mirror

    async def of(self, digest: Digest) -> bytes:
        """Returns the metafile of a digest. Asks the other masters if this one lacks it."""
        raw = await self._store.raw_metafile(digest)
        return raw if raw is not None else (await self._links.metafile_of(digest)).raw

    async def of_bundle(self, bundle: BundleId) -> bytes:
        """Returns the metafile of a bundle, or raises `bundle_not_found`."""
        entry = required(self._mirror.snapshot.bundles.get(bundle), "bundle_not_found", id=bundle)
        return await self.of(entry.record.digest)
