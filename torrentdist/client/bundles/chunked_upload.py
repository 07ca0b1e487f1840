"""Uploads a bundle's bytes to the leader over HTTP, for a process to which no master can connect.

Always: the leader's offset decides where to continue, even after another leader has taken over.
What the leader has already is not sent. A file that has changed since it was hashed ends the
upload.
Never: hold more than one chunk in memory.
"""

import os
from asyncio import sleep, to_thread
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.packs.pack_files import read_pack
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.model.wire.bundle_messages import BundleView

CHUNK_BYTES = 4 * 1024 * 1024
LOOK_SECS = 0.5
"""How often a leader that does not know yet what it lacks is asked."""
MAX_STEPS_BACK = 100
"""More failovers than happen during one upload. After that, the two sides will never agree."""
MAX_PROOFS = 8
"""How often content is shown from the beginning, because leaders change meanwhile."""


Read = Callable[[int, int], bytes]
"""Returns bytes of the content from an offset on, with all files joined in the torrent's order, and
at most as many as asked for. It blocks."""


async def send_content(
    client: MasterClient, meta: Metafile, source: Path | Read, progress: Callable[[int], None] = lambda offset: None
) -> BundleView:
    """Sends the missing part of the open upload of `meta`, and finishes the upload. The content is
    at a path, or is read by `source`. Raises `not_found` if the leader publishes it meanwhile."""
    read = _reader(meta, source)
    steps_back = 0
    while True:
        told = await client.upload_offset(meta.digest)
        while (offset := told.offset) < meta.size:
            progress(offset)
            if told.until == offset:  # the leader still takes what it has
                await sleep(LOOK_SECS)
                told = await client.upload_offset(meta.digest)
                continue
            length = CHUNK_BYTES if told.until is None else min(CHUNK_BYTES, told.until - offset)
            data = await to_thread(read, offset, length)
            told = await client.put_bytes(meta.digest, offset, data)
            steps_back += told.offset <= offset
            if steps_back > MAX_STEPS_BACK:
                raise TorrentdistError("internal", detail=f"the upload of {meta.digest} makes no progress at {offset}")
        progress(offset)
        try:
            return await client.finish_upload(meta.digest)
        except TorrentdistError as error:
            if error.code == "outcome_unknown":
                continue  # To verify and publish all of it may take longer than one answer may.
            # A leader that has just taken over may have less than its predecessor.
            steps_back += 1
            if error.code != "invalid_request" or "offset" not in error.extra or steps_back > MAX_STEPS_BACK:
                raise


async def opened_with_proof(
    client: MasterClient,
    bundle_id: BundleId,
    meta: Metafile,
    source: Path | Read,
    progress: Callable[[int], None],
    attempt: Callable[[], Awaitable[BundleView]],
) -> BundleView:
    """Opens an upload by `attempt`, and shows its content first if the leader asks for that. A new
    leader asks anew."""
    for _ in range(MAX_PROOFS):
        try:
            return await attempt()
        except TorrentdistError as error:
            if error.code != "proof_needed":
                raise
        try:
            await _show_content(client, bundle_id, meta, _reader(meta, source), progress)
        except TorrentdistError as error:
            if error.code != "not_found":  # another leader, which has not seen the beginning
                raise
    return await attempt()


async def _show_content(
    client: MasterClient, bundle_id: BundleId, meta: Metafile, read: Read, progress: Callable[[int], None]
) -> None:
    """Sends all bytes to the leader, which hashes them, because the cluster has the content under
    ids that this sender may not read."""
    offset = steps_back = 0
    while offset < meta.size:
        data = await to_thread(read, offset, CHUNK_BYTES)
        try:
            told = (await client.prove(bundle_id, meta.digest, offset, data)).offset
        except TorrentdistError as error:
            if error.extra.get("offset") is None:
                raise
            told = int(error.extra["offset"])  # the answer to the same bytes was lost, or the leader is another
        steps_back += told <= offset
        if steps_back > MAX_PROOFS:
            raise TorrentdistError("internal", detail=f"showing {meta.digest} makes no progress at {offset}")
        offset = told
        progress(offset)


def _reader(meta: Metafile, source: Path | Read) -> Read:
    return partial(read_chunk, meta, source) if isinstance(source, Path) else source


def read_chunk(meta: Metafile, path: Path, offset: int, length: int = CHUNK_BYTES) -> bytes:
    """Returns bytes from `offset` on, treating all files as joined in the torrent's
    order."""
    parts: list[bytes] = []
    start = 0
    packed = iter(meta.packs)
    for file in meta.wire_files:
        end, pack = start + file.size, next(packed) if file.is_pack else None
        if offset < end and length > 0:
            wanted = min(length, end - offset)
            if pack is None:
                parts.append(_read(path if meta.single_file else path / file.path, offset - start, wanted))
            else:
                parts.append(read_pack(path, pack[1])[offset - start : offset - start + wanted])
            offset += wanted
            length -= wanted
        start = end
    return b"".join(parts)


def _read(path: Path, offset: int, length: int) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            file.seek(offset)
            parts = bytearray()
            while len(parts) < length and (part := file.read(length - len(parts))):
                parts += part
    except OSError as exc:
        raise TorrentdistError("changed_while_reading", path=os.fspath(path)) from exc
    if len(parts) < length:
        raise TorrentdistError("changed_while_reading", path=os.fspath(path))
    return bytes(parts)
