"""A host's bundles at work: the store, the engine, the plug-in and the agent, as one thing that a daemon steers.

Always holds: a bundle is published only after every byte of it was verified (by the engine, or by reading it all), and
what is published is seeded. One fetch per digest, however many ask. Must not do: decide which bundles this host wants;
that is the daemon's plan.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path

import structlog
from msgspec.structs import replace

from torrentdist.bundle.content_check import finish_content, verify_content
from torrentdist.bundle.files.durability import write_durably
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.store.store import Claims, Store, StoredBundle, claim_everything
from torrentdist.distributor.protocol import CodeDistributor
from torrentdist.host.peerless_transfers import Peerless
from torrentdist.host.process.heavy_work import in_heavy_thread
from torrentdist.host.telemetry.download_story import Download, told
from torrentdist.host.telemetry.event_log import EventLog
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.wire.swarm_messages import PeerAddress, SwarmEntry
from torrentdist.model.wire.transfer_messages import TransferPhase, TransferView
from torrentdist.model.wording import os_sentence
from torrentdist.swarm.agent import SwarmPicture
from torrentdist.swarm.engine.engine import Engine, Transfer
from torrentdist.swarm.engine.preparation import ready_to_fetch, ready_to_seed

log = structlog.get_logger(__name__)

MAX_FETCHES = 64
"""Fetches that may be under way at once: each holds a thread while its plug-in works."""


STOP_SECS = 5.0
STALL_SECS = 60.0
FIRST_PEERS_SECS = 0.3


class HostRuntime:
    def __init__(self, store: Store, engine: Engine, events: EventLog) -> None:
        self.store = store
        self.engine = engine
        self.events = events
        engine.tell = events.emit
        self.distributor: CodeDistributor | None = None
        self.poke: Callable[[], None] = lambda: None
        """Tell the directory at once: the agent's poke(), as soon as there is an agent."""
        self._picture: SwarmPicture | None = None
        self._fetches: dict[Digest, asyncio.Task[StoredBundle]] = {}
        self._peerless = Peerless()
        self._by_plugin: dict[Digest, int] = {}
        """Bytes that came by another way than the swarm, since this process began."""
        self._problems: dict[Digest, tuple[int, TorrentdistError]] = {}
        self._verified_by_swarm: set[Digest] = set()
        self._limits: dict[Digest, int] = {}
        self.claims: Claims = claim_everything
        """What must not go when room is needed; the daemon knows."""
        self._allowed: frozenset[str] = frozenset()
        self._asked_who = 0.0
        self._pictured = asyncio.Event()
        self._begun = asyncio.Event()
        """Of the next fetch; a new one for each."""
        self._joining: dict[Digest, int] = {}
        self.peers_at_hand: Callable[[Digest], list[PeerAddress]] = self.known_peers
        """Who is in a swarm, without asking anybody; a master looks into its own directory."""
        engine.on_blocked = self.on_blocked
        self._threads = ThreadPoolExecutor(MAX_FETCHES, thread_name_prefix="fetch")

    async def start(self) -> None:
        """Seed what the store has. What a look at sizes and times finds damaged is set aside, not served."""
        for stored in await asyncio.to_thread(self._sound_bundles):
            try:
                await self.seed(stored.digest)
            except TorrentdistError as error:  # its metafile is damaged
                await self.set_aside(stored.digest, error.message)

    def _sound_bundles(self) -> list[StoredBundle]:
        sound = []
        for stored in self.store.published().values():
            damage = self.store.check_quick(stored.digest)
            if damage:
                log.warning("damaged bundle set aside", digest=stored.digest, first=str(damage[0]))
                self.store.set_aside(stored.digest, str(damage[0]))
            else:
                sound.append(stored)
        return sound

    async def stop(self) -> None:
        for task in self._fetches.values():
            task.cancel()
        await asyncio.gather(*self._fetches.values(), return_exceptions=True)
        await self.engine.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    # what the directory says

    def apply_picture(self, picture: SwarmPicture) -> None:
        self._picture = picture
        self._pictured.set()
        self._pictured.clear()
        self.allow_also(picture.addresses)
        self.engine.rtt = picture.rtt
        for digest, swarm in picture.swarms.items():
            transfer = self.engine.transfer(digest)
            if transfer is not None:
                self.engine.conduct(digest, swarm.place)
                if swarm.peers:
                    transfer.add_peers(swarm.peers)

    def on_blocked(self, _: str) -> None:
        """Somebody unknown dialled, who may be new. The masters are asked twice a second at most."""
        now = time.monotonic()
        if now - self._asked_who > 0.5:
            self._asked_who = now
            self.poke()

    def allow_also(self, addresses: Iterable[str]) -> None:
        """Let the engine talk to these addresses, besides those that the last picture named."""
        named = self._picture.addresses if self._picture else frozenset()
        allowed = named.union(addresses)
        if allowed != self._allowed:
            self._allowed = allowed
            self.engine.allow(allowed)

    def object_dir(self, digest: Digest) -> Path:
        return self.store.data_dir / "objects" / digest

    def known_peers(self, digest: Digest) -> list[PeerAddress]:
        """As the last picture has it."""
        swarm = self._picture.swarms.get(digest) if self._picture else None
        return list(swarm.peers) if swarm else []

    def replicas_elsewhere(self, digest: Digest) -> int | None:
        """How many live masters hold it as far as was heard; None: nothing was heard."""
        swarm = self._picture.swarms.get(digest) if self._picture else None
        return swarm.replicas if swarm else None

    def pinned(self, digest: Digest) -> bool:
        swarm = self._picture.swarms.get(digest) if self._picture else None
        return swarm is not None and swarm.pinned

    def swarm_entries(self, known: Set[Digest] = frozenset()) -> list[SwarmEntry]:
        """What this host says of its swarms; of those in `known` nothing."""
        entries = [self._entry(self._with_plugin(t.view())) for t in self.engine.transfers(known)]
        named = {entry.digest for entry in entries}
        entries += [SwarmEntry(digest=d, complete=False, size=size) for d, size in self._joining.items()]
        named |= self._joining.keys()
        entries += [
            SwarmEntry(digest=digest, complete=False, size=size, problem=failure.message)
            for digest, (size, failure) in self._problems.items()
            if digest not in named and digest not in known
        ]
        return entries

    def _entry(self, view: TransferView) -> SwarmEntry:
        """`complete` is said of what is published: whoever waits for this host must not be told sooner."""
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
        """The engine found on disk what a plug-in has put there: that was fetched too."""
        brought = min(self._by_plugin.get(view.digest, 0), view.sources.local)
        if not brought:
            return view
        sources = replace(view.sources, local=view.sources.local - brought, plugin=brought)
        return replace(view, sources=sources)

    def _waits_for_peers(self, view: TransferView) -> str:
        if view.phase is not TransferPhase.FETCHING:
            self._peerless.forget(view.digest)
            return ""
        return self._peerless.problem(view.digest, peers=view.peers, now=time.monotonic())

    # fetching

    def fetching(self) -> set[Digest]:
        return set(self._fetches)

    def share_limit(self, digests: Collection[Digest], rate: int) -> None:
        """Of these together at most so many bytes per second arrive, 0: no limit; nothing else is limited."""
        self._limits = {digest: max(1, rate // len(digests)) for digest in digests} if rate else {}
        for transfer in self.engine.transfers():
            if transfer.active:
                transfer.limit(self._limits.get(transfer.digest, 0))

    def failure(self, digest: Digest) -> TorrentdistError | None:
        """What the last fetch failed with; None when it didn't."""
        return self._problems[digest][1] if digest in self._problems else None

    async def fetch(self, bundle_id: BundleId, meta: Metafile, *, plugin_metafile: bytes | None = None) -> StoredBundle:
        """Return when the bundle is published here, fetching it unless it is; raises what went wrong."""
        task = self._fetches.get(meta.digest)
        if task is None:
            task = asyncio.create_task(self._fetch(bundle_id, meta, plugin_metafile), name=f"fetch {bundle_id}")
            self._fetches[meta.digest] = task
            task.add_done_callback(lambda done: self._fetched(meta, done))
        stored = await asyncio.shield(task)
        await asyncio.to_thread(self.store.bind, bundle_id, meta.digest)
        return stored

    def _fetched(self, meta: Metafile, task: asyncio.Task[StoredBundle]) -> None:
        self._fetches.pop(meta.digest, None)
        self._verified_by_swarm.discard(meta.digest)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._problems.pop(meta.digest, None)
        else:
            internal = TorrentdistError("internal", detail=str(error))
            self._problems[meta.digest] = (meta.size, error if isinstance(error, TorrentdistError) else internal)
        self.poke()

    async def _fetch(self, bundle_id: BundleId, meta: Metafile, plugin_metafile: bytes | None) -> StoredBundle:
        stored = self.store.get(meta.digest)
        if stored is not None:
            return stored
        async with self._told(bundle_id, meta) as download:
            home = await asyncio.to_thread(self.store.begin, meta, claims=self.claims)
            self._begun.set()
            self._begun = asyncio.Event()
            await asyncio.to_thread(self.store.bind, bundle_id, meta.digest)
            download.prepared()
            await self._run_plugin(bundle_id, home, plugin_metafile)
            if meta.digest not in self._verified_by_swarm:
                self._by_plugin[meta.digest] = meta.size
            download.fetched()
            stored = await self.publish(meta)
        log.info("bundle published", bundle=bundle_id, digest=meta.digest, size=meta.size)
        return stored

    async def raw_metafile(self, digest: Digest, within: float) -> bytes | None:
        """As soon as it is here, for so many seconds at most."""
        until = time.monotonic() + within
        while True:
            begun = self._begun
            raw = await asyncio.to_thread(self.store.raw_metafile, digest)
            if raw is not None or time.monotonic() >= until:
                return raw
            with suppress(TimeoutError):
                async with asyncio.timeout(until - time.monotonic()):
                    await begun.wait()

    def _told(self, bundle_id: BundleId, meta: Metafile) -> AbstractAsyncContextManager[Download]:
        return told(self.events, bundle_id, meta, lambda: self.engine.transfer(meta.digest))

    async def _run_plugin(self, bundle_id: BundleId, home: Path, plugin_metafile: bytes | None) -> None:
        assert self.distributor is not None
        metafile_path = home / "metafile"
        if plugin_metafile is not None:
            metafile_path = home / "distributor-metafile"
            await asyncio.to_thread(metafile_path.write_bytes, plugin_metafile)
        work = asyncio.get_running_loop().run_in_executor(
            self._threads, self.distributor.download, home / "content", bundle_id, metafile_path
        )
        try:
            await work
        except (TorrentdistError, asyncio.CancelledError):
            raise
        except OSError as exc:
            raise TorrentdistError("disk_error", path=str(exc.filename or home), detail=os_sentence(exc)) from exc
        except Exception as exc:
            raise TorrentdistError(
                "bundle_unavailable", id=bundle_id, detail=f"{type(self.distributor).__name__}: {exc}"
            ) from exc

    async def fetch_from_uploader(self, bundle_id: BundleId, meta: Metafile) -> StoredBundle:
        """The leader's way to a bundle that no plug-in has yet: from the uploader, and then to the plug-in."""
        assert self.distributor is not None
        async with self._told(bundle_id, meta) as download:
            home = await asyncio.to_thread(self.store.begin, meta, claims=self.claims)
            download.prepared()
            await self.fetch_by_swarm(meta, home)
            download.fetched()
            await asyncio.to_thread(finish_content, meta, home / "content")  # the plug-in sees empty files too
            await self.hand_to_plugin(bundle_id, home)
            stored = await self.publish(meta)
        await asyncio.to_thread(self.store.bind, bundle_id, meta.digest)
        return stored

    async def hand_to_plugin(self, bundle_id: BundleId, home: Path) -> None:
        """Let the plug-in upload complete content, and keep the metafile that it makes of it."""
        assert self.distributor is not None
        made = await asyncio.to_thread(self.distributor.upload, home / "content", bundle_id)
        await asyncio.to_thread(_copy_durably, made, home / "distributor-metafile")

    async def fetch_by_swarm(self, meta: Metafile, home: Path, *, stall_secs: float = STALL_SECS) -> None:
        """Every byte verified and on its file; for the plug-in that distributes by BitTorrent.

        `timed_out` once nothing has arrived for `stall_secs`; what has arrived stays.
        """
        transfer = self.engine.transfer(meta.digest)
        if transfer is None:
            peers = await self._first_peers(meta)
            ready = await in_heavy_thread(ready_to_fetch, meta, home)
            swarm = self._picture.swarms.get(meta.digest) if self._picture else None
            transfer = self.engine.fetch(meta, home, peers, swarm.place if swarm else None, ready)
            transfer.limit(self._limits.get(meta.digest, 0))
            self.poke()
        try:
            await _unless_stalled(transfer, stall_secs)
        except TorrentdistError:
            await self.engine.remove(meta.digest)
            raise
        self._verified_by_swarm.add(meta.digest)

    async def _first_peers(self, meta: Metafile) -> list[PeerAddress]:
        """Peers that are given with a torrent are dialled at once, later ones with the engine's next tick."""
        self._joining[meta.digest] = meta.size
        self.poke()
        try:
            async with asyncio.timeout(FIRST_PEERS_SECS):
                while not (peers := self.peers_at_hand(meta.digest)):
                    await self._pictured.wait()
            return peers
        except TimeoutError:
            return []
        finally:
            del self._joining[meta.digest]

    async def publish(self, meta: Metafile) -> StoredBundle:
        """Verify what nobody verified yet, publish, seed."""
        home = self.object_dir(meta.digest)
        if meta.digest not in self._verified_by_swarm:
            await asyncio.to_thread(finish_content, meta, home / "content")
            damage = await asyncio.to_thread(verify_content, meta, home / "content")
            if damage:
                raise TorrentdistError("corrupt", path=damage[0].path, detail=damage[0].reason)
        stored = await asyncio.to_thread(self.store.publish, meta.digest)
        await self.seed(meta.digest)
        self.poke()
        return stored

    async def seed(self, digest: Digest) -> Transfer | None:
        transfer = self.engine.transfer(digest)
        if transfer is not None and transfer.phase is not TransferPhase.SEEDING:
            await self.engine.remove(digest)  # of a fetch that something else has overtaken: it lacks what is here
            transfer = None
        if transfer is None:
            meta = await in_heavy_thread(self.store.metafile, digest)
            if meta is None:
                return None
            ready = await in_heavy_thread(ready_to_seed, meta, self.object_dir(digest))
            transfer = self.engine.seed(meta, self.object_dir(digest), ready)
        return transfer

    # letting go

    async def drop(self, digest: Digest) -> None:
        """Stop taking part and delete it, whatever state it is in."""
        task = self._fetches.get(digest)
        if task is not None:
            task.cancel()
        await self.engine.remove(digest)
        self._problems.pop(digest, None)
        self._peerless.forget(digest)
        self._by_plugin.pop(digest, None)
        if self.store.get(digest) is not None:
            await asyncio.to_thread(self.store.discard, digest)
        else:
            await asyncio.to_thread(self.store.abandon, digest)
        self.poke()

    async def stop_fetching(self, digest: Digest) -> None:
        """End a fetch; what has arrived stays."""
        task = self._fetches.get(digest)
        if task is not None:
            task.cancel()
            await asyncio.wait({task}, timeout=STOP_SECS)  # until then it may still begin what is to end
        await self.engine.remove(digest)

    async def stop_seeding(self, digest: Digest) -> None:
        await self.engine.remove(digest)
        self.poke()

    async def verify(self, digest: Digest) -> list[str]:
        """Read every byte; what is damaged is set aside at once. The daemon's plan fetches it again."""
        if self.store.get(digest) is None:
            return []
        damage = await asyncio.to_thread(self.store.verify, digest)
        if damage:
            await self.set_aside(digest, f"{damage[0].path}: {damage[0].reason}")
        return [item.path for item in damage]

    async def set_aside(self, digest: Digest, reason: str) -> None:
        log.warning("damaged bundle set aside", digest=digest, reason=reason)
        try:
            await self.engine.remove(digest)  # first: a fetch would take what is seeded for verified
        finally:
            await asyncio.to_thread(self.store.set_aside, digest, reason)
        self.poke()


async def _unless_stalled(transfer: Transfer, stall_secs: float) -> None:
    done = asyncio.ensure_future(transfer.wait_done())
    try:
        while True:
            before = transfer.view().done
            await asyncio.wait({done}, timeout=stall_secs)
            if done.done():
                return done.result()
            if transfer.view().done == before:
                raise TorrentdistError("timed_out", what=f"fetching {transfer.digest[:12]}", seconds=stall_secs)
    finally:
        done.cancel()


def _copy_durably(source: Path, target: Path) -> None:
    write_durably(target, source.read_bytes())
