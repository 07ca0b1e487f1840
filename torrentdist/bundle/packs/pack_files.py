"""Writes packs from the files of a bundle, and the files from its packs.

Always: each file is hashed as it goes from one to the other, so both hold the bytes that the
metafile names. A pack appears complete, by a rename. Files are written anew, never into what is
there; only a file with the right bytes stays.
Never: follow a symlink below the top, or make anything durable: the caller syncs.
"""

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, pairwise
from pathlib import Path

from torrentdist.bundle import merkle
from torrentdist.bundle.file_tree import FileEntry
from torrentdist.bundle.hashing import FileHash
from torrentdist.bundle.metafile import CONTENT, Metafile, WireFile
from torrentdist.model.errors import TorrentdistError

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
FILE_MODE = 0o444
EXECUTABLE_MODE = 0o555


def hash_packs(
    top: Path, files: Sequence[FileEntry], counts: Sequence[int], piece_length: int
) -> Iterator[tuple[int, FileHash]]:
    """Yields the size and the hashes of each pack of the directory `top`. `files`: all of them, in
    pack order."""
    for start, end in pairwise(accumulate(counts, initial=0)):
        data = read_pack(top, files[start:end])
        yield len(data), _hash(data, piece_length)


def _hash(data: bytes, piece_length: int) -> FileHash:
    leaves = merkle.leaves(memoryview(data))
    if len(data) <= piece_length:
        return FileHash(merkle.root(leaves), b"")
    step = piece_length // merkle.BLOCK
    pieces = [merkle.piece_hash(leaves[at : at + step], piece_length) for at in range(0, len(leaves), step)]
    return FileHash(merkle.root(pieces, merkle.empty_piece(piece_length)), b"".join(pieces))


def read_pack(top: Path, files: Sequence[FileEntry]) -> bytes:
    """Returns the bytes of these files. Raises `changed_while_reading` if one of them is not as it
    should be."""
    parts = []
    prefix = os.fsencode(top) + b"/"
    for file in files:
        if file.size:
            try:
                data = read_small(prefix + file.path.encode(), file.size)
            except OSError as exc:
                raise TorrentdistError("changed_while_reading", path=file.path) from exc
            if root_of(data) != file.root:
                raise TorrentdistError("changed_while_reading", path=file.path)
            parts.append(data)
    return b"".join(parts)


def read_small(path: bytes, size: int) -> bytes:
    """Returns the content of a file of this size. It has another length if the file has."""
    fd = os.open(path, _READ)
    try:
        return os.read(fd, size + 1)
    finally:
        os.close(fd)


def root_of(data: bytes) -> bytes:
    """Returns the Merkle root of a small file."""
    if len(data) <= merkle.BLOCK:
        return hashlib.sha256(data).digest()
    return merkle.root(merkle.leaves(memoryview(data)))


def write_packs(meta: Metafile, top: Path, home: Path) -> None:
    """Writes the packs that are not in the directory `home` of the bundle, from its files below
    `top`."""
    if not meta.packed.counts:
        return
    (home / "packs").mkdir(parents=True, exist_ok=True)
    for pack, files in meta.packs:
        target = home / pack.place
        if has_size(target, pack.size):
            continue
        temporary = target.with_suffix(".new")
        with suppress(FileNotFoundError):
            temporary.unlink()
        temporary.write_bytes(read_pack(top, files))
        os.rename(temporary, target)


def has_size(path: Path, size: int) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size == size


def write_files(meta: Metafile, home: Path) -> None:
    """Writes the small files below `home`/content, from the packs that are complete in `home`.

    Raises `corrupt` if a pack does not hold the bytes that the manifest says.
    """
    _write_files(home, meta.packs, only_right=False)


def write_known_files(meta: Metafile, home: Path) -> None:
    """Writes those small files whose bytes are in the packs that were begun in `home`."""
    begun = [(pack, files) for pack, files in meta.packs if has_size(home / pack.place, pack.size)]
    _write_files(home, begun, only_right=True)


def _write_files(home: Path, packs: Sequence[tuple[WireFile, Sequence[FileEntry]]], *, only_right: bool) -> None:
    if not packs:
        return
    (home / CONTENT).mkdir(exist_ok=True)
    target = _FileWriter(os.fsencode(home / CONTENT))
    try:
        for pack, files in packs:
            data = memoryview((home / pack.place).read_bytes())
            at = 0
            for file in files:
                part = bytes(data[at : at + file.size])
                at += file.size
                if not file.size or root_of(part) == file.root:
                    target.write(file, part)
                elif not only_right:
                    raise TorrentdistError("corrupt", path=file.path, detail="its pack holds other bytes")
    finally:
        target.close()


class _FileWriter:
    """The directory to write into. The directory of the last file stays open."""

    def __init__(self, top: bytes) -> None:
        self._top = top
        self._made: set[str] = {""}
        self._here = ""
        self._fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self._fd)

    def write(self, file: FileEntry, data: bytes) -> None:
        directory, _, name = file.path.rpartition("/")
        if directory != self._here:
            self._enter(directory)
        mode = EXECUTABLE_MODE if file.executable else FILE_MODE
        try:
            fd = os.open(name, _WRITE, mode, dir_fd=self._fd)
        except FileExistsError:
            if self._holds(name, data, mode):
                return
            self._clear(name)
            fd = os.open(name, _WRITE, mode, dir_fd=self._fd)
        try:
            if data and os.write(fd, data) != len(data):
                raise OSError(28, os.strerror(28))
        finally:
            os.close(fd)

    def _holds(self, name: str, data: bytes, mode: int) -> bool:
        """Whether a file is there with these bytes, as another bundle of the store has it."""
        try:
            fd = os.open(name, _READ, dir_fd=self._fd)
        except OSError:
            return False
        try:
            found = os.fstat(fd)
            return found.st_mode == stat.S_IFREG | mode and os.read(fd, len(data) + 1) == data
        finally:
            os.close(fd)

    def _clear(self, name: str) -> None:
        try:
            os.unlink(name, dir_fd=self._fd)
        except IsADirectoryError:
            shutil.rmtree(name, dir_fd=self._fd)

    def _enter(self, directory: str) -> None:
        self._make(directory)
        path = self._top + b"/" + directory.encode()
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        os.close(self._fd)
        self._fd, self._here = fd, directory

    def _make(self, directory: str) -> None:
        """Makes a directory and its parents. What is no directory there is removed."""
        if directory in self._made:
            return
        self._make(directory.rpartition("/")[0])
        path = self._top + b"/" + directory.encode()
        try:
            os.mkdir(path, 0o755)
        except FileExistsError:
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                os.unlink(path)
                os.mkdir(path, 0o755)
        self._made.add(directory)
