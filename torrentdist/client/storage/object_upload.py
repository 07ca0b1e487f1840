"""Uploads the objects below a URL as a bundle: they stream through this process to the leader, and
from there into the swarm.

Always: no object is written to this host's disk, and a few megabytes are in memory. What the
cluster has already is not sent.
"""

import asyncio
import math
import re
import threading
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate

from torrentdist.bundle.metafile import Metafile
from torrentdist.client.bundles.chunked_upload import Read, opened_with_proof, send_content
from torrentdist.client.bundles.known_bundle import bundle_there
from torrentdist.client.bundles.transfer_progress import TransferStage, UploadProgress
from torrentdist.client.bundles.upload import AS_USUAL, OnProgress, UploadWanted
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.client.storage.object_hashing import expect_unchanged, hash_objects, read_object
from torrentdist.client.storage.object_listing import Listing, list_objects
from torrentdist.model.errors import EXIT_CORRUPT, TorrentdistError
from torrentdist.model.ids import MAX_ID_LENGTH, BundleId, Digest
from torrentdist.model.records import BundleState
from torrentdist.model.wire.bundle_messages import BundleView
from torrentdist.model.wire.transfer_messages import UploadView

_DIGEST_DIGITS = 12
ELSEWHERE_SECS = 5.0
"""How long a leader that takes no bytes may need until a master has the bundle from elsewhere."""


async def upload_objects(
    client: MasterClient,
    url: str,
    bundle_id: BundleId | None = None,
    wanted: UploadWanted = AS_USUAL,
    *,
    progress: OnProgress = lambda news: None,
) -> UploadView:
    """Returns once enough masters hold the bundle, or when the time is up, as upload() does."""
    loop = asyncio.get_running_loop()
    began = loop.time()

    def hashed(done: int, size: int) -> None:
        loop.call_soon_threadsafe(progress, UploadProgress(phase=TransferStage.HASHING, done=done, size=size))

    listing = await asyncio.to_thread(list_objects, url)
    stopping = threading.Event()
    try:
        meta = await asyncio.to_thread(hash_objects, listing, hashed, stopping)
    finally:
        stopping.set()
    chosen = bundle_id or _default_id(url, meta.digest)
    there, meta = await bundle_there(client, chosen, meta)
    if there is None or there.replicas < wanted.replicas(there) or there.state is not BundleState.AVAILABLE:
        there = await _send(client, listing, meta, chosen, wanted, began + wanted.timeout, progress)
    elif wanted.signer is not None:
        await client.add_signature(chosen, wanted.signer.bundle(chosen, meta.digest))
    replicas = wanted.replicas(there)
    return UploadView(
        id=chosen,
        digest=meta.digest,
        size=meta.size,
        files=meta.file_count,
        replicas=there.replicas,
        min_replicas=replicas,
        achieved=there.replicas >= replicas and there.state is not BundleState.UPLOADING,
        seconds=loop.time() - began,
        new_bytes=None,
        reused_bytes=None,
        reused_from=[],
    )


def _default_id(url: str, digest: Digest) -> BundleId:
    base = re.sub(r"[^A-Za-z0-9._-]+", "-", url.rstrip("/").rpartition("/")[2]).strip("._-")
    return BundleId(f"{base[: MAX_ID_LENGTH - _DIGEST_DIGITS - 1] or 'bundle'}-{digest[:_DIGEST_DIGITS]}")


async def _send(
    client: MasterClient,
    listing: Listing,
    meta: Metafile,
    id_: BundleId,
    wanted: UploadWanted,
    deadline: float,
    progress: OnProgress,
) -> BundleView:
    read, clock = reader_of(listing), asyncio.get_running_loop().time

    def sent(offset: int) -> None:
        progress(UploadProgress(phase=TransferStage.SENDING, done=offset, size=meta.size))

    async def attempt() -> BundleView:
        return await client.open_upload(id_, meta.raw, wanted.min_replicas, "", "")

    async def is_sent() -> bool:
        try:
            async with asyncio.timeout_at(deadline if math.isfinite(deadline) else None):
                return await _is_sent(client, listing, meta, read, sent)
        except TimeoutError:
            raise TorrentdistError("timed_out", what=f"sending {id_}", seconds=wanted.timeout) from None

    opened = await opened_with_proof(client, id_, meta, read, sent, attempt)
    if wanted.signer is not None:
        await client.add_signature(id_, wanted.signer.bundle(id_, meta.digest))
    replicas = wanted.replicas(opened)
    while not await is_sent():
        view = await client.wait_replicas(id_, 1, min(ELSEWHERE_SECS, deadline - clock()))
        if view.replicas or clock() >= deadline:
            break  # a master has had all of it from elsewhere
        # Another leader lacks the metafile.
        await client.open_upload(id_, meta.raw, wanted.min_replicas, "", "", again=True)
    return await client.wait_replicas(id_, replicas, deadline - clock())


async def _is_sent(
    client: MasterClient, listing: Listing, meta: Metafile, read: Read, sent: Callable[[int], None]
) -> bool:
    """Sends what the leader lacks. Returns False if it knows of no upload that lacks anything."""
    try:
        await send_content(client, meta, read, sent)
        return True
    except TorrentdistError as error:
        if error.exit_code == EXIT_CORRUPT:
            await asyncio.to_thread(expect_unchanged, listing)
        if error.code != "not_found":
            raise
        return False


def reader_of(listing: Listing) -> Callable[[int, int], bytes]:
    """Returns what reads bytes of all objects, joined in the order of the bundle."""
    ends = list(accumulate(each.size for each in listing.objects))

    def read(offset: int, length: int) -> bytes:
        parts = []
        number = bisect_right(ends, offset)
        while length > 0 and number < len(ends):
            each = listing.objects[number]
            start = offset - (ends[number] - each.size)
            part = min(length, each.size - start)
            if part:
                parts.append(read_object(listing, each, start, start + part))
            offset, length, number = offset + part, length - part, number + 1
        return b"".join(parts)

    return read
