"""Shared by the plug-ins of this package: their options, their metafiles on disk, and completing a
file.

Always: a file that `complete_file` leaves under its name with all of its bytes has the hash that
the bundle's v2 metafile names.
Never: know where bytes come from.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import msgspec

from torrentdist.bundle import merkle
from torrentdist.bundle.files.disk_failures import disk_failures
from torrentdist.bundle.files.durability import write_durably
from torrentdist.bundle.metafile import FileEntry, Metafile, parse_metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.distributor.protocol import HostServices
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest
from torrentdist.model.ids import bundle_id as checked_bundle_id

_SUFFIX = ".metafile"
_READ_BYTES = 1024 * 1024
_Options = TypeVar("_Options", bound=msgspec.Struct)
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Prepared(NamedTuple):
    """The arguments of prepare(), without the options."""

    host: HostServices
    data_dir: Path


def prepared(conf: Mapping[str, Any]) -> Prepared:
    return Prepared(conf["host"], Path(conf["data_dir"]))


def read_options(conf: Mapping[str, Any], kind: type[_Options]) -> _Options:
    """The configured options as a value. Raises `config_invalid` for an unknown or wrong one."""
    try:
        return msgspec.convert(conf["options"], kind)
    except msgspec.ValidationError as exc:
        raise TorrentdistError("config_invalid", origin="codedistributor.options", detail=str(exc)) from exc


def identity(host: HostServices, bundle_id: str, content_dir: Path) -> Metafile:
    """The bundle's own v2 metafile. It is made from the directory only if the host doesn't know the
    bundle yet."""
    try:
        return parse_metafile(host.metafile(bundle_id))
    except TorrentdistError as exc:
        if exc.code != "bundle_not_found":
            raise
        return make_metafile(content_dir)


def as_parsed(metafile: Metafile | bytes) -> Metafile:
    """The metafile as a value. Bytes are parsed; a caller that has parsed them already passes the
    value."""
    return parse_metafile(metafile) if isinstance(metafile, bytes) else metafile


def keep_metafile(data_dir: Path, bundle_id: str, digest: Digest, data: bytes) -> Path:
    """Writes the plug-in's metafile of a bundle. No id contains '@', so no name can be taken for
    another."""
    path = data_dir / f"{checked_bundle_id(bundle_id)}@{digest}{_SUFFIX}"
    with disk_failures(path, needed=len(data)):
        data_dir.mkdir(parents=True, exist_ok=True)
        write_durably(path, data)
    return path


def kept_metafiles(data_dir: Path, bundle_id: str) -> dict[Path, Digest]:
    """The metafiles kept for a bundle, with their digests."""
    found = data_dir.glob(f"{checked_bundle_id(bundle_id)}@*{_SUFFIX}")
    return {path: Digest(path.name.removesuffix(_SUFFIX).partition("@")[2]) for path in found}


def kept_for(data_dir: Path, digest: Digest) -> set[str]:
    """The ids under which a metafile of this digest is kept. Several bundles may have the same
    content."""
    return {path.name.partition("@")[0] for path in data_dir.glob(f"*@{digest}{_SUFFIX}")}


def drop_metafiles(data_dir: Path, bundle_id: str) -> None:
    for path in kept_metafiles(data_dir, bundle_id):
        path.unlink(missing_ok=True)


def read_metafile(path: Path) -> bytes:
    with disk_failures(path):
        return path.read_bytes()


def complete_files(
    dest_dir: Path, metafile: Metafile, complete: Callable[[Path, FileEntry], None], *, threads: int
) -> list[Path]:
    """Runs `complete` for every file of the bundle, a few at a time. The first failure ends it."""

    def one(file: FileEntry) -> Path:
        path = dest_dir / file.path
        with disk_failures(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        complete(path, file)
        return path

    return in_parallel(one, metafile.files, threads=threads)


def in_parallel(function: Callable[[_Item], _Result], items: Sequence[_Item], *, threads: int) -> list[_Result]:
    """The results in order. After a failure no new item is begun, and it is raised when the running
    ones have ended."""
    with ThreadPoolExecutor(threads, thread_name_prefix="distributor") as pool:
        try:
            return list(pool.map(function, items))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def complete_file(path: Path, file: FileEntry, read_from: Callable[[int], Iterable[bytes]]) -> None:
    """Makes `path` the whole, verified file. Goes on from the bytes that are there:
    `read_from(offset)` yields the rest.

    When `read_from` raises, what arrived is on disk, so that another source can go on from there.
    """
    with disk_failures(path, needed=file.size):
        if _is_whole(path, file):
            return
        _make_way(path, file)
        with _open(path, os.O_RDWR | os.O_CREAT, "r+b") as out:
            start = out.seek(0, os.SEEK_END)
            _append(out, file, start, read_from)
            if _root(out) == file.root:
                return
            if start:  # the bytes of an earlier run may be wrong, not those of this source
                _append(out, file, 0, read_from)
            if _root(out) != file.root:
                out.truncate(0)
                raise TorrentdistError("corrupt", path=file.path, detail="the bytes that arrived have another hash")


def _is_whole(path: Path, file: FileEntry) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(found.st_mode) or found.st_size != file.size:
        return False
    with _open(path, os.O_RDONLY, "rb") as whole:
        return _root(whole) == file.root


def _make_way(path: Path, file: FileEntry) -> None:
    """Unlinks a file that can't be completed in place.

    A read-only file was published once. A file with several names may be published under another
    one.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    mine = stat.S_ISREG(found.st_mode) and found.st_mode & stat.S_IWUSR and found.st_nlink == 1
    if not mine or found.st_size >= file.size:
        path.unlink()


def _open(path: Path, flags: int, mode: str) -> IO[bytes]:
    """Opens a file, but never through a symlink."""
    return open(os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644), mode)


def _append(out: IO[bytes], file: FileEntry, start: int, read_from: Callable[[int], Iterable[bytes]]) -> None:
    out.truncate(start)
    out.seek(start)
    have = start
    if have < file.size:
        for chunk in read_from(start):
            have += len(chunk)
            if have > file.size:
                raise TorrentdistError("corrupt", path=file.path, detail=f"more than its {file.size} bytes arrived")
            out.write(chunk)
    if have < file.size:
        raise TorrentdistError("corrupt", path=file.path, detail=f"only {have} of its {file.size} bytes arrived")


def _root(out: IO[bytes]) -> bytes:
    """The merkle root of an open file. Empty for an empty file, as in the metafile."""
    if out.writable():
        out.flush()
    out.seek(0)
    hashes = [leaf for block in _blocks(out) for leaf in merkle.leaves(memoryview(block))]
    return merkle.root(hashes) if hashes else b""


def _blocks(out: IO[bytes]) -> Iterator[bytes]:
    while block := out.read(_READ_BYTES):
        yield block
