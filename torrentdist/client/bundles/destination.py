"""Where a download goes: into a part directory next to DEST while it arrives, and to DEST once it
is complete.

Always: DEST appears complete and synced, by one rename, or not at all. Files of others stay unless
the user allowed replacing them. A part directory belongs to one process at a time, and the next
process resumes it. All functions block: call them in threads.
"""

import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec

from torrentdist.bundle.content_check import finish_content, same_content
from torrentdist.bundle.files.deletion import delete, delete_what_goes
from torrentdist.bundle.files.durability import disk_failure, disk_failures, fsync_dir, swap, sync_filesystem
from torrentdist.bundle.files.file_modes import finish_modes
from torrentdist.bundle.metafile import Metafile, parse_metafile
from torrentdist.bundle.packs.pack_files import write_files
from torrentdist.model.access.envelope import Envelope
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.wire.swarm_messages import PeerAddress
from torrentdist.model.wire.view import decode_json

PART_SUFFIX = ".torrentdist-part"
_LONGEST_NAME = 200
"""A longer DEST is shortened in the part directory's name, which must fit into 255 bytes too."""


class Memo(msgspec.Struct, frozen=True, kw_only=True):
    """What a part directory belongs to, and which peers last had the bundle."""

    bundle: BundleId
    digest: Digest
    peers: list[PeerAddress] = []
    signatures: list[Envelope] = []
    """Its signatures, to verify them again without a master."""


class KeptDownload(NamedTuple):
    """What an unfinished download has left."""

    metafile: Metafile
    memo: Memo


class PartDirectory(msgspec.Struct, frozen=True):
    """A part directory. `home` has the engine's layout: content/<path of each file>."""

    home: Path

    @property
    def content(self) -> Path:
        return self.home / "content"

    @property
    def membership(self) -> Path:
        """The file with the download's certificate of the swarm, which lives for an hour."""
        return self.home / "swarm.pem"

    def memo(self) -> Memo | None:
        try:
            return decode_json((self.home / "memo").read_bytes(), Memo)
        except (OSError, msgspec.MsgspecError):
            return None

    def metafile(self) -> Metafile | None:
        try:
            return parse_metafile((self.home / "metafile").read_bytes())
        except (OSError, TorrentdistError):
            return None

    def keep(self, memo: Memo) -> None:
        _write(self.home / "memo", msgspec.json.encode(memo))

    def begin(self, bundle_id: BundleId, meta: Metafile) -> list[PeerAddress]:
        """Prepares the directory for `meta`, and deletes content of other bundles. Returns the
        peers known from an earlier attempt."""
        memo = self.memo()
        if memo is not None and memo.digest == meta.digest:
            self.content.mkdir(exist_ok=True)  # A process that was killed may have moved it to DEST.
            if memo.bundle != bundle_id:
                self.keep(msgspec.structs.replace(memo, bundle=bundle_id, signatures=[]))
            return memo.peers
        with disk_failures(self.home):
            for entry in os.scandir(self.home):
                delete(Path(entry.path))
            self.content.mkdir()
        _write(self.home / "metafile", meta.raw)
        self.keep(Memo(bundle=bundle_id, digest=meta.digest))
        return []

    def bytes_on_disk(self) -> int:
        """Returns the room that the content already uses. A sparse file counts with its allocated
        blocks."""
        total = 0
        for folder, _, names in chain(os.walk(self.content), os.walk(self.home / "packs")):
            for name in names:
                with contextlib.suppress(OSError):
                    total += os.lstat(os.path.join(folder, name)).st_blocks * 512
        return total

    def publish(self, meta: Metafile, dest: Path, *, replace: bool) -> None:
        """Finishes the verified content, syncs it, and moves it to its final name."""
        try:
            write_files(meta, self.home)
            finish_content(meta, self.content)
            finish_modes(meta, os.fsencode(self.content))
            sync_filesystem(self.home)
            built = self.content / meta.name if meta.single_file else self.content
            if replace and os.path.lexists(dest):
                swap(built, dest, self.home / f"replaced-{secrets.token_hex(4)}")
            else:
                _refuse_other(meta, dest)
                os.rename(built, dest)
            fsync_dir(dest.parent)
        except OSError as exc:
            raise disk_failure(exc, dest, meta.size) from exc
        delete_what_goes(self.home)


def resolve(dest: str | os.PathLike[str], meta: Metafile) -> Path:
    """Returns DEST as `cp` would interpret it: a single file goes into a directory that exists or
    is written with a slash."""
    text = os.fspath(dest)
    path = Path(os.path.abspath(text))
    if meta.single_file and (text.endswith("/") or path.is_dir()):
        return path / meta.name
    return path


def check(meta: Metafile, dest: Path) -> bool:
    """Returns True if DEST holds the bundle already, and False if DEST is free. Raises
    `dest_exists` otherwise."""
    if _is_free(meta, dest):
        return False
    if same_content(meta, dest):
        return True
    raise TorrentdistError("dest_exists", path=str(dest))


def check_room(meta: Metafile, dest: Path, there: int) -> None:
    """Raises `disk_full` before the first byte arrives, if the rest cannot fit."""
    needed = max(0, meta.size + meta.packed_size - there)
    folder = next((parent for parent in dest.parents if parent.is_dir()), dest.parent)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise TorrentdistError("disk_full", path=str(folder), needed=needed, free=free)


def part_path(dest: Path) -> Path:
    name = os.fsencode(dest.name)
    if len(name) > _LONGEST_NAME:
        # Another long name may begin in the same way.
        name = name[: _LONGEST_NAME - 17] + b"-" + hashlib.sha256(name).hexdigest()[:16].encode()
    return dest.parent / os.fsdecode(b"." + name + PART_SUFFIX.encode())


def make_parent(dest: Path) -> None:
    with disk_failures(dest.parent):
        dest.parent.mkdir(parents=True, exist_ok=True)


@contextmanager
def open_part(dest: Path) -> Iterator[PartDirectory]:
    """Opens the part directory of DEST, creating it if needed. Locks it against a second download
    to the same place."""
    home = part_path(dest)
    make_parent(dest)
    try:
        home.mkdir(mode=0o700, exist_ok=True)
        lock = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as exc:
        raise disk_failure(exc, home) from exc
    try:
        _lock(lock, dest)
        yield PartDirectory(home)
    finally:
        os.close(lock)


def drop_part(dest: Path) -> None:
    """Removes the part directory of a download that was killed after DEST was complete."""
    home = part_path(dest)
    if home.is_dir() and not home.is_symlink():
        with contextlib.suppress(TorrentdistError), open_part(dest):
            delete_what_goes(home)


def find_kept(dest: str | os.PathLike[str], bundle_id: BundleId) -> KeptDownload | None:
    """Returns what an earlier, unfinished download of this bundle to DEST left."""
    path = Path(os.path.abspath(dest))
    homes = [part_path(path)]
    if path.is_dir():
        homes += sorted(path.glob(f".*{PART_SUFFIX}"))
    for home in homes:
        part = PartDirectory(home)
        memo, meta = part.memo(), part.metafile()
        if memo is not None and meta is not None and (memo.bundle, memo.digest) == (bundle_id, meta.digest):
            return KeptDownload(meta, memo)
    return None


def _lock(fd: int, dest: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        raise TorrentdistError("dest_busy", path=str(dest)) from exc


def _is_free(meta: Metafile, dest: Path) -> bool:
    if not os.path.lexists(dest):
        return True
    return not meta.single_file and not dest.is_symlink() and dest.is_dir() and not any(dest.iterdir())


def _refuse_other(meta: Metafile, dest: Path) -> None:
    # Check again, because a rename would silently replace a file created since the first check.
    if not _is_free(meta, dest):
        raise TorrentdistError("dest_exists", path=str(dest))


def _write(path: Path, data: bytes) -> None:
    temporary = path.with_name(path.name + ".new")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    except OSError as exc:
        raise disk_failure(exc, path, len(data)) from exc
