"""Content of the store for readers: the one door, and it checks what goes through.

Always: what is not as it was published is set aside at once, for the daemon to fetch again. A peer that leaves, and an
error of our own reads, are reasons to check what it was given: a peer leaves whoever sends it wrong bytes.
Never: fetch, or check one bundle on behalf of peers more than once in a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from weakref import WeakValueDictionary

import structlog

from torrentdist.bundle.content_check import Damage
from torrentdist.bundle.store.store import StoredBundle
from torrentdist.host.http.file_answers import confined_path
from torrentdist.host.runtime import HostRuntime
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.events import Fact, PeerDropped
from torrentdist.model.ids import Digest
from torrentdist.model.wire.transfer_messages import TransferPhase

log = structlog.get_logger(__name__)

PAUSE_SECS = 2.0
"""Many peers leave at once when a swarm is done."""


class HandOuts:
    def __init__(self, runtime: HostRuntime) -> None:
        self._runtime = runtime
        self.on_damage: Callable[[], None] = lambda: None
        """Something was set aside: the daemon's plan may want it again."""
        self._rejecting = asyncio.Lock()
        self._doubts: dict[Digest, asyncio.Task[None]] = {}
        self._looks: dict[Digest, asyncio.Task[list[Damage]]] = {}
        """That have not begun."""
        self._turns: WeakValueDictionary[Digest, asyncio.Lock] = WeakValueDictionary()
        self._emit = runtime.engine.tell
        runtime.engine.tell = self._hear

    async def checked(self, digest: Digest, paths: Collection[str] | None = None) -> StoredBundle | None:
        """The published bundle with these files as they were published, None: all of them. Otherwise None."""
        if await self._damage(digest, paths):
            async with self._rejecting:
                # Once more: while it was looked at, somebody else may have set it aside, and it is whole again.
                damage = await self._damage(digest, paths)
                if damage:
                    await self._runtime.set_aside(digest, f"{damage[0].path}: {damage[0].reason}")
                    self.on_damage()
                    return None
        return self._runtime.store.get(digest)

    async def _damage(self, digest: Digest, paths: Collection[str] | None) -> list[Damage]:
        """None of a bundle that is not published."""
        if self._runtime.store.get(digest) is None:
            return []
        try:
            return await asyncio.to_thread(self._runtime.store.check, digest, paths)
        except TorrentdistError as error:
            if error.code != "not_found":
                raise
            return []  # it went meanwhile

    async def file(self, digest: Digest, relative: str) -> str | None:
        """The path within its content of the file that `relative` names, checked, with symlinks followed. None: it is
        not here as it was published. `not_found` if the bundle has no such file."""
        store = self._runtime.store
        stored = store.get(digest)
        if stored is None:
            return None
        path: str | None = relative
        if not await asyncio.to_thread(store.is_file, digest, relative):
            if await self.checked(digest, [relative]) is None:  # the symlinks are not what they were
                return None
            path = await asyncio.to_thread(confined_path, stored.content, relative)
            if path is None or not await asyncio.to_thread(store.is_file, digest, path):
                raise TorrentdistError("not_found", what=f"{relative!r} in this bundle")
        return path if path is not None and await self.checked(digest, [path]) is not None else None

    async def close(self) -> None:
        tasks = [*self._doubts.values(), *self._looks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _hear(self, fact: Fact) -> None:
        self._emit(fact)
        if isinstance(fact, PeerDropped):
            digest = Digest(fact.digest)
            if digest not in self._doubts and self._runtime.store.get(digest) is not None:
                self._doubts[digest] = asyncio.create_task(self._settle(digest), name=f"doubt of {digest}")

    async def _settle(self, digest: Digest) -> None:
        """Those that leave while it pauses are answered by the same look."""
        try:
            await asyncio.sleep(PAUSE_SECS)
        finally:
            del self._doubts[digest]
        try:
            transfer = self._runtime.engine.transfer(digest)
            if transfer is None or transfer.phase is not TransferPhase.FAILED:
                await self.checked(digest)
            elif await self._runtime.verify(digest):  # its reads fail, whatever its files look like
                self.on_damage()
            elif self._runtime.store.get(digest) is not None:
                await self._runtime.seed(digest)
        except TorrentdistError as error:
            log.warning("cannot check what peers got", digest=digest, error=error.message)
