"""Blobs and manifests that were pushed to this host and belong to no published image yet.

    <data>/pushes/blobs/<hex>, <hex>.json     a blob, and under which names it was pushed
    <data>/pushes/uploads/<id>, <id>.json     a blob that still comes (blob_uploads.py)
    <data>/pushes/layouts/<id>/               an image that is about to be published

Always: a blob is what its digest says, whatever the disk does while it is written. One that an
earlier process left is hashed before it is used. What nobody has used for a day goes. A sender has
a share of their number, and of the threads that hash them.
Never: change a blob.
"""

import asyncio
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar
from weakref import WeakValueDictionary

import msgspec

from torrentdist.bundle.files.durability import disk_failures, is_shortage
from torrentdist.bundle.images.image_layout import MOST_BYTES
from torrentdist.host.process.heavy_work import until_ended
from torrentdist.host.process.shared_slots import SharedSlots
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.view import decode_json

N = TypeVar("N", bound=msgspec.Struct)

KEEP_SECS: Final = 24 * 3600.0
MOST_BLOBS: Final = 20_000
MOST_OF_SENDER: Final = 10_000
MOST_NAMES: Final = 256
"""Names of one blob. Where it gets one more, the one that it got first goes."""
HASHED_AT_ONCE: Final = 2
"""Each takes a thread for as long as its blob is read, which may be minutes."""
_NOTE: Final = ".json"
_CHUNK: Final = 1024 * 1024


class StagedBlob(msgspec.Struct, frozen=True, kw_only=True):
    digest: str
    size: int
    names: tuple[str, ...]
    """The names of images under which it was pushed."""
    is_manifest: bool = False
    used_at: float = 0.0
    sender: str = ""
    """The sender that pushed it first."""


class StagedBlobs:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._blobs: dict[str, StagedBlob] = {}
        self._doubtful: set[str] = set()
        """Digests of blobs that an earlier process has left."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Held by images that take these blobs."""
        self._changing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Held while the files of a blob are written or removed."""
        self._threads = ThreadPoolExecutor(HASHED_AT_ONCE, thread_name_prefix="blob")
        self._turns = SharedSlots(HASHED_AT_ONCE, 1)

    async def open(self) -> None:
        """Reads what an earlier process has left."""
        found = await asyncio.to_thread(self._opened)
        self._blobs = {blob.digest: blob for blob in found}
        self._doubtful = set(self._blobs)

    def path(self, digest: str) -> Path:
        return self.directory / "blobs" / digest.removeprefix("sha256:")

    def get(self, digest: str) -> StagedBlob | None:
        return self._blobs.get(digest)

    def all(self) -> list[StagedBlob]:
        return list(self._blobs.values())

    @property
    def size(self) -> int:
        return sum(blob.size for blob in self._blobs.values())

    def check_count(self, sender: str) -> None:
        """Raises an error where no further blob may come."""
        own = sum(blob.sender == sender for blob in self._blobs.values())
        if own >= MOST_OF_SENDER or len(self._blobs) >= MOST_BLOBS:
            raise TorrentdistError("too_many_uploads", name=sender, own=own, count=len(self._blobs))

    async def put(self, file: Path, digest: str, size: int, name: str, sender: str) -> None:
        """Takes over a file that was just hashed."""
        async with self._change(digest):
            with disk_failures(file):
                await asyncio.to_thread(os.replace, file, self.path(digest))
            self._doubtful.discard(digest)
            await self._note(digest, size, name, sender, is_manifest=False)

    async def put_manifest(self, data: bytes, digest: str, name: str, sender: str) -> None:
        async with self._change(digest):
            with disk_failures(self.directory, needed=len(data)):
                await asyncio.to_thread(_write_whole, self.path(digest), data)
            self._doubtful.discard(digest)
            await self._note(digest, len(data), name, sender, is_manifest=True)

    async def add_name(self, digest: str, name: str) -> bool:
        """Shows a blob under one more name. False: it is not here any more."""
        async with self._change(digest):
            if (blob := self._blobs.get(digest)) is not None:
                await self._note(digest, blob.size, name, blob.sender, is_manifest=blob.is_manifest)
        return blob is not None

    async def is_sound(self, digest: str) -> bool:
        """Whether a blob is here and what its digest says. A wrong one is dropped, and so is one
        that cannot be read."""
        if digest in self._doubtful:
            async with self._turns.taken(self._blobs[digest].sender):
                if digest in self._doubtful:  # else another reader has waited for its hash
                    await self._settle(digest)
        return digest in self._blobs

    async def _settle(self, digest: str) -> None:
        try:
            found = await self._hashed(self.path(digest))
        except TorrentdistError as error:
            if is_shortage(error.__cause__):
                raise
            found = ""
        async with self._change(digest):
            if digest in self._doubtful and found != digest:  # else it was pushed again meanwhile
                await self._remove(digest)
            self._doubtful.discard(digest)

    async def hashed(self, file: Path, sender: str) -> str:
        """Returns the digest of a file. A sender's other files wait meanwhile."""
        async with self._turns.taken(sender):
            return await self._hashed(file)

    async def _hashed(self, file: Path) -> str:
        work = asyncio.get_running_loop().run_in_executor(self._threads, hash_of, file)
        await until_ended(work)
        return work.result()

    async def manifest(self, digest: str) -> bytes | None:
        blob = self._blobs.get(digest)
        if blob is None or not blob.is_manifest or blob.size > MOST_BYTES or not await self.is_sound(digest):
            return None
        with disk_failures(self.directory):
            return await asyncio.to_thread(self.path(digest).read_bytes)

    @asynccontextmanager
    async def alone(self, digests: Iterable[str]) -> AsyncIterator[None]:
        """Keeps these blobs for one image that takes them into its bundle."""
        async with AsyncExitStack() as held:
            for digest in sorted(set(digests)):
                await held.enter_async_context(self._locks.setdefault(digest, asyncio.Lock()))
            yield

    def _change(self, digest: str) -> asyncio.Lock:
        return self._changing.setdefault(digest, asyncio.Lock())

    async def drop(self, digest: str) -> None:
        async with self._change(digest):
            await self._remove(digest)

    async def _remove(self, digest: str) -> None:
        self._blobs.pop(digest, None)
        self._doubtful.discard(digest)
        await asyncio.to_thread(remove_with_note, self.path(digest))

    async def expire(self) -> None:
        """Drops what nobody has used for a day."""
        for digest in list(self._blobs):
            if self._is_unused(digest):
                async with self.alone([digest]):
                    if self._is_unused(digest):  # It may have been pushed again meanwhile.
                        await self.drop(digest)

    def _is_unused(self, digest: str) -> bool:
        """Whether nobody has used a blob for a day. One that was used later than now, because the
        clock was put back, counts as used now."""
        blob, now = self._blobs.get(digest), time.time()
        if blob is not None and blob.used_at > now:
            blob = self._blobs[digest] = msgspec.structs.replace(blob, used_at=now)
        return blob is not None and now - blob.used_at >= KEEP_SECS

    async def _note(self, digest: str, size: int, name: str, sender: str, *, is_manifest: bool) -> None:
        before = self._blobs.get(digest)
        sender = sender if before is None else before.sender
        others = [] if before is None else [one for one in before.names if one != name]
        names = (*others[-(MOST_NAMES - 1) :], name)
        blob = StagedBlob(
            digest=digest, size=size, names=names, is_manifest=is_manifest, used_at=time.time(), sender=sender
        )
        self._blobs[digest] = blob
        with disk_failures(self.directory):
            await asyncio.to_thread(write_note, self.path(digest), blob)

    def _opened(self) -> list[StagedBlob]:
        with disk_failures(self.directory):
            shutil.rmtree(self.directory / "layouts", ignore_errors=True)
            for folder in (".", "blobs", "uploads", "layouts"):
                (self.directory / folder).mkdir(mode=0o700, exist_ok=True)
            return [blob for file in [*(self.directory / "blobs").iterdir()] if (blob := _left(file)) is not None]


def _left(file: Path) -> StagedBlob | None:
    """Returns the blob of a file; None for a note. A blob without its note goes, and so does a note
    without its blob."""
    if file.suffix:
        if file.suffix != _NOTE or not file.with_suffix("").exists():
            file.unlink(missing_ok=True)
        return None
    blob = read_note(file, StagedBlob)
    if blob is None or blob.digest != f"sha256:{file.name}" or blob.size != file.stat().st_size:
        remove_with_note(file)
        return None
    return blob


def write_note(file: Path, note: msgspec.Struct) -> None:
    """Writes what is known of a file beside it."""
    _write_whole(file.with_suffix(_NOTE), msgspec.json.encode(note))


def _write_whole(file: Path, data: bytes) -> None:
    """Writes a file anew. Where the disk has no room, the old one stays."""
    made = file.with_suffix(f".{secrets.token_hex(6)}.new")
    try:
        made.write_bytes(data)
        os.replace(made, file)
    except OSError:
        made.unlink(missing_ok=True)
        raise


def read_note(file: Path, kind: type[N]) -> N | None:
    try:
        return decode_json(file.with_suffix(_NOTE).read_bytes(), kind)
    except (OSError, ValueError, msgspec.MsgspecError):
        return None


def remove_with_note(file: Path) -> None:
    """Removes a file and what is known of it."""
    for path in (file, file.with_suffix(_NOTE)):
        with suppress(OSError):
            path.unlink(missing_ok=True)


def hash_of(path: Path) -> str:
    """Returns the digest of a file. Blocks."""
    found = hashlib.sha256()
    try:
        with open(path, "rb", buffering=0) as stream:
            while data := stream.read(_CHUNK):
                found.update(data)
    except OSError as exc:
        raise TorrentdistError("disk_error", path=str(path), detail=exc.strerror or str(exc)) from exc
    return f"sha256:{found.hexdigest()}"
