"""Keeps archives of bundles on this host's disk, so that each is made once and read while it grows.

Always: archives and bundles together stay within the limits of the store, and an archive gives way
to a bundle. A reader gets a whole archive or an error. Each archive has a file of its own, so one
that is deleted late takes no newer one away.
Never: keep an archive beyond the process, or delete a file under the lock, which the event loop
waits for. What a crash leaves behind is deleted at the start.
"""

import asyncio
import itertools
import os
import shutil
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from torrentdist.bundle.store.store import StoreUsage
from torrentdist.host.http.file_answers import CHUNK
from torrentdist.host.process.heavy_work import in_heavy_thread
from torrentdist.log import get_logger
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest
from torrentdist.supervisor.bundles.host_content import HostContent
from torrentdist.supervisor.gateway.archives import ArchiveFormat, archive, room_for, size_of

log = get_logger()

Name = tuple[Digest, ArchiveFormat]


def allowance(usage: StoreUsage, held: int, coming: int) -> int:
    """Returns the bytes that archives may hold in all.

    They hold `held` now; a bundle needs `coming`.
    """
    taken = usage.arriving_bytes + coming
    room = held + usage.free_bytes - usage.reserve_bytes - taken
    if usage.limit_bytes:
        room = min(room, usage.limit_bytes - usage.published_bytes - taken)
    return max(0, room)


@dataclass
class Growing:
    """An archive that is being made, or is whole."""

    path: Path
    reserved: int
    size: int | None = None
    """Size of the whole archive in bytes; None: it is known only at the end."""
    begun: bool = False
    written: int = 0
    whole: bool = False
    identity: tuple[int, int, int] | None = None
    """Size, mtime and ctime of the finished file.

    A file that somebody wrote into later is not handed out.
    """
    error: TorrentdistError | None = None
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def follow(self) -> AsyncIterator[bytes]:
        """Yields its bytes from the first to the last, at the pace at which it is made."""
        async with self.changed:
            while not self.begun and self.error is None:
                await self.changed.wait()
        if self.error is not None:
            raise self.error
        try:
            stream = await asyncio.to_thread(open, self.path, "rb")
        except OSError as exc:
            raise _disk_error(self.path, exc) from exc
        with stream:
            done = 0
            while True:
                async with self.changed:
                    while self.written == done and not self.whole and self.error is None:
                        await self.changed.wait()
                if self.error is not None:
                    raise self.error
                while done < self.written:
                    data = await asyncio.to_thread(os.pread, stream.fileno(), min(CHUNK, self.written - done), done)
                    yield data
                    done += len(data)
                if self.whole and done == self.written:
                    return


class ArchiveCache:
    def __init__(self, directory: Path, measure: Callable[[], Awaitable[StoreUsage]]) -> None:
        """`measure` tells the room that the store's bundles take, and what is free on the disk."""
        self._directory = directory
        self._measure = measure
        self._lock = threading.Lock()
        self._archives: OrderedDict[Name, Growing] = OrderedDict()
        """In the order of use: the last one was used last."""
        self._numbers = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()
        self._beginning = asyncio.Lock()
        """Held while an archive begins, since many clients ask for the same one at once."""

    async def open(self) -> None:
        await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.open()

    async def get(self, content: HostContent, kind: ArchiveFormat) -> Growing | None:
        """Returns the archive, and begins it if need be; None: there is no room to keep one."""
        name = (content.meta.digest, kind)
        async with self._beginning:
            found = await self._known(name)
            return found if found is not None else await self._begin(name, content)

    async def _begin(self, name: Name, content: HostContent) -> Growing | None:
        meta, kind = content.meta, name[1]
        usage = await self._measure()
        room, size = await in_heavy_thread(lambda: (room_for(meta), size_of(meta, kind)))
        growing = Growing(self._directory / f"{name[0]}.{next(self._numbers)}.{kind}", room, size)
        with self._lock:
            allowed = allowance(usage, self._held(), 0) - growing.reserved
            if sum(other.reserved for other in self._archives.values() if not other.whole) > allowed:
                return None
            dropped = self._taken_out(allowed)
            self._archives[name] = growing
        task = asyncio.create_task(self._make(name, growing, content, dropped), name=f"archive {name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return growing

    def make_room(self, coming: int, usage: StoreUsage) -> None:
        """Deletes archives for a bundle of `coming` bytes: a bundle goes before any archive.

        Blocks.
        """
        with self._lock:
            dropped = self._taken_out(allowance(usage, self._held(), coming))
        _delete(dropped)

    def held_bytes(self) -> int:
        """Returns the bytes of all archives."""
        return sum(growing.reserved for growing in tuple(self._archives.values()))

    async def _known(self, name: Name) -> Growing | None:
        with self._lock:
            found = self._archives.get(name)
            if found is not None:
                self._archives.move_to_end(name)
        if found is not None and found.whole and await asyncio.to_thread(_identity, found.path) != found.identity:
            await self._drop(name, found)
            return None
        return found

    def _held(self) -> int:
        return sum(growing.reserved for growing in self._archives.values())

    def _taken_out(self, allowed: int) -> list[Path]:
        """Takes out the archives used longest ago until at most `allowed` bytes are held, and
        returns their files. Readers read on."""
        taken: list[Path] = []
        for name, growing in list(self._archives.items()):
            if self._held() <= allowed:
                break
            if growing.whole:
                del self._archives[name]
                taken.append(growing.path)
        return taken

    async def _drop(self, name: Name, growing: Growing) -> None:
        with self._lock:
            if self._archives.get(name) is growing:
                del self._archives[name]
        await asyncio.to_thread(_delete, [growing.path])

    async def _make(self, name: Name, growing: Growing, content: HostContent, dropped: list[Path]) -> None:
        """Makes an archive in the room of others, whose files are `dropped`."""
        try:
            with await asyncio.to_thread(_create, growing.path, dropped) as stream:
                growing.begun = True
                await _tell(growing, 0)
                async for data in archive(content.meta, name[1], content.read_all):
                    await asyncio.to_thread(_append, stream.fileno(), data)
                    await _tell(growing, len(data))
                growing.identity = await asyncio.to_thread(_identity, growing.path)
            growing.whole, growing.reserved = True, growing.written
        except TorrentdistError as error:
            growing.error = error
        except OSError as exc:
            growing.error = _disk_error(growing.path, exc)
        except asyncio.CancelledError:
            growing.error = TorrentdistError("closing", what="the gateway")
            raise
        except Exception as exc:  # those who follow would wait for ever, and its room would stay taken
            log.exception("an archive failed", digest=name[0], kind=name[1])
            growing.error = TorrentdistError("internal", detail=f"{type(exc).__name__} in an archive")
        finally:
            if growing.error is not None:
                await self._drop(name, growing)
                log.warning("archive not made", digest=name[0], kind=name[1], error=growing.error.message)
            await _tell(growing, 0)


async def _tell(growing: Growing, more: int) -> None:
    async with growing.changed:
        growing.written += more
        growing.changed.notify_all()


def _create(path: Path, dropped: Iterable[Path]) -> IO[bytes]:
    _delete(dropped)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    return open(path, "xb")


def _delete(files: Iterable[Path]) -> None:
    for file in files:
        with suppress(OSError):
            file.unlink(missing_ok=True)


def _identity(path: Path) -> tuple[int, int, int] | None:
    with suppress(OSError):
        found = path.stat()
        return found.st_size, found.st_mtime_ns, found.st_ctime_ns
    return None


def _append(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _disk_error(path: Path, exc: OSError) -> TorrentdistError:
    return TorrentdistError("disk_error", path=str(path), detail=exc.strerror or str(exc))
