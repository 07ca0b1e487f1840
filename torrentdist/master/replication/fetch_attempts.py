"""How this master's fetches went: failures, pauses until the next attempt, errors of the disk.

Always: whatever may let a fetch succeed wakes the replicator at once.
"""

import asyncio
import random
import time

from torrentdist.model.backoff import pause_secs, secs_until_retry
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest

FIRST_RETRY_SECS = 1.0
LONGEST_RETRY_SECS = 30.0
LONGEST_UPLOAD_RETRY_SECS = 2.0
"""Longest pause while an uploader waits."""
DISK_ERRORS = ("disk_full", "disk_error")


class FetchAttempts:
    def __init__(self) -> None:
        self._failures: dict[Digest, int] = {}
        self._disk_errors: dict[Digest, TorrentdistError] = {}
        self._not_before: dict[Digest, float] = {}
        self._wake = asyncio.Event()

    def poke(self) -> None:
        """Makes the replicator look again."""
        self._wake.set()

    async def wait(self, timeout: float) -> None:
        """Returns at the next poke, or when time is up."""
        try:
            async with asyncio.timeout(timeout):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    def retry(self, digest: Digest) -> None:
        """Lets a fetch begin at once, because what it lacked may be here now."""
        self._not_before.pop(digest, None)
        self._disk_errors.pop(digest, None)
        self._wake.set()

    def begun(self, digest: Digest) -> None:
        self._disk_errors.pop(digest, None)

    def succeeded(self, digest: Digest) -> None:
        self._failures.pop(digest, None)
        self._not_before.pop(digest, None)

    def failed(self, digest: Digest, error: TorrentdistError, *, uploading: bool) -> int:
        """Sets the pause before the next attempt. Returns the number of failures in a row."""
        if error.code in DISK_ERRORS:
            self._disk_errors[digest] = error
        failures = self._failures[digest] = self._failures.get(digest, 0) + 1
        longest = LONGEST_UPLOAD_RETRY_SECS if uploading else LONGEST_RETRY_SECS
        pause = pause_secs(failures, FIRST_RETRY_SECS, longest, random.random())
        self._not_before[digest] = time.monotonic() + pause
        return failures

    def disk_error(self, digest: Digest) -> TorrentdistError | None:
        """Returns the error of the disk that ended the last fetch of a digest, if one did."""
        return self._disk_errors.get(digest)

    def not_before(self) -> dict[Digest, float]:
        """Returns the time.monotonic() before which each failed fetch is not tried again."""
        return dict(self._not_before)

    def secs_until_next(self, planned_at: float, longest: float) -> float:
        """Returns the seconds until a failed fetch may be tried again, at most `longest`. A pause
        that has ended since the plan of `planned_at` (a time.monotonic()) counts as well."""
        return secs_until_retry(self._not_before.values(), planned_at, time.monotonic(), longest)
