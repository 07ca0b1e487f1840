"""Blobs that are being pushed to this host, each in a file that grows.

Always: what has come stays on disk, so an upload goes on after its connection broke, and after this
process was restarted. Room is promised before bytes are taken, and bundles that nobody needs give
way to them. A sender has a share of the uploads and of the room, and a body that is slower than
LEAST_RATE ends. An upload that nobody continues for an hour goes.
Never: hand out a byte of a blob that is not hashed.
"""

import asyncio
import hashlib
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import msgspec
from starlette.requests import ClientDisconnect

from torrentdist.bundle.files.durability import disk_failures
from torrentdist.bundle.images.blob_upload import BlobChunk, UploadState
from torrentdist.bundle.images.push_room import PushRoom, StoreRoom
from torrentdist.host.process.heavy_work import until_ended
from torrentdist.model.errors import TorrentdistError
from torrentdist.supervisor.images.registry_errors import RegistryError
from torrentdist.supervisor.images.staged_blobs import (
    StagedBlobs,
    read_note,
    remove_with_note,
    write_note,
)

ABANDONED_SECS: Final = 3600.0
MOST_OPEN: Final = 1000
MOST_OF_SENDER: Final = 250
LEAST_RATE: Final = 16 * 1024
"""Bytes per second of a body, on average after SLOW_SECS."""
SLOW_SECS: Final = 60.0
_WRITE_BYTES: Final = 1024 * 1024
"""Bytes per write. Each costs a thread switch."""
_MOST_IN_MEMORY: Final = 64 * 1024 * 1024
"""Bytes of all uploads together that wait for a write."""
_LOOK_BYTES: Final = 16 * 1024 * 1024
"""Bytes without an announced size for which room is promised at once."""


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


class UploadNote(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    sender: str


@dataclass
class BlobUpload:
    id: str
    name: str
    """The name of the image that it is for."""
    sender: str
    file: Path
    state: UploadState = field(default_factory=UploadState)
    written: int = 0
    hash: _Hash | None = field(default_factory=hashlib.sha256)
    """The hash of all bytes so far; None: an earlier process took some of them."""
    promised: int = 0
    touched: float = field(default_factory=time.monotonic)


class BlobUploads:
    def __init__(self, staged: StagedBlobs, room: StoreRoom) -> None:
        self.staged = staged
        self._room = room
        self._directory = staged.directory / "uploads"
        self._open: dict[str, BlobUpload] = {}

    async def open(self) -> None:
        """Reads the uploads that an earlier process has left."""
        self._open = {upload.id: upload for upload in await asyncio.to_thread(self._left)}

    async def begin(self, name: str, sender: str) -> BlobUpload:
        """Begins an upload, or raises the error of a sender that has too many."""
        own = sum(upload.sender == sender for upload in self._open.values())
        if own >= MOST_OF_SENDER or len(self._open) >= MOST_OPEN:
            raise TorrentdistError("too_many_uploads", name=sender, own=own, count=len(self._open))
        self.staged.check_count(sender)
        id_ = secrets.token_hex(16)
        upload = self._open[id_] = BlobUpload(id_, name, sender, self._directory / id_)
        try:
            with disk_failures(self._directory):
                await asyncio.to_thread(_create, upload)
        except BaseException:
            self._open.pop(id_, None)
            raise
        return upload

    def get(self, id_: str, name: str, sender: str) -> BlobUpload:
        """Returns an open upload. One of another sender or image does not exist."""
        upload = self._open.get(id_)
        if upload is None or (upload.name, upload.sender) != (name, sender):
            raise RegistryError("BLOB_UPLOAD_UNKNOWN", 404, "this upload")
        return upload

    async def receive(self, upload: BlobUpload, chunk: BlobChunk, body: AsyncIterator[bytes]) -> None:
        """Takes the bytes of one request. What has come before an error stays."""
        upload.state = upload.state.begun(chunk)
        try:
            await self._promise(upload, chunk.size or 0)
            with disk_failures(upload.file):
                await self._write_all(upload, body)
        except ClientDisconnect:
            raise TorrentdistError("interrupted") from None
        finally:
            upload.promised, upload.touched = 0, time.monotonic()
            upload.state = UploadState(upload.written)

    async def finish(self, upload: BlobUpload, digest: str) -> None:
        """Makes a blob of an upload. Raises DIGEST_INVALID if it is another one; then it is gone.
        After any other error the upload stays, and may be finished again."""
        if upload.state.is_busy:
            raise TorrentdistError("range_not_satisfiable", range="all", size=upload.state.offset)
        upload.state = upload.state.begun(BlobChunk())
        try:
            found = await self._digest_of(upload)
            if found != digest:
                await asyncio.to_thread(remove_with_note, upload.file)
                told = f"the bytes that came have the digest {found}, and not {digest}"
                raise RegistryError("DIGEST_INVALID", 400, told)
            await self.staged.put(upload.file, digest, upload.written, upload.name, upload.sender)
        finally:
            upload.state = upload.state.ended()
            if not await asyncio.to_thread(upload.file.exists):
                self._open.pop(upload.id, None)
        await asyncio.to_thread(remove_with_note, upload.file)

    async def _digest_of(self, upload: BlobUpload) -> str:
        if upload.hash is not None:
            return f"sha256:{upload.hash.hexdigest()}"
        return await self.staged.hashed(upload.file, upload.sender)

    async def cancel(self, upload: BlobUpload) -> None:
        if not upload.state.is_busy:
            self._open.pop(upload.id, None)
            await asyncio.to_thread(remove_with_note, upload.file)

    async def expire(self) -> None:
        """Drops the uploads that nobody has continued for an hour."""
        now = time.monotonic()
        for upload in list(self._open.values()):
            if now - upload.touched > ABANDONED_SECS:
                await self.cancel(upload)

    async def check_room(self, size: int, sender: str) -> None:
        """Raises `disk_full` if there is no room for so many bytes of a sender beside what is
        promised, also after bundles that nobody needs gave way."""
        found = await self._room_of(sender)
        if found.left() >= size:
            return
        unneeded = await self._room.unneeded_bytes()
        if (left := found.left(unneeded)) >= size:
            await self._room.give_way(size - found.free)
            unneeded = await self._room.unneeded_bytes()
            found = await self._room_of(sender)
            left = min(found.free, found.left(unneeded))
        if left < size:
            raise TorrentdistError("disk_full", path=str(self._directory), needed=size, free=max(0, left))

    async def _room_of(self, sender: str) -> PushRoom:
        """Returns the room of a sender. The disk is measured first: what is promised meanwhile
        counts."""
        free = await self._free()
        own = sum(blob.size for blob in self.staged.all() if blob.sender == sender)
        own += sum(_taken(upload) for upload in self._open.values() if upload.sender == sender)
        return PushRoom(free, self.staged.size + sum(map(_taken, self._open.values())), own)

    async def _free(self) -> int:
        """Returns the bytes that may still be pushed."""
        usage = await self._room.measure()
        promised = sum(upload.promised for upload in self._open.values())
        free = usage.free_bytes - usage.reserve_bytes - usage.arriving_bytes - promised
        if usage.limit_bytes:
            held = usage.published_bytes + usage.arriving_bytes + self.staged.size
            held += sum(map(_taken, self._open.values()))
            free = min(free, usage.limit_bytes - held)
        return free

    async def _promise(self, upload: BlobUpload, size: int) -> None:
        await self.check_room(size, upload.sender)
        upload.promised = size

    async def _write_all(self, upload: BlobUpload, body: AsyncIterator[bytes]) -> None:
        clock = asyncio.get_running_loop().time
        latest, came, looked = clock() + SLOW_SECS, 0, 0
        parts = bytearray()
        try:
            while part := await _next(body, latest + came / LEAST_RATE):
                upload.state = upload.state.received(len(part))
                parts += part
                came += len(part)
                if len(parts) >= min(_WRITE_BYTES, _MOST_IN_MEMORY // max(1, len(self._open))):
                    data, parts = bytes(parts), bytearray()
                    await self._write(upload, data)
                if upload.state.expected is None and came - looked >= _LOOK_BYTES:
                    looked = came
                    await self._promise(upload, _LOOK_BYTES)
        finally:
            if parts:
                await self._write(upload, bytes(parts))

    async def _write(self, upload: BlobUpload, data: bytes) -> None:
        work = asyncio.ensure_future(asyncio.to_thread(_append, upload, data))
        await until_ended(work)
        work.result()
        upload.promised = max(0, upload.promised - len(data))
        upload.touched = time.monotonic()

    def _left(self) -> list[BlobUpload]:
        found = []
        for file in [*self._directory.iterdir()]:
            if file.suffix:
                if not file.with_suffix("").exists():
                    file.unlink(missing_ok=True)
                continue
            note = read_note(file, UploadNote)
            if note is None or time.time() - file.stat().st_mtime > ABANDONED_SECS:
                remove_with_note(file)
                continue
            size = file.stat().st_size
            found.append(BlobUpload(file.name, note.name, note.sender, file, UploadState(size), size, None))
        return found


def _taken(upload: BlobUpload) -> int:
    """Returns the bytes that an upload has taken of the disk, or was promised."""
    return upload.written + upload.promised


def _create(upload: BlobUpload) -> None:
    write_note(upload.file, UploadNote(name=upload.name, sender=upload.sender))
    upload.file.open("xb").close()


async def _next(body: AsyncIterator[bytes], deadline: float) -> bytes:
    """Returns the next bytes of a body; none at its end."""
    try:
        async with asyncio.timeout_at(deadline):
            async for part in body:
                if part:
                    return part
    except TimeoutError:
        raise TorrentdistError("invalid_request", detail="its body comes too slowly") from None
    return b""


def _append(upload: BlobUpload, data: bytes) -> None:
    """Writes all of these bytes, or none of them."""
    with open(upload.file, "r+b", buffering=0) as stream:
        stream.seek(upload.written)
        view = memoryview(data)
        try:
            while view:
                view = view[stream.write(view) or 0 :]
        except OSError:
            stream.truncate(upload.written)
            raise
    upload.written += len(data)
    if upload.hash is not None:
        upload.hash.update(data)
