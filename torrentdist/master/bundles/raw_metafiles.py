"""The bytes of metafiles: from this master's store, or from another master."""

from torrentdist.cluster.records.mirror import Mirror
from torrentdist.host.host_store import HostStore
from torrentdist.host.master_links import MasterLinks
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest


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
        entry = self._mirror.snapshot.bundles.get(bundle)
        if entry is None:
            raise TorrentdistError("bundle_not_found", id=bundle)
        return await self.of(entry.record.digest)
