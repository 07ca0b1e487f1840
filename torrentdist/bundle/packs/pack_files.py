"""Writes packs from the files of a bundle, and the files from its packs.

Always: each file is hashed as it goes from one to the other, so both hold the bytes that the
metafile names. A pack appears complete, by a rename. Files are written anew, never into what is
there; only a file with the right bytes stays.
Never: follow a symlink below the top, or make anything durable: the caller syncs.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, pairwise, takewhile
from pathlib import Path

from torrentdist.bundle import merkle
from torrentdist.bundle.file_tree import FileEntry
from torrentdist.bundle.hashing import FileHash
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.packs.small_file_writer import SmallFileWriter
from torrentdist.model.errors import TorrentdistError

GoOn = Callable[[], bool]
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def to_the_end() -> bool:
    """Goes on: for a caller that never stops."""
    return True


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


def write_files(meta: Metafile, home: Path, go_on: GoOn = to_the_end) -> None:
    """Writes the small files below `home`/content, from the packs that are complete in `home`. It
    stops before the pack at which `go_on` says so.

    Raises `corrupt` if a pack does not hold the bytes that the manifest says.
    """
    if meta.packed.files:
        with SmallFileWriter(home) as target:
            for pack, files in takewhile(lambda _: go_on(), meta.packs):
                write_from_pack(target, home / pack.place, files)


def write_from_pack(target: SmallFileWriter, pack: Path, files: Sequence[FileEntry], there: bytes = b"") -> None:
    """Writes the files of a complete pack. `there`: for each of them whether it is written
    already; nothing if none is."""
    data, at = pack.read_bytes(), 0
    for number, file in enumerate(files):
        if not (there and there[number]):
            part = data[at : at + file.size]
            if file.size and root_of(part) != file.root:
                raise TorrentdistError("corrupt", path=file.path, detail="its pack holds other bytes")
            target.write(file, part)
        at += file.size


def write_known_files(meta: Metafile, home: Path, go_on: GoOn = to_the_end) -> None:
    """Writes those small files whose bytes are in the packs that were begun in `home`. It stops
    before the pack at which `go_on` says so."""
    begun = [(pack, files) for pack, files in meta.packs if has_size(home / pack.place, pack.size)]
    if not begun:
        return
    with SmallFileWriter(home) as target:
        for pack, files in takewhile(lambda _: go_on(), begun):
            data, at = (home / pack.place).read_bytes(), 0
            for file in files:
                part = data[at : at + file.size]
                at += file.size
                if not file.size or root_of(part) == file.root:
                    target.write(file, part)
