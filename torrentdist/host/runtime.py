"""A host's bundles at work: its store, its transfers and its fetches, as one thing that a daemon
steers.

Always: what is damaged is set aside before anybody gets it. A swarm entry says `complete` only of a
published bundle. Never: decide which bundles this host wants; that is the daemon's plan.
"""

from __future__ import annotations

import time
from collections.abc import Set

from msgspec.structs import replace

from torrentdist.host.fetches import Fetches
from torrentdist.host.host_parts import HostParts
from torrentdist.host.known_swarms import KnownSwarms
from torrentdist.host.peerless_transfers import Peerless
from torrentdist.host.swarm_transfers import SwarmTransfers
from torrentdist.log import get_logger
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest
from torrentdist.model.wire.swarm_messages import SwarmEntry
from torrentdist.model.wire.transfer_messages import TransferPhase, TransferView

log = get_logger()


class HostRuntime:
    def __init__(self, parts: HostParts, known: KnownSwarms, transfers: SwarmTransfers, fetches: Fetches) -> None:
        self.store = parts.store
        self.engine = parts.engine
        self.events = parts.events
        self._tell_masters = parts.tell_masters
        self.known = known
        self.transfers = transfers
        self.fetches = fetches
        self._peerless = Peerless()

    async def start(self) -> None:
        """Seeds what the store has. A bundle that sizes and times show to be damaged is set aside
        instead."""
        for digest in self.store.published():
            damage = await self.store.check_quick(digest)
            try:
                if not damage:
                    await self.transfers.seed(digest)
            except TorrentdistError as error:  # its metafile is damaged
                await self.set_aside(digest, error.message)
            else:
                if damage:
                    await self.set_aside(digest, str(damage[0]))

    async def stop(self) -> None:
        await self.fetches.close()
        await self.engine.close()

    # what others are told

    def swarm_entries(self, known: Set[Digest] = frozenset()) -> list[SwarmEntry]:
        """What this host says of its swarms, without those in `known`."""
        entries = [self._entry(self._with_plugin(t.view())) for t in self.engine.transfers(known)]
        named = {entry.digest for entry in entries}
        joining = self.transfers.joining
        entries += [SwarmEntry(digest=digest, complete=False, size=size) for digest, size in joining.items()]
        named |= joining.keys()
        entries += [
            SwarmEntry(digest=digest, complete=False, size=size, problem=failure.message)
            for digest, (size, failure) in self.fetches.failures().items()
            if digest not in named and digest not in known
        ]
        return entries

    def _entry(self, view: TransferView) -> SwarmEntry:
        """`complete` is said of published bundles only: a client that waits for this host must not
        be told sooner."""
        return SwarmEntry(
            digest=view.digest,
            complete=view.phase is TransferPhase.SEEDING and self.store.get(view.digest) is not None,
            done=view.done,
            size=view.size,
            rate=view.rate,
            from_peers=view.sources.peers,
            from_masters=view.sources.masters,
            from_plugin=view.sources.plugin,
            problem=view.error or self._waits_for_peers(view),
        )

    def transfer_view(self, digest: Digest) -> TransferView | None:
        transfer = self.engine.transfer(digest)
        return None if transfer is None else self._with_plugin(transfer.view())

    def _with_plugin(self, view: TransferView) -> TransferView:
        """The engine counts as local what a plug-in has put on disk; here it counts as fetched."""
        brought = min(self.fetches.brought_by_plugin(view.digest), view.sources.local)
        if not brought:
            return view
        sources = replace(view.sources, local=view.sources.local - brought, plugin=brought)
        return replace(view, sources=sources)

    def _waits_for_peers(self, view: TransferView) -> str:
        if view.phase is not TransferPhase.FETCHING:
            self._peerless.forget(view.digest)
            return ""
        return self._peerless.problem(view.digest, peers=view.peers, now=time.monotonic())

    # letting go

    async def drop(self, digest: Digest) -> None:
        """Leaves the swarm and deletes the bundle, whatever state it is in."""
        self.fetches.cancel(digest)
        await self.engine.remove(digest)
        self.fetches.forget(digest)
        self._peerless.forget(digest)
        if self.store.get(digest) is not None:
            await self.store.discard(digest)
        else:
            await self.store.abandon(digest)
        self._tell_masters()

    async def verify(self, digest: Digest) -> list[str]:
        """Reads every byte of a published bundle and returns the paths that are damaged.

        A damaged bundle is set aside at once; the daemon's plan fetches it again.
        """
        if self.store.get(digest) is None:
            return []
        damage = await self.store.verify(digest)
        if damage:
            await self.set_aside(digest, f"{damage[0].path}: {damage[0].reason}")
        return [item.path for item in damage]

    async def set_aside(self, digest: Digest, reason: str) -> None:
        """Unpublishes a damaged bundle. It is arriving again, and only what is damaged is
        fetched."""
        log.warning("damaged bundle set aside", digest=digest, reason=reason)
        try:
            await self.engine.remove(digest)  # first: a fetch would take what is seeded for verified
        finally:
            await self.store.set_aside(digest, reason)
        self._tell_masters()
