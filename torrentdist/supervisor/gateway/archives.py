"""Makes one archive of a bundle from its files, in the order of its metafile.

Always: the bytes depend on the bundle alone, so every host makes the same archive. The size of a
tar is known beforehand. Nothing is compressed. An archive never leaves its host, so it is as fast
as the disk.
Never: open files. The caller passes a function that reads them.
"""

import asyncio
import io
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from enum import StrEnum

from torrentdist.bundle.metafile import FileEntry, Metafile

Read = Callable[[FileEntry], AsyncIterator[bytes]]
"""Reads the content of one file, in parts as they arrive."""

FILE_MODE, EXECUTABLE_MODE, DIRECTORY_MODE = 0o644, 0o755, 0o755
_GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_STORED = 65535
"""Most bytes in a stored block of deflate."""
_PART = 256 * 1024
"""Bytes of an archive that are sent at once."""
_SHORT_NAME = 90
_SMALL_FILE = 1 << 30
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)


class ArchiveFormat(StrEnum):
    TAR = "tar"
    TAR_GZ = "tar.gz"
    ZIP = "zip"

    @property
    def media_type(self) -> str:
        return {"tar": "application/x-tar", "tar.gz": "application/gzip", "zip": "application/zip"}[self]


def archive(meta: Metafile, kind: ArchiveFormat, read: Read) -> AsyncIterator[bytes]:
    if kind is ArchiveFormat.ZIP:
        return _zip(meta, read)
    tar = _joined(_tar(meta, read))
    return tar if kind is ArchiveFormat.TAR else _gzip(tar)


def size_of(meta: Metafile, kind: ArchiveFormat) -> int | None:
    """Returns the size of the archive in bytes; None: it is known only at the end."""
    if kind is ArchiveFormat.ZIP:
        return None
    size = sum(_header_size(info) + _padded(info.size) for info, _ in _members(meta)) + 2 * tarfile.BLOCKSIZE
    if kind is ArchiveFormat.TAR:
        return size
    return len(_GZIP_HEAD) + size + 5 * (-(-size // _STORED) + 1) + 8


def lost_by_spark(meta: Metafile, kind: ArchiveFormat, *, unpacked: bool = True) -> str:
    """Returns what Spark's own unpacking would lose or refuse of this archive; empty: nothing.

    `unpacked`: whether it is unpacked at all. Python imports from a zip as it is.
    """
    if kind is ArchiveFormat.ZIP and meta.symlinks:
        return f"Spark loses links of a zip, such as {meta.symlinks[0].path}"
    if kind is ArchiveFormat.ZIP and meta.empty_dirs and unpacked:
        return f"Spark loses empty directories of a zip, such as {meta.empty_dirs[0]}"
    upward = next((link.path for link in meta.symlinks if ".." in link.target.split("/")), None)
    return f"Spark refuses a tar with a link upward, such as {upward}" if kind is ArchiveFormat.TAR and upward else ""


def room_for(meta: Metafile) -> int:
    """Returns the most bytes that an archive of any kind takes. A zip is smaller than a tar."""
    size = size_of(meta, ArchiveFormat.TAR_GZ)
    assert size is not None
    return size


def _members(meta: Metafile) -> Iterator[tuple[tarfile.TarInfo, FileEntry | None]]:
    for path in meta.directories:
        yield _member(path, DIRECTORY_MODE, tarfile.DIRTYPE), None
    for link in meta.symlinks:
        info = _member(link.path, 0o777, tarfile.SYMTYPE)
        info.linkname = link.target
        yield info, None
    for file in meta.files:
        info = _member(file.path, EXECUTABLE_MODE if file.executable else FILE_MODE, tarfile.REGTYPE)
        info.size = file.size
        yield info, file


def _member(path: str, mode: int, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(path)
    info.mode, info.type = mode, kind
    return info


def _header(info: tarfile.TarInfo) -> bytes:
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _header_size(info: tarfile.TarInfo) -> int:
    """Returns the size of a header. Only long or unusual names and sizes need more than a block."""
    is_plain = len(info.name) < _SHORT_NAME and info.name.isascii() and len(info.linkname) < _SHORT_NAME
    if is_plain and info.linkname.isascii() and info.size < _SMALL_FILE:
        return tarfile.BLOCKSIZE
    return len(_header(info))


def _padded(size: int) -> int:
    return -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE


async def _tar(meta: Metafile, read: Read) -> AsyncIterator[bytes]:
    for info, file in _members(meta):
        yield _header(info)
        if file is not None:
            async for data in read(file):
                yield data
            yield bytes(_padded(file.size) - file.size)
    yield bytes(2 * tarfile.BLOCKSIZE)


async def _joined(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Joins short parts after the first one. Each part costs several steps on its way."""
    yield await anext(stream, b"")
    rest = bytearray()
    async for data in stream:
        if rest and (len(rest) >= _PART or len(data) >= _PART):
            yield bytes(rest)
            rest.clear()
        rest += data
    yield bytes(rest)


async def _gzip(plain: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield _GZIP_HEAD
    check = size = 0
    async for data in _portions(plain):
        check, size = zlib.crc32(data, check), size + len(data)
        yield b"".join(_stored(data[i : i + _STORED]) for i in range(0, len(data), _STORED))
    yield b"\x01\x00\x00\xff\xff" + struct.pack("<II", check, size & 0xFFFFFFFF)


async def _portions(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Cuts a stream into whole blocks; only the last part may be shorter.

    What is made of the blocks does not depend on how the stream arrived.
    """
    rest = bytearray()
    async for data in stream:
        rest += data
        whole = len(rest) - len(rest) % _STORED
        if whole:
            yield bytes(rest[:whole])
            del rest[:whole]
    if rest:
        yield bytes(rest)


def _stored(block: bytes) -> bytes:
    return struct.pack("<BHH", 0, len(block), len(block) ^ 0xFFFF) + block


class _Sink(io.RawIOBase):
    """Collects what zipfile writes. It is not seekable, so lengths follow the data."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        part = bytes(data)  # type: ignore[call-overload]
        self._parts.append(part)
        return len(part)

    def take(self) -> bytes:
        taken = b"".join(self._parts)
        self._parts.clear()
        return taken


async def _zip(meta: Metafile, read: Read) -> AsyncIterator[bytes]:
    sink = _Sink()
    made = zipfile.ZipFile(sink, "w")
    try:
        for member, file in _members(meta):
            info = zipfile.ZipInfo(member.name + "/" * member.isdir(), _ZIP_EPOCH)
            info.create_system = 3
            # Deflate without compression: unlike stored data, it tells a reader where it ends.
            info.compress_type, info._compresslevel = zipfile.ZIP_DEFLATED, 0  # type: ignore[attr-defined]
            kinds = {tarfile.DIRTYPE: stat.S_IFDIR, tarfile.SYMTYPE: stat.S_IFLNK}
            info.external_attr = (kinds.get(member.type, stat.S_IFREG) | member.mode) << 16
            info.file_size = member.size
            with made.open(info, "w", force_zip64=member.size > 1 << 30) as entry:
                if member.issym():
                    entry.write(member.linkname.encode())
                elif file is not None:
                    async for data in _portions(read(file)):
                        for start in range(0, len(data), _STORED):
                            entry.write(data[start : start + _STORED])
                        yield sink.take()
            yield sink.take()
    finally:
        await asyncio.to_thread(made.close)  # it lists all the members
    yield sink.take()
