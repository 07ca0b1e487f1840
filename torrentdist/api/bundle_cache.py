"""Bundles in the user's cache directory, for hosts without a supervisor.

One directory per digest holds the content, and the metafile as the mark of complete content.
Always: content is handed out only if no file has changed since it was verified. Several processes
may ask for one bundle at once: one of them fetches it, and the others wait.
Never: delete a bundle, except to replace one that is damaged.
"""

import asyncio
import contextlib
import fcntl
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from torrentdist.bundle.content_check import verify_content
from torrentdist.bundle.files.durability import disk_failures, write_durably
from torrentdist.bundle.metafile import Metafile, metafile_of
from torrentdist.client.masters.remembered_masters import cache_dir, memory_path
from torrentdist.model import ids
from torrentdist.model.access.envelope import Envelope
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.wire.view import decode_json

LOOK_SECS = 0.1
"""Seconds between two looks whether another process has finished."""

Fetch = Callable[[Path, float], Awaitable[object]]
"""Puts the complete, verified bundle at a path, within the given number of seconds."""


class CachedBundle(NamedTuple):
    digest: Digest
    content: Path
    signatures: tuple[Envelope, ...] = ()
    """What signers said about it when a master was last asked."""


class BundleCache:
    """The cached bundles of the cluster that these masters serve."""

    def __init__(self, masters: list[str]) -> None:
        self._home = cache_dir() / "bundles"
        self._names = self._home / memory_path(masters).stem

    def known(self, bundle_id: BundleId) -> CachedBundle | None:
        """Returns a cached bundle, for times when no master answers."""
        try:
            digest = ids.digest(os.path.basename(os.readlink(self._names / bundle_id)))
            content = self.content(digest)
        except (OSError, TorrentdistError):
            return None
        return None if content is None else CachedBundle(digest, content, self._signatures(bundle_id))

    def content(self, digest: Digest) -> Path | None:
        """Returns the directory of a cached bundle; None if it is not here, or is damaged."""
        home = self._home / digest
        try:
            meta = metafile_of((home / "metafile").read_bytes(), digest)
        except (FileNotFoundError, TorrentdistError):
            return None
        if _is_unchanged(meta, home):
            return home / "content"
        if verify_content(meta, home / "content"):
            return None
        _mark(meta, home)
        return home / "content"

    async def get(
        self, bundle_id: BundleId, meta: Metafile, timeout: float, fetch: Fetch, signatures: Sequence[Envelope] = ()
    ) -> Path:
        """Returns the bundle's directory, and fetches the bundle first if it is not here. Keeps its
        signatures for times when no master answers."""
        home = self._home / meta.digest
        deadline = time.monotonic() + timeout
        with disk_failures(home):
            await asyncio.to_thread(home.mkdir, mode=0o755, parents=True, exist_ok=True)
        async with _alone(home / "lock", deadline, f"the download of {bundle_id}", timeout):
            found = await asyncio.to_thread(self.content, meta.digest)
            if found is None:
                await fetch(self._destination(meta), max(0.0, deadline - time.monotonic()))
                await asyncio.to_thread(_protect, meta, home)
            await asyncio.to_thread(self._name, bundle_id, meta.digest, signatures)
        return home / "content"

    def _destination(self, meta: Metafile) -> Path:
        home = self._home / meta.digest / "content"
        with contextlib.suppress(FileNotFoundError):
            (home.parent / "metafile").unlink()
        if not meta.single_file:
            return home
        home.mkdir(exist_ok=True)
        return home / meta.name

    def _signatures(self, bundle_id: BundleId) -> tuple[Envelope, ...]:
        with contextlib.suppress(OSError, msgspec.MsgspecError, TorrentdistError):
            data = self._signature_file(bundle_id).read_bytes()
            return decode_json(data, tuple[Envelope, ...])
        return ()

    def _signature_file(self, bundle_id: BundleId) -> Path:
        return self._names / f".{bundle_id}.signatures"

    def _name(self, bundle_id: BundleId, digest: Digest, signatures: Sequence[Envelope]) -> None:
        with disk_failures(self._names):
            self._names.mkdir(exist_ok=True)
            if signatures:
                write_durably(self._signature_file(bundle_id), msgspec.json.encode(signatures))
            link, new = self._names / bundle_id, self._names / f".{bundle_id}"
            with contextlib.suppress(FileNotFoundError):
                new.unlink()
            new.symlink_to(Path("..") / digest)
            new.replace(link)


@asynccontextmanager
async def _alone(lock: Path, deadline: float, what: str, seconds: float) -> AsyncIterator[None]:
    """Waits until no other process fetches the bundle."""
    with disk_failures(lock):
        held = await asyncio.to_thread(open, lock, "wb")
    with held:
        while True:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TorrentdistError("timed_out", what=what, seconds=seconds) from None
                await asyncio.sleep(LOOK_SECS)
        yield


def _protect(meta: Metafile, home: Path) -> None:
    """Makes the files read-only, and marks the content as complete."""
    with disk_failures(home):
        for file in meta.files:
            path = home / "content" / file.path
            path.chmod(path.stat().st_mode & 0o555)
        _mark(meta, home)


def _mark(meta: Metafile, home: Path) -> None:
    write_durably(home / "metafile", meta.raw)


def _is_unchanged(meta: Metafile, home: Path) -> bool:
    """Whether no file was changed, replaced or removed after the mark was written."""
    marked = (home / "metafile").stat().st_ctime_ns
    try:
        infos = [(file, (home / "content" / file.path).lstat()) for file in meta.files]
    except OSError:
        return False
    return all(info.st_size == file.size and info.st_ctime_ns <= marked for file, info in infos)
