"""Reads the metadata of a wheel or an sdist from the archive.

Always: the bytes that are read and unpacked are bounded, since an archive from outside may unpack
to any size. An archive that cannot be read now is an error, and is not remembered.
Never: raise for an archive that is damaged or strange. It counts as one without metadata.
"""

import asyncio
import gzip
import hashlib
import io
import re
import tarfile
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Final

from torrentdist.bundle.files.durability import disk_failure
from torrentdist.bundle.metafile import FileEntry
from torrentdist.host.process.heavy_work import in_heavy_thread
from torrentdist.model.errors import TorrentdistError
from torrentdist.supervisor.bundles.host_content import HostContent

MOST_METADATA: Final = 4 * 1024 * 1024
MOST_READ: Final = 8 * 1024 * 1024
"""Bytes that are read of a zip archive. The list of its files takes many times as much memory."""
MOST_UNPACKED: Final = 64 * 1024 * 1024
"""Bytes of an sdist that are read, or unpacked, to find its metadata, which usually comes first."""
MOST_HELD: Final = 16 * 1024 * 1024
MOST_RECENT: Final = 1024
_STEP: Final = 64 * 1024
_MOST_LOOKS: Final = 40
"""Most looks at an arriving archive. Each look starts from the beginning, so the part that is
awaited doubles from look to look."""
_WITHOUT_CONTENT: Final = frozenset(
    (tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE)
)
"""Kinds of members of a tar archive that have no content, whatever size their header states."""
_REQUIRES_PYTHON: Final = re.compile(rb"requires-python:((?:[^\n]|\n[ \t]){,4000})", re.IGNORECASE)
_THREADS = ThreadPoolExecutor(4, thread_name_prefix="metadata")
"""Threads for the parsers. They wait for reads on the event loop, and these reads need asyncio's
own threads, so the parsers must not occupy them."""
Read = Callable[[int, int], bytes]
"""Returns the bytes of an archive from a place to another."""
Find = Callable[[Read, int], bytes | None]
"""Finds the metadata in an archive of this size."""


class NotArrived(Exception):
    """A part of an archive that is needed is not here yet."""

    def __init__(self, start: int) -> None:
        self.start = start
        """The first byte of this part."""


class BoundedReader(io.RawIOBase):
    """An archive as a file that can be read from any place."""

    def __init__(self, read: Read, size: int, most: int) -> None:
        self._read = read
        self._size = size
        self._at = 0
        self._left = most

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError("a place before the beginning")
        self._at = start + offset
        return self._at

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        end = min(self._size, self._at + len(view))
        if end <= self._at:
            return 0
        self._left -= end - self._at
        if self._left < 0:
            raise ValueError("too much of the archive is read")
        data = self._read(self._at, end)
        view[: len(data)] = data
        self._at += len(data)
        return len(data)


class BoundedUnpacking:
    """The content of an archive, of which only the first MOST_UNPACKED bytes can be read."""

    def __init__(self, stream: gzip.GzipFile) -> None:
        self._stream = stream
        self._left = MOST_UNPACKED

    def read(self, size: int) -> bytes:
        data = self._stream.read(min(size, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise ValueError("too much is unpacked")
        return data

    def skip(self, size: int) -> None:
        while size > 0 and (data := self.read(min(size, _STEP))):
            size -= len(data)


def wheel_metadata(read: Read, size: int) -> bytes | None:
    """Returns the METADATA of a wheel; None if it has none, or more than one. Blocks."""
    try:
        with zipfile.ZipFile(io.BufferedReader(BoundedReader(read, size, MOST_READ), 64 * 1024)) as archive:
            names = [name for name in archive.namelist() if _is_metadata(name)]
            if len(names) != 1:
                return None
            with archive.open(names[0]) as stream:
                return _whole(stream, MOST_METADATA)
    except (TorrentdistError, NotArrived):
        raise
    except Exception:  # the parsers raise many kinds of exceptions for damaged archives
        return None


def _is_metadata(name: str) -> bool:
    folder, _, rest = name.partition("/")
    return folder.endswith(".dist-info") and rest == "METADATA"


def sdist_metadata(read: Read, size: int) -> bytes | None:
    """Returns the PKG-INFO of an sdist; None if it has none near its beginning. Blocks."""
    try:
        is_zip = read(0, min(2, size)) == b"PK"
        source = io.BufferedReader(BoundedReader(read, size, MOST_READ if is_zip else MOST_UNPACKED), 64 * 1024)
        if is_zip:
            with zipfile.ZipFile(source) as archive, archive.open(_pkg_info(archive.namelist())) as found:
                return _whole(found, MOST_METADATA)
        return _in_tar(source)
    except (TorrentdistError, NotArrived):
        raise
    except Exception:
        return None


def _pkg_info(names: list[str]) -> str:
    return next(name for name in names if name.count("/") == 1 and name.endswith("/PKG-INFO"))


def _in_tar(source: IO[bytes]) -> bytes | None:
    """Finds PKG-INFO by the plain headers alone. tarfile needs hours for some extended headers, and
    blocks all other threads meanwhile."""
    unpacked = BoundedUnpacking(gzip.GzipFile(fileobj=source))
    while True:
        header = tarfile.TarInfo.frombuf(unpacked.read(tarfile.BLOCKSIZE), "utf-8", "replace")
        if header.isreg() and header.name.count("/") == 1 and header.name.endswith("/PKG-INFO"):
            return unpacked.read(header.size) if 0 <= header.size <= MOST_METADATA else None
        if header.type not in _WITHOUT_CONTENT:
            unpacked.skip(-(-header.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE)


def _whole(stream: IO[bytes], most: int) -> bytes | None:
    data = stream.read(most + 1)
    return data if len(data) <= most else None


def requires_python(metadata: bytes) -> str:
    """Returns the Python versions that the metadata asks for; empty if it asks for none. Takes
    milliseconds for metadata of the largest size, whatever is in it."""
    found = _REQUIRES_PYTHON.match(metadata, _header_place(metadata))
    text = "" if found is None else " ".join(found[1].decode("utf-8", "replace").split())
    return text if text.isprintable() and len(text) <= 200 else ""


def _header_place(metadata: bytes) -> int:
    """Returns where the line of the header begins; the end of the metadata if there is none."""
    ends = [place for place in map(metadata.find, (b"\n\n", b"\n\r\n")) if place >= 0]
    place = (b"\n" + metadata[: min(ends, default=None)]).lower().find(b"\nrequires-python:")
    return place if place >= 0 else len(metadata)


class DistributionMetadata:
    """The metadata of wheels and sdists of bundles. What was read last stays in memory."""

    def __init__(self) -> None:
        self._recent: OrderedDict[bytes, bytes | None] = OrderedDict()
        """By the root of the file."""
        self._held = 0

    async def of(self, content: HostContent, file: FileEntry) -> bytes | None:
        """Returns the metadata; None if the file has none, or is damaged."""
        if file.root in self._recent:
            self._recent.move_to_end(file.root)
            return self._recent[file.root]
        find = wheel_metadata if file.path.endswith(".whl") else sdist_metadata
        for number in range(_MOST_LOOKS):
            try:
                found = await _look(find, content, file)
            except NotArrived as exc:
                end = min(file.size, exc.start + _STEP * 2**number)
                async for _ in content.read_part(file, exc.start, end):  # waits without holding a thread
                    pass
            else:
                self._keep(file.root, found)
                return found
        raise TorrentdistError("not_ready", detail=f"{file.path} does not stay on this host")

    async def sha256(self, content: HostContent, file: FileEntry) -> str:
        found = await self.of(content, file)
        return "" if found is None else await in_heavy_thread(_sha256, found)

    async def requires_python(self, content: HostContent, file: FileEntry) -> str:
        found = await self.of(content, file)
        return "" if found is None else await in_heavy_thread(requires_python, found)

    def _keep(self, root: bytes, found: bytes | None) -> None:
        self._held -= len(self._recent.pop(root, None) or b"")
        self._recent[root] = found
        self._held += len(found or b"")
        while self._held > MOST_HELD or len(self._recent) > MOST_RECENT:
            _, oldest = self._recent.popitem(last=False)
            self._held -= len(oldest or b"")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def _look(find: Find, content: HostContent, file: FileEntry) -> bytes | None:
    """Reads the metadata in a thread. If a part has not arrived, raises NotArrived instead of
    waiting for it."""
    loop = asyncio.get_running_loop()

    def read(start: int, end: int) -> bytes:
        try:
            data = asyncio.run_coroutine_threadsafe(content.read_now(file, start, end), loop).result()
        except OSError as exc:
            # The parsers would take an OSError for damage: gzip's own BadGzipFile is one.
            raise disk_failure(exc, Path(file.path)) from exc
        if data is None:
            raise NotArrived(start)
        return data

    return await loop.run_in_executor(_THREADS, find, read, file.size)
