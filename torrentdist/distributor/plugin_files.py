"""Code shared by the plug-ins of this package: their options, their metafiles on disk,
completing a file, and their failures as errors of the table.

Always: if `complete_file` leaves a file with all of its bytes, the file has the hash in the
bundle's v2 metafile.
Never: know where bytes come from.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import msgspec

from torrentdist.bundle import merkle
from torrentdist.bundle.files.durability import disk_failures, fsync_dir, write_durably
from torrentdist.bundle.metafile import FileEntry, Metafile, parse_metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.distributor.protocol import CodeDistributor, HostServices
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.ids import bundle_id as checked_bundle_id
from torrentdist.model.wording import os_sentence

PLUGIN_DIR = "distributor"
"""The plug-in's folder in a host's data directory."""
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
    """Returns the configured options as a value. Raises `config_invalid` for an unknown or wrong
    one."""
    try:
        return msgspec.convert(conf["options"], kind)
    except msgspec.ValidationError as exc:
        raise TorrentdistError("config_invalid", origin="codedistributor.options", detail=str(exc)) from exc


def identity(host: HostServices, bundle_id: str, content_dir: Path) -> Metafile:
    """Returns the bundle's own v2 metafile. It is made from the directory only if the host does not
    know the bundle yet."""
    try:
        return parse_metafile(host.metafile(bundle_id))
    except TorrentdistError as exc:
        if exc.code != "bundle_not_found":
            raise
        return make_metafile(content_dir)


def as_parsed(metafile: Metafile | bytes) -> Metafile:
    """Returns the metafile as a value. Parses bytes; a value is returned unchanged."""
    return parse_metafile(metafile) if isinstance(metafile, bytes) else metafile


def keep_metafile(data_dir: Path, bundle_id: str, digest: Digest, data: bytes) -> Path:
    """Writes the plug-in's metafile of a bundle. No id contains '@', so that two names never
    collide."""
    path = data_dir / f"{checked_bundle_id(bundle_id)}@{digest}{_SUFFIX}"
    with disk_failures(path, needed=len(data)):
        data_dir.mkdir(parents=True, exist_ok=True)
        write_durably(path, data)
    return path


def kept_metafiles(data_dir: Path, bundle_id: str) -> dict[Path, Digest]:
    """Returns the metafiles kept for a bundle, with their digests."""
    found = data_dir.glob(f"{checked_bundle_id(bundle_id)}@*{_SUFFIX}")
    return {path: Digest(path.name.removesuffix(_SUFFIX).partition("@")[2]) for path in found}


def kept_bundles(data_dir: Path) -> dict[BundleId, Digest]:
    """Returns the bundles of which a metafile is kept. Plug-ins of others may keep none."""
    split = (path.name.removesuffix(_SUFFIX).partition("@") for path in data_dir.glob(f"*@*{_SUFFIX}"))
    return {BundleId(bundle): Digest(digest) for bundle, _, digest in split}


def kept_for(data_dir: Path, digest: Digest) -> set[str]:
    """Returns the ids under which a metafile of this digest is kept. Several bundles may have the
    same content."""
    return {path.name.partition("@")[0] for path in data_dir.glob(f"*@{digest}{_SUFFIX}")}


def drop_metafiles(data_dir: Path, bundle_id: str) -> None:
    """Forgets the metafiles of a bundle for good: nobody asks again after a loss of power."""
    for path in (kept := kept_metafiles(data_dir, bundle_id)):
        path.unlink(missing_ok=True)
    if kept:
        fsync_dir(data_dir)


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
    """Returns the results in order. After a failure no new item is started, and the failure is
    raised when the running ones have ended."""
    with ThreadPoolExecutor(threads, thread_name_prefix="distributor") as pool:
        try:
            return list(pool.map(function, items))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def complete_file(path: Path, file: FileEntry, read_from: Callable[[int], Iterable[bytes]]) -> None:
    """Makes `path` the complete, verified file. Continues after the bytes that are there:
    `read_from(offset)` yields the rest.

    When `read_from` raises, the received bytes are on disk, so that another source can continue.
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
            if start:  # The bytes of an earlier run may be wrong, rather than those of this source.
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
    """Unlinks a file that cannot be completed in place.

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
    """Returns the Merkle root of an open file; empty for an empty file, as in the metafile."""
    if out.writable():
        out.flush()
    out.seek(0)
    hashes = [leaf for block in _blocks(out) for leaf in merkle.leaves(memoryview(block))]
    return merkle.root(hashes) if hashes else b""


def _blocks(out: IO[bytes]) -> Iterator[bytes]:
    while block := out.read(_READ_BYTES):
        yield block


@contextmanager
def plugin_failures(plugin: CodeDistributor, bundle_id: str, place: Path) -> Iterator[None]:
    """Raises an error of the block as one of the table.

    `place`: what an error of the operating system is about if it names no file itself.
    """
    try:
        yield
    except TorrentdistError:
        raise
    except OSError as exc:
        raise TorrentdistError("disk_error", path=str(exc.filename or place), detail=os_sentence(exc)) from exc
    except Exception as exc:
        raise TorrentdistError("bundle_unavailable", id=bundle_id, detail=f"{type(plugin).__name__}: {exc}") from exc
