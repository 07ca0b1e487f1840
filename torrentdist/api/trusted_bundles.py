"""Bundles whose signatures were checked: their metafiles, and their directories in the user's
cache.

Always: what is verified against is the client's own configuration, never an answer of a master.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from torrentdist.api.bundle_cache import BundleCache
from torrentdist.bundle.metafile import Metafile
from torrentdist.client.bundles.known_bundle import record_and_metafile
from torrentdist.client.bundles.signed_content import check_signatures
from torrentdist.client.bundles.transfer_progress import TransferProgress
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.model.access.envelope import Envelope
from torrentdist.model.configuration.config import Config
from torrentdist.model.errors import EXIT_UNAVAILABLE, TorrentdistError
from torrentdist.model.ids import BundleId, Digest

OnProgress = Callable[[TransferProgress], None]

_log = logging.getLogger("torrentdist")


def check_trust(config: Config, name: BundleId, digest: Digest, signatures: Sequence[Envelope]) -> None:
    """Raises an error if [trust] does not allow this content."""
    if warning := check_signatures(config.trust, name, digest, signatures).warning:
        _log.warning("%s", warning)


async def checked_metafile(client: MasterClient, config: Config, name: BundleId) -> Metafile:
    return (await _checked(client, config, name))[0]


async def _checked(client: MasterClient, config: Config, name: BundleId) -> tuple[Metafile, Sequence[Envelope]]:
    """Returns the metafile and the signatures of a bundle that [trust] allows."""
    record, meta = await record_and_metafile(client, name)
    if record.digest != meta.digest:
        raise TorrentdistError("corrupt", path=f"the metafile of {name}", detail=f"it is {meta.digest}")
    check_trust(config, name, meta.digest, record.signatures)
    return meta, record.signatures


async def cached_path(client: MasterClient, config: Config, name: BundleId, timeout: float, show: OnProgress) -> Path:
    """Returns a bundle's directory in the user's cache. If no master answers, an earlier copy of
    the bundle is as good. Its signatures were kept with it, and are checked again."""
    from torrentdist.client.bundles.download import DownloadWanted
    from torrentdist.client.bundles.download import download as download_bundle

    cache = BundleCache(config.client.masters)
    try:
        meta, signatures = await _checked(client, config, name)
    except TorrentdistError as error:
        found = await asyncio.to_thread(cache.known, name)
        if found is None or error.exit_code != EXIT_UNAVAILABLE:
            raise
        check_trust(config, name, found.digest, found.signatures)
        return found.content

    async def fetch(dest: Path, secs: float) -> None:
        await download_bundle(client, config, name, dest, DownloadWanted(timeout=secs, force=True), progress=show)

    return await cache.get(name, meta, timeout, fetch, signatures)
