"""Says what a download would do, and downloads nothing.

Always: what a download refuses is refused here, with the same error.
Never: write, or let the supervisor fetch.
"""

import asyncio
import os
from pathlib import Path

from torrentdist.bundle.metafile import Metafile
from torrentdist.client.bundles.destination import PartDirectory, check_room, part_path, resolve
from torrentdist.client.bundles.host_download import is_alive, is_held
from torrentdist.client.bundles.known_bundle import record_and_metafile
from torrentdist.client.bundles.protected_paths import is_there
from torrentdist.client.bundles.signed_content import check_signatures
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.model.configuration.config import Config
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.model.records import BundleState
from torrentdist.model.wire.transfer_messages import ContentSource, DownloadPreview


async def preview_download(
    client: MasterClient, config: Config, bundle: BundleId, dest: str | os.PathLike[str], *, force: bool
) -> DownloadPreview:
    """Returns where DEST would be, and where its content would come from."""
    if not os.fspath(dest):
        raise TorrentdistError("empty_path", what="the destination")
    record, meta = await record_and_metafile(client, bundle)
    check_signatures(config.trust, bundle, meta.digest, record.signatures)
    if record.state is BundleState.LOST:
        raise TorrentdistError("bundle_lost", id=bundle)
    path = resolve(dest, meta)
    source = await _source(config.client.supervisor, bundle, meta, path, force)
    return DownloadPreview(
        id=bundle, digest=meta.digest, path=str(path), size=meta.size, files=meta.file_count, source=source
    )


async def _source(url: str, bundle: BundleId, meta: Metafile, path: Path, force: bool) -> ContentSource:
    if await asyncio.to_thread(is_there, meta, path, force=force):
        return ContentSource.DEST
    if url and await is_held(url, bundle):
        return ContentSource.HOST
    through_host = bool(url) and await is_alive(url)
    there = await asyncio.to_thread(PartDirectory(part_path(path)).bytes_on_disk)
    check_room(meta, path, there)
    return ContentSource.SUPERVISOR if through_host else ContentSource.PEER
