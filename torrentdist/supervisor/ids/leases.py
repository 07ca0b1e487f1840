"""Which bundles programs of this host use: each program holds a shared lock on the bundle's file.

Always: a lease lasts as long as any process that inherited the lock, whatever ends it, and outlives
a restart of the supervisor: the file has the digests of what its programs use. For a moment after
it was asked for, a bundle counts as leased without a lock.
Never: wait. The store asks in any thread whether a bundle is leased.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

from torrentdist.bundle.files.durability import disk_failures
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.ids import digest as checked_digest

ASKED_SECS = 60.0
"""How long a bundle counts as leased after the last question, so that a program gets to lock it."""
MOST_LEASES = 10_000
FILE_MODE = 0o644


class Leases:
    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._asked: dict[BundleId, float] = {BundleId(name): clock() for name in os.listdir(folder)}
        self._contents: dict[BundleId, list[Digest]] = {bundle: self._written(bundle) for bundle in self._asked}
        """What programs use, the newest last. Another content may be uploaded under an id."""

    def ask(self, bundle: BundleId) -> Path:
        """Returns the file that a program locks to hold a lease. Blocks."""
        if len(self._asked) >= MOST_LEASES and bundle not in self._asked:
            raise TorrentdistError("too_large", what="the list of leases", size=len(self._asked), limit=MOST_LEASES)
        self._asked[bundle] = self._clock()
        path = self._folder / bundle
        with disk_failures(path):
            os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE))
            path.chmod(FILE_MODE)
        return path

    def note(self, bundle: BundleId, digest: Digest) -> None:
        """Notes what a program uses, so that it stays for the program after its removal. Blocks."""
        known = self._contents.get(bundle, [])
        self._contents[bundle] = [*(each for each in known if each != digest), digest]
        with contextlib.suppress(OSError):  # A full disk refuses no lease. Only a restart would forget it.
            if self._written(bundle) != self._contents[bundle]:
                (self._folder / bundle).write_text("\n".join(self._contents[bundle]), encoding="ascii")

    def _written(self, bundle: BundleId) -> list[Digest]:
        try:
            return [checked_digest(line) for line in (self._folder / bundle).read_text(encoding="ascii").split()]
        except (OSError, ValueError, TorrentdistError):
            return []

    def contents(self) -> dict[BundleId, Digest]:
        """Returns what programs were given last."""
        return {bundle: digests[-1] for bundle, digests in self._held_contents()}

    def digests(self) -> frozenset[Digest]:
        """Returns what programs use."""
        return frozenset(digest for _, digests in self._held_contents() for digest in digests)

    def is_content_held(self, digest: Digest) -> bool:
        """Whether a program uses this content."""
        return any(digest in known and self.is_held(bundle) for bundle, known in list(self._contents.items()))

    def _held_contents(self) -> list[tuple[BundleId, list[Digest]]]:
        return [(bundle, known) for bundle, known in list(self._contents.items()) if known and self.is_held(bundle)]

    def is_held(self, bundle: BundleId) -> bool:
        """Whether a program uses the bundle, or is about to."""
        asked = self._asked.get(bundle)
        return asked is not None and (self._clock() - asked < ASKED_SECS or self._is_locked(bundle))

    def held(self) -> frozenset[BundleId]:
        """Returns the bundles that programs use. Forgets the others."""
        seen = dict(self._asked)
        held = frozenset(bundle for bundle in seen if self.is_held(bundle))
        for bundle in seen.keys() - held:
            self._forget(bundle, seen[bundle])
        return held

    def _forget(self, bundle: BundleId, asked: float) -> None:
        """Removes the file of a bundle that nobody uses, unless it was asked for since. A program
        that has just opened it asks again, since its file is not the one in the directory any
        more."""
        with contextlib.suppress(FileNotFoundError):  # An administrator may have removed it.
            if (file := self._locked_file(bundle)) is not None:
                try:
                    (self._folder / bundle).unlink(missing_ok=True)
                finally:
                    os.close(file)
        if not self._is_locked(bundle) and self._asked.get(bundle) == asked:
            self._asked.pop(bundle, None)
            self._contents.pop(bundle, None)

    def _is_locked(self, bundle: BundleId) -> bool:
        """Whether a program has the bundle's file. One that cannot be opened may be locked."""
        try:
            file = self._locked_file(bundle)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        if file is not None:
            os.close(file)
        return file is None

    def _locked_file(self, bundle: BundleId) -> int | None:
        """Opens and locks the bundle's file. None: a program has it."""
        file = os.open(self._folder / bundle, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return None
        return file
