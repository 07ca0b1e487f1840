"""Gives out content of the store, after checking that it is as it was published. Every reader gets
content through here.

Always: a bundle that is not as it was published is set aside at once, and the daemon fetches it
again. A bundle is also checked when a peer leaves its swarm, because peers leave a host that sends
wrong bytes, and when its own transfer fails to read it.
Never: fetch, or check a bundle for peers more than once per PAUSE_SECS.
"""

import asyncio
from collections.abc import Callable, Collection

from torrentdist.bundle.content_check import Damage
from torrentdist.bundle.store.store import StoredBundle
from torrentdist.host.http.file_answers import confined_path
from torrentdist.host.runtime import HostRuntime
from torrentdist.log import get_logger
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.events import Fact, PeerDropped
from torrentdist.model.ids import Digest
from torrentdist.model.wire.transfer_messages import TransferPhase

log = get_logger()

PAUSE_SECS = 2.0
"""How long a check waits after a peer has left. Many peers leave at once when a swarm is done, and
one check serves them all."""


class HandOuts:
    def __init__(self, runtime: HostRuntime, on_damage: Callable[[], None]) -> None:
        """`on_damage` is called after a bundle was set aside, since the daemon's plan may want it
        again."""
        self._runtime = runtime
        self._store = runtime.store
        self._on_damage = on_damage
        self._rejecting = asyncio.Lock()
        self._checks: dict[Digest, asyncio.Task[None]] = {}
        runtime.events.subscribe(self._on_event)
        runtime.fetches.on_suspect.append(self._on_suspect)

    async def checked(self, digest: Digest, paths: Collection[str] | None = None) -> StoredBundle | None:
        """Returns a published bundle if its files `paths` (None: all) are as they were published,
        otherwise None."""
        if await self._damage(digest, paths):
            async with self._rejecting:
                # Check again: another caller may have set it aside meanwhile, and it may be
                # complete by now.
                damage = await self._damage(digest, paths)
                if damage:
                    await self._runtime.set_aside(digest, f"{damage[0].path}: {damage[0].reason}")
                    self._on_damage()
                    return None
        return self._store.get(digest)

    async def _damage(self, digest: Digest, paths: Collection[str] | None) -> list[Damage]:
        """Returns the damage; none if the bundle is not published."""
        if self._store.get(digest) is None:
            return []
        try:
            return await self._store.check(digest, paths)
        except TorrentdistError as error:
            if error.code != "not_found":
                raise
            return []  # The bundle was removed meanwhile.

    async def file(self, digest: Digest, relative: str) -> str | None:
        """Follows the symlinks of `relative`. Returns the path of the file that it leads to within
        the bundle's content.

        Returns None if the file here is not as it was published, or not here any more. Raises
        `not_found` if the bundle has no such file.
        """
        if self._store.get(digest) is None:
            return None
        try:
            return await self._file(digest, relative)
        except TorrentdistError as error:
            if error.code == "not_found" and self._store.get(digest) is None:
                return None  # The bundle was dropped meanwhile.
            raise

    async def _file(self, digest: Digest, relative: str) -> str | None:
        store, path = self._store, relative
        if not await store.is_file(digest, relative):
            stored = await self.checked(digest, [relative])
            if stored is None:  # The symlinks have changed.
                return None
            confined = await asyncio.to_thread(confined_path, stored.content, relative)
            if confined is None or not await store.is_file(digest, confined):
                raise TorrentdistError("not_found", what=f"{relative!r} in this bundle")
            path = confined
        return path if await self.checked(digest, [path]) is not None else None

    async def close(self) -> None:
        tasks = list(self._checks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _on_event(self, fact: Fact) -> None:
        if isinstance(fact, PeerDropped):
            digest = Digest(fact.digest)
            if digest not in self._checks and self._store.get(digest) is not None:
                self._checks[digest] = asyncio.create_task(self._check_after_pause(digest), name=f"check of {digest}")

    def _on_suspect(self, digest: Digest) -> None:
        """Reads a bundle that gave wrong bytes to another one, although its files may look
        right."""
        if digest not in self._checks and self._store.get(digest) is not None:
            self._checks[digest] = asyncio.create_task(self._read(digest), name=f"reading of {digest}")

    async def _read(self, digest: Digest) -> None:
        try:
            if await self._runtime.verify(digest):
                self._on_damage()
            else:
                await self._store.drop_recipe(digest)  # Its files are right, so what led there is not.
        except TorrentdistError as error:
            log.warning("cannot verify a bundle", digest=digest, error=error.message)
        finally:
            del self._checks[digest]

    async def _check_after_pause(self, digest: Digest) -> None:
        """Checks a bundle once after a pause, for all peers that have left it by then."""
        try:
            await asyncio.sleep(PAUSE_SECS)
        finally:
            del self._checks[digest]
        try:
            transfer = self._runtime.engine.transfer(digest)
            if transfer is None or transfer.phase is not TransferPhase.FAILED:
                await self.checked(digest)
            # Its transfer fails to read it, although its files look right.
            elif await self._runtime.verify(digest):
                self._on_damage()
            elif self._store.get(digest) is not None:
                await self._runtime.transfers.seed(digest)
        except TorrentdistError as error:
            log.warning("cannot check a bundle that peers have left", digest=digest, error=error.message)
