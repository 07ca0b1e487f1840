"""Lists the contents of a directory, without following any symlink below its top.

Always: names stay bytes until they are known to be valid UTF-8. If two scans are equal, nothing was
added, removed, replaced or written between them.
Never: read content.
"""

import os
import stat
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import msgspec

from torrentdist.bundle import safe_paths
from torrentdist.bundle.files.durability import disk_failure
from torrentdist.model.errors import TorrentdistError


class EntryKind(StrEnum):
    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    FIFO = "fifo"
    SOCKET = "socket"
    DEVICE = "device"


class FoundEntry(NamedTuple):
    path: bytes
    """Relative to the top of the walk."""
    kind: EntryKind
    info: os.stat_result


class ScannedFile(msgspec.Struct, frozen=True):
    path: bytes
    size: int
    mtime_ns: int
    ctime_ns: int
    """Changes with every write, even if the mtime is set back or the inode is reused."""
    inode: int
    mode: int

    @property
    def executable(self) -> bool:
        return is_executable(self.mode)


class Scan(msgspec.Struct, frozen=True):
    """The entries that a bundle can consist of.

    Files are in the order of a file tree, the others are sorted as bytes.
    """

    top: bytes
    """The real path of the single file, or of the directory where the paths start."""
    single_file: bool
    files: tuple[ScannedFile, ...]
    symlinks: tuple[tuple[bytes, bytes], ...]
    empty_dirs: tuple[bytes, ...]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def place(self, file: ScannedFile) -> bytes:
        """Returns the path of a scanned file on disk."""
        return self.top if self.single_file else self.top + b"/" + file.path


def kind_of(mode: int) -> EntryKind:
    if stat.S_ISREG(mode):
        return EntryKind.FILE
    if stat.S_ISDIR(mode):
        return EntryKind.DIRECTORY
    if stat.S_ISLNK(mode):
        return EntryKind.SYMLINK
    if stat.S_ISFIFO(mode):
        return EntryKind.FIFO
    return EntryKind.SOCKET if stat.S_ISSOCK(mode) else EntryKind.DEVICE


def is_executable(mode: int) -> bool:
    """Checks only the owner's bit, the one permission that belongs to the content of a bundle."""
    return bool(mode & stat.S_IXUSR)


def walk(top: bytes) -> Iterator[tuple[bytes, list[FoundEntry]]]:
    """Yields every directory from `top` ("") down, with its entries in order.

    A directory that the caller removes from the list is not entered.
    """
    pending = [b""]
    while pending:
        prefix = pending.pop()
        with os.scandir(top + b"/" + prefix if prefix else top) as listing:
            infos = sorted((entry.name, entry.stat(follow_symlinks=False)) for entry in listing)
        start = prefix + b"/" if prefix else b""
        entries = [FoundEntry(start + name, kind_of(info.st_mode), info) for name, info in infos]
        yield prefix, entries
        pending.extend(found.path for found in entries if found.kind is EntryKind.DIRECTORY)


def scan(path: Path) -> Scan:
    """Scans a directory or a single file.

    An error names the first entry that no bundle can contain.
    """
    top = os.path.realpath(os.fsencode(path))
    try:
        info = os.stat(top)
        if stat.S_ISREG(info.st_mode):
            result = _scan_file(top, os.fsencode(path.name), info)
        elif stat.S_ISDIR(info.st_mode):
            result = _scan_directory(top)
        else:
            raise TorrentdistError("special_file", path=str(path), kind=str(kind_of(info.st_mode)))
    except (FileNotFoundError, NotADirectoryError) as exc:
        code = "path_not_found" if exc.filename == top else "changed_while_reading"
        raise TorrentdistError(code, path=shown(exc.filename) or str(path)) from exc
    except OSError as exc:
        raise disk_failure(exc, Path(shown(exc.filename) or str(path))) from exc
    if result.size == 0:
        raise TorrentdistError("empty_bundle", path=str(path))
    return result


def shown(path: str | bytes | int | None) -> str:
    """Returns the path as printable text."""
    return path.decode("utf-8", "replace") if isinstance(path, bytes) else str(path or "")


def _scan_file(top: bytes, name: bytes, info: os.stat_result) -> Scan:
    if problem := safe_paths.name_problem(name):
        raise TorrentdistError("bad_name", path=shown(name), detail=problem)
    return Scan(top, True, (_scanned(name, info),), (), ())


def _scanned(path: bytes, info: os.stat_result) -> ScannedFile:
    mode = stat.S_IMODE(info.st_mode) & 0o777
    return ScannedFile(path, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino, mode)


def _scan_directory(top: bytes) -> Scan:
    files: list[ScannedFile] = []
    links: list[tuple[bytes, bytes]] = []
    empty: list[bytes] = []
    for prefix, entries in walk(top):
        if prefix and not entries:
            empty.append(prefix)
        _check_names(prefix, [path for path, _, _ in entries])
        for path, kind, info in entries:
            if kind is EntryKind.FILE:
                files.append(_scanned(path, info))
            elif kind is EntryKind.SYMLINK:
                links.append((path, os.readlink(top + b"/" + path)))
            elif kind is not EntryKind.DIRECTORY:
                raise TorrentdistError("special_file", path=shown(path), kind=str(kind))
        if len(files) + len(links) + len(empty) > safe_paths.MAX_ENTRIES:
            raise TorrentdistError(
                "invalid_bundle", path=shown(top), detail=f"more than {safe_paths.MAX_ENTRIES} entries"
            )
    _check_links(dict(links))
    return Scan(top, False, _sorted_files(files), tuple(sorted(links)), tuple(sorted(empty)))


def _check_names(prefix: bytes, paths: list[bytes]) -> None:
    """Checks the paths of one directory, whose own path was checked before."""
    start = len(prefix) + 1 if prefix else 0
    longest = max(map(len, paths), default=0)
    is_deep = prefix.count(b"/") + 2 > safe_paths.MAX_DEPTH
    if is_deep or longest > safe_paths.MAX_PATH_BYTES or safe_paths.names_problem([path[start:] for path in paths]):
        for path in paths:
            if problem := safe_paths.path_problem(path):
                raise TorrentdistError("bad_name", path=shown(path), detail=problem)


def _sorted_files(files: list[ScannedFile]) -> tuple[ScannedFile, ...]:
    """Sorts as a file tree does: by components, so that "a/x" comes before "a.b"."""
    return tuple(sorted(files, key=lambda file: file.path.split(b"/")))


def _check_links(links: dict[bytes, bytes]) -> None:
    for path, target in links.items():
        if problem := safe_paths.target_problem(target):
            raise TorrentdistError("bad_name", path=shown(path), detail=problem)
    found = safe_paths.find_link_problem({path.decode(): target.decode() for path, target in links.items()})
    if found is None:
        return
    if found.fault is safe_paths.LinkFault.LEAVES:
        raise TorrentdistError("unsafe_symlink", path=found.path, target=found.target)
    raise TorrentdistError("invalid_bundle", path=found.path, detail=f"the symlink to {found.target} {found.fault}")
