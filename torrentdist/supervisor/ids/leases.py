"""Which bundles programs of this host use: each program holds a shared lock on the bundle's file.

Always: a lease lasts as long as any process that inherited the lock, whatever ends it, and outlives
a restart of the supervisor. For a moment after it was asked for, a bundle counts as leased without
a lock.
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

ASKED_SECS = 60.0
"""How long a bundle counts as leased after the last question, so that a program gets to lock it."""
MOST_LEASES = 10_000
FILE_MODE = 0o644


class Leases:
    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._contents: dict[BundleId, Digest] = {}
        self._asked: dict[BundleId, float] = {BundleId(name): clock() for name in os.listdir(folder)}

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
        """Notes what a program uses, so that it stays for the program after its removal."""
        self._contents[bundle] = digest

    def contents(self) -> dict[BundleId, Digest]:
        """Returns what programs use, as far as this process was told."""
        return {bundle: digest for bundle, digest in list(self._contents.items()) if self.is_held(bundle)}

    def digests(self) -> frozenset[Digest]:
        return frozenset(self.contents().values())

    def is_held(self, bundle: BundleId) -> bool:
        """Whether a program uses the bundle, or is about to."""
        asked = self._asked.get(bundle)
        return asked is not None and (self._clock() - asked < ASKED_SECS or self._is_locked(bundle))

    def held(self) -> frozenset[BundleId]:
        """Returns the bundles that programs use. Forgets the others."""
        held = frozenset(bundle for bundle in list(self._asked) if self.is_held(bundle))
        for bundle in self._asked.keys() - held:
            self._forget(bundle)
        return held

    def _forget(self, bundle: BundleId) -> None:
        """Removes the file of a bundle that nobody uses. A program that has just opened it asks
        again, since its file is not the one in the directory any more."""
        with contextlib.suppress(FileNotFoundError):  # An administrator may have removed it.
            if (file := self._locked_file(bundle)) is not None:
                try:
                    (self._folder / bundle).unlink(missing_ok=True)
                finally:
                    os.close(file)
        if not self._is_locked(bundle):
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
