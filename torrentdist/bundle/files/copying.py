"""Copies a bundle's content to where a user wants it, as a reflink if the file system supports
that.

Always: the destination appears complete or not at all, and is on disk when the call returns. Files
of others are never overwritten. A copy is built in a hidden directory next to the destination. Its
process keeps the directory locked, so that others can tell a running copy from what a crash left.
Never: write into the source.
"""

import errno
import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torrentdist.bundle.content_check import verify_copy
from torrentdist.bundle.files.deletion import delete_what_goes
from torrentdist.bundle.files.durability import disk_failure, fsync_dir, swap, sync_filesystem
from torrentdist.bundle.files.file_cloner import UNSUPPORTED, FileCloner
from torrentdist.bundle.files.file_modes import finish_modes
from torrentdist.bundle.hashing import Progress
from torrentdist.bundle.metafile import Metafile
from torrentdist.model.errors import TorrentdistError

_MARK = ".torrentdist-"
_REPLACED = "replaced"
_KEPT_NAME_BYTES = 200
"""How many bytes of the destination's name go into the name of the hidden directory, which may have
255."""


def place_content(
    meta: Metafile, content_dir: Path, dest: Path, progress: Progress | None = None, *, hashed: bool = False
) -> None:
    """Puts the verified content at `dest`, which must not exist.

    An empty directory may exist there if the bundle is a directory. `hashed`: nobody has verified
    the content, so the copy is hashed first. Raises `corrupt` if it is not the bundle.
    """
    dest = _absolute(dest)
    try:
        with _workplace(dest) as work:
            _refuse_existing(meta, dest)
            built = _build(meta, content_dir, work, progress, hashed)
            _put(meta, built, dest)
            fsync_dir(dest.parent)
    except OSError as exc:
        if exc.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR) and os.path.lexists(dest):
            raise TorrentdistError("dest_exists", path=str(dest)) from exc
        raise disk_failure(exc, dest, meta.size) from exc


def replace_content(
    meta: Metafile, content_dir: Path, dest: Path, progress: Progress | None = None, *, hashed: bool = False
) -> None:
    """Puts the verified content at `dest`, replacing anything that is there.

    The old content is removed after the new content is complete. `hashed`: as in `place_content`.
    """
    dest = _absolute(dest)
    try:
        with _workplace(dest) as work:
            built = _build(meta, content_dir, work, progress, hashed)
            if os.path.lexists(dest):
                swap(Path(os.fsdecode(built)), dest, work / _REPLACED)
            else:
                os.rename(built, dest)
            fsync_dir(dest.parent)
    except OSError as exc:
        raise disk_failure(exc, dest, meta.size) from exc


def _absolute(dest: Path) -> Path:
    dest = Path(os.path.abspath(dest))
    if not dest.parent.is_dir():
        raise TorrentdistError("path_not_found", path=str(dest.parent))
    return dest


def _refuse_existing(meta: Metafile, dest: Path) -> None:
    if not os.path.lexists(dest):
        return
    if meta.single_file or dest.is_symlink() or not dest.is_dir() or any(dest.iterdir()):
        raise TorrentdistError("dest_exists", path=str(dest))


def _put(meta: Metafile, built: bytes, dest: Path) -> None:
    """Moves `built` to `dest` without overwriting.

    Files use link(), which fails if `dest` exists. rename() already refuses a non-empty directory.
    """
    if meta.single_file:
        try:
            os.link(built, dest, follow_symlinks=False)
            return
        except OSError as exc:
            if exc.errno not in UNSUPPORTED:
                raise
        _refuse_existing(meta, dest)
    os.rename(built, dest)


@contextmanager
def _workplace(dest: Path) -> Iterator[Path]:
    """Creates a locked directory next to `dest`, and removes it with its content at the end."""
    prefix = b"." + os.fsencode(dest.name)[:_KEPT_NAME_BYTES] + os.fsencode(_MARK)
    parent = os.fsencode(dest.parent)
    _remove_stale(parent, prefix, dest)
    work = parent + b"/" + prefix + secrets.token_hex(6).encode()
    os.mkdir(work, 0o700)
    lock = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield Path(os.fsdecode(work))
    finally:
        _remove_work(work, dest)
        os.close(lock)


def _remove_work(work: bytes, dest: Path) -> None:
    """Removes a working directory, unless it holds the only content of `dest`."""
    if os.path.lexists(dest) or not os.path.lexists(work + b"/" + _REPLACED.encode()):
        delete_what_goes(Path(os.fsdecode(work)))


def _remove_stale(parent: bytes, prefix: bytes, dest: Path) -> None:
    with os.scandir(parent) as listing:
        stale = [
            entry.path for entry in listing if entry.name.startswith(prefix) and entry.is_dir(follow_symlinks=False)
        ]
    for path in stale:
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            _remove_work(path, dest)
        finally:
            os.close(lock)


def _build(meta: Metafile, content_dir: Path, work: Path, progress: Progress | None, hashed: bool) -> bytes:
    """Builds a complete copy inside `work`, syncs it and returns its path."""
    source, target = os.fsencode(content_dir), os.fsencode(work) + b"/content"
    os.mkdir(target, 0o700)
    for directory in meta.directories:
        os.mkdir(target + b"/" + directory.encode(), 0o700)
    cloner = FileCloner()
    total, done = meta.size, 0
    for file in meta.files:
        path = b"/" + file.path.encode()
        for count in cloner.clone(file, source + path, target + path):
            done += count
            if progress:
                progress(done, total)
    for link in meta.symlinks:
        os.symlink(link.target.encode(), target + b"/" + link.path.encode())
    finish_modes(meta, target)
    built = target + b"/" + meta.name.encode() if meta.single_file else target
    if hashed and (damage := verify_copy(meta, Path(os.fsdecode(built)))):
        raise TorrentdistError("corrupt", path=damage[0].path, detail=damage[0].reason)
    sync_filesystem(work)
    return built
