"""A host's bundles: its store, its transfers and its fetches, under one interface for the daemon.

Always: a damaged bundle is set aside before any reader gets it. A swarm entry says `complete` only
for a published bundle.
Never: decide which bundles this host wants. The daemon's plan does.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from weakref import WeakValueDictionary

from msgspec.structs import replace

from torrentdist.bundle.files.durability import is_shortage
from torrentdist.bundle.store.store import held_by_nobody
from torrentdist.host.fetches import Fetches
from torrentdist.host.host_parts import AT_ONCE, LEFT_SECS, HostParts
from torrentdist.host.known_swarms import KnownSwarms, PeerlessTransfers
from torrentdist.host.swarm_transfers import SwarmTransfers
from torrentdist.log import get_logger
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest
from torrentdist.model.wire.swarm_messages import SwarmEntry, swarm_entry
from torrentdist.model.wire.transfer_messages import TransferPhase, TransferView

log = get_logger()

MOST_STORED = 10_000
"""Masters refuse an announce that names more."""


class HostRuntime:
    def __init__(self, parts: HostParts, known: KnownSwarms, transfers: SwarmTransfers, fetches: Fetches) -> None:
        self.store = parts.store
        self.engine = parts.engine
        self.events = parts.events
        self._tell_masters = parts.tell_masters
        self.known = known
        self.transfers = transfers
        self.fetches = fetches
        self._peerless = PeerlessTransfers()
        self._turns: WeakValueDictionary[Digest, asyncio.Lock] = WeakValueDictionary()

    def turn(self, digest: Digest) -> asyncio.Lock:
        """Returns the lock that is held while an upload of this content is opened, and while the
        content is dropped because no bundle has it."""
        return self._turns.setdefault(digest, asyncio.Lock())

    async def start(self) -> None:
        """Seeds the bundles in the store. Sets aside a bundle whose sizes and times show damage."""
        for digest in self.store.published():
            damage = await self.store.check_quick(digest)
            try:
                if not damage:
                    await self.transfers.seed(digest)
            except TorrentdistError as error:
                if is_shortage(error.__cause__):
                    raise
                # Its metafile is damaged.
                await self.set_aside(digest, error.message)
            else:
                if damage:
                    await self.set_aside(digest, str(damage[0]))

    async def stop(self) -> None:
        await self.fetches.close()
        await self.engine.close()

    def is_here(self, digest: Digest) -> bool:
        """Whether this host has a bundle, or fetches it."""
        return self.store.get(digest) is not None or digest in self.fetches.under_way()

    # announcing

    def swarm_entries(
        self, among: Iterable[Digest] | None = None, known: Callable[[Digest], bool] = lambda _: False
    ) -> list[SwarmEntry]:
        """What this host says of its swarms.

        `among`: the digests whose transfers it names; None: all. `known`: whether a digest needs no
        word although it failed here.
        """
        entries = [self._entry(self._with_brought(t.view())) for t in self.engine.transfers(among)]
        named = {entry.digest for entry in entries}
        joining = self.transfers.joining
        entries += [
            SwarmEntry(digest=digest, complete=False, done=one.local, local=one.local, size=one.size)
            for digest, one in joining.items()
            if digest not in named
        ]
        named |= joining.keys()
        entries += [
            SwarmEntry(digest=digest, complete=False, size=size, problem=failure.message)
            for digest, (size, failure) in self.fetches.failures().items()
            if digest not in named and not known(digest)
        ]
        return entries

    def stored_beside(self, named: Iterable[SwarmEntry]) -> list[Digest]:
        """Returns what this host has, whole or in part, besides the swarms that it names. It would
        not hear whether others have that, too, or whether it was removed."""
        stored = {*self.store.published_digests(), *self.store.arriving()}
        return sorted(stored.difference(entry.digest for entry in named))[:MOST_STORED]

    def _entry(self, view: TransferView) -> SwarmEntry:
        """Returns the announcement of one swarm. It says `complete` only for a published bundle,
        because clients rely on that."""
        return swarm_entry(
            view,
            complete=view.phase is TransferPhase.SEEDING and self.store.get(view.digest) is not None,
            own=self.store.own_bytes(view.digest) or 0,
            problem=view.error or self._waits_for_peers(view),
        )

    def transfer_view(self, digest: Digest) -> TransferView | None:
        transfer = self.engine.transfer(digest)
        return None if transfer is None else self._with_brought(transfer.view())

    def _with_brought(self, view: TransferView) -> TransferView:
        """Counts bytes that came beside the swarm as fetched; the engine counts them as local."""
        return replace(view, sources=view.sources.with_brought(self.fetches.brought(view.digest)))

    def _waits_for_peers(self, view: TransferView) -> str:
        if view.phase is not TransferPhase.FETCHING:
            self._peerless.forget(view.digest)
            return ""
        return self._peerless.problem(view.digest, peers=view.peers, now=time.monotonic())

    # removing and checking

    async def drop(self, digest: Digest, is_held: Callable[[], bool] = held_by_nobody) -> bool:
        """Deletes the bundle, whatever its state, unless it is published and held by now. Leaves
        the swarm once it is gone, and returns whether it is. `is_held` is called in another thread.
        """
        if self.store.get(digest) is None or digest in self.fetches.under_way():
            await self.fetches.stop(digest)
        if self.store.get(digest) is None:
            await self.store.abandon(digest)
        # It may have been published meanwhile.
        if self.store.get(digest) is not None and not await self._discard(digest, is_held):
            return False
        self.fetches.forget(digest)
        self._peerless.forget(digest)
        self.store.index_soon()
        self._tell_masters(LEFT_SECS)
        return True

    async def _discard(self, digest: Digest, is_held: Callable[[], bool]) -> bool:
        """Deletes a published bundle. One that stays is seeded on: masters tell what is removed of
        the swarms that a host is in."""
        try:
            return await self.store.discard(digest, is_held)
        finally:
            if self.store.get(digest) is not None:
                await self.transfers.seed(digest)

    async def evict(self, digest: Digest) -> bool:
        """Deletes a published bundle and leaves its swarm, unless something claims it by now.
        Returns whether it did."""
        if not await self.store.evict(digest):
            return False
        self.fetches.forget(digest)
        self._peerless.forget(digest)
        self.store.index_soon()
        self._tell_masters(LEFT_SECS)
        return True

    async def verify(self, digest: Digest) -> list[str]:
        """Reads every byte of a published bundle. Returns the paths that are damaged.

        A damaged bundle is set aside at once, and so is each bundle that shares a damaged file with
        it. The daemon's plan fetches them again.
        """
        before = self.store.get(digest)
        if before is None:
            return []
        damage = await self.store.verify(digest)
        paths = [item.path for item in damage]
        sharers = await self.store.sharers(digest, paths) if damage else []
        now = self.store.get(digest)
        if now is None or now.published_at != before.published_at:
            return []  # It was deleted meanwhile, and with it what was read.
        if damage:
            await self.set_aside(digest, f"{damage[0].path}: {damage[0].reason}")
        for sharer in sharers:
            await self.verify(sharer)
        return paths

    async def set_aside(self, digest: Digest, reason: str) -> None:
        """Unpublishes a damaged bundle. It counts as arriving again, and only its damaged parts are
        fetched."""
        log.warning("damaged bundle set aside", digest=digest, reason=reason)
        try:
            # Done first, because a fetch would count a seeding transfer as verified.
            await self.engine.remove(digest)
            self.transfers.forget(digest)
        finally:
            await self.store.set_aside(digest, reason)
        self._tell_masters(AT_ONCE)
