"""Fetches and seeds by BitTorrent: the engine has one transfer per bundle that is arriving or
published.

Always: the engine has verified every byte of a finished fetch. A stalled transfer ends with
`timed_out`, and the content that has arrived stays on disk. When a fetch has ended, also by being
cancelled, no thread writes files of it any more.
Never: publish, or decide what this host wants.
Longer than most files: fetching and seeding share the table of transfers.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

from torrentdist.bundle.files.durability import disk_failures
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.packs.arriving_files import ArrivingFiles
from torrentdist.bundle.packs.pack_files import write_files
from torrentdist.host.host_parts import AT_ONCE, ENTERED_SECS, LEFT_SECS, HostParts
from torrentdist.host.known_swarms import KnownSwarms
from torrentdist.host.process.heavy_work import GoOn, in_heavy_thread, in_writing_thread, until_ended
from torrentdist.log import get_logger
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest
from torrentdist.model.wire.swarm_messages import PeerAddress
from torrentdist.model.wire.transfer_messages import TransferPhase
from torrentdist.swarm.engine.engine import Transfer
from torrentdist.swarm.engine.preparation import ReadyTorrent, ready_to_fetch, ready_to_seed
from torrentdist.swarm.engine.session_settings import usable_rate

log = get_logger()

STALL_SECS = 60.0
LEAVE_SECS = 10.0
"""How long a fetch that is given up may take to end."""
WRITE_SECS = 0.3
"""Interval between two looks for small files that have arrived."""
ROOM_LOOK_SECS = 1.0
FIRST_PEERS_SECS = 0.3
"""How long a fetch waits for its first peers. Peers passed with a torrent are dialled at once,
later ones at the engine's next tick."""


class Joining(NamedTuple):
    """A bundle that is about to be fetched."""

    size: int
    local: int = 0
    """Bytes that were on this host already."""


class SwarmTransfers:
    def __init__(
        self, parts: HostParts, known: KnownSwarms, peers_at_hand: Callable[[Digest], list[PeerAddress]]
    ) -> None:
        """`peers_at_hand` returns the peers of a swarm that are known already."""
        self._store = parts.store
        self._engine = parts.engine
        self._tell_masters = parts.tell_masters
        self._known = known
        self._peers_at_hand = peers_at_hand
        self._verified: set[Digest] = set()
        self._limits: dict[Digest, int] = {}
        self._joining: dict[Digest, Joining] = {}
        self._have: dict[Digest, Sequence[bool]] = {}
        self._fetching: dict[Digest, set[asyncio.Task[None]]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._staying: list[Digest] = []
        """Swarms that this host does not leave now."""
        self._store.hear_deletions(self.end_seeding)

    @property
    def joining(self) -> Mapping[Digest, Joining]:
        """The bundles whose swarms this host is about to join."""
        return self._joining

    def note_filled(self, meta: Metafile, done: int) -> None:
        """Announces how much of a bundle that arrives this host had already."""
        self._joining[meta.digest] = Joining(size=meta.size, local=done)
        self._tell_masters(AT_ONCE)

    def trust_pieces(self, digest: Digest, have: Sequence[bool]) -> None:
        """Records which pieces of a bundle that is about to be fetched are on disk and verified."""
        self._have[digest] = have

    def is_verified(self, digest: Digest) -> bool:
        """Whether the engine has verified every byte of a bundle that is not published yet."""
        return digest in self._verified

    def forget(self, digest: Digest) -> None:
        """Forgets everything about a fetch that has ended."""
        self._verified.discard(digest)
        self._joining.pop(digest, None)
        self._have.pop(digest, None)

    def share_limit(self, digests: Collection[Digest], rate: int) -> None:
        """Limits these bundles together to `rate` bytes per second, or removes the limit if `rate`
        is 0. All other bundles are unlimited."""
        self._limits = {digest: max(1, rate // len(digests)) for digest in digests} if rate else {}
        for transfer in self._engine.moving():
            if transfer.active:
                transfer.limit(self._limits.get(transfer.digest, 0))

    def limit(self, digest: Digest, rate: int) -> None:
        """Limits one bundle to `rate` bytes per second, or removes its limit if `rate` is 0."""
        if self._limits.get(digest, 0) == rate:
            return
        self._limits.pop(digest, None)
        if rate:
            self._limits[digest] = rate
        transfer = self._engine.transfer(digest)
        if transfer is not None and transfer.active:
            transfer.limit(rate)

    async def fetch(self, meta: Metafile, home: Path, *, stall_secs: float = STALL_SECS) -> None:
        """Returns once every byte is verified and in its file below `home`.

        Raises `timed_out` if nothing arrives for `stall_secs`. The content that has arrived stays.
        """
        task = asyncio.create_task(self._fetch(meta, home, stall_secs), name=f"fetch {meta.digest[:12]}")
        tasks = self._fetching.setdefault(meta.digest, set())
        tasks.add(task)
        try:
            await asyncio.shield(task)
        finally:
            task.cancel()
            await until_ended(task)
            tasks.discard(task)
            if not tasks:
                self._fetching.pop(meta.digest, None)

    async def leave(self, digests: Iterable[Digest] | None = None) -> None:
        """Ends the fetches of these bundles (None: all). When it returns, no thread writes there
        any more, unless a disk does not answer."""
        chosen = list(self._fetching) if digests is None else digests
        tasks = [task for digest in chosen for task in self._fetching.get(digest, ())]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=LEAVE_SECS)

    async def _fetch(self, meta: Metafile, home: Path, stall_secs: float) -> None:
        await self._end_seeding_unpublished(meta.digest)  # The files that are there now are others.
        transfer = self._engine.transfer(meta.digest)
        if transfer is None:
            have = self._have.pop(meta.digest, None)
            if have and all(have):
                if meta.packed.files:
                    await _written(home, meta, lambda go_on: write_files(meta, home, go_on))
                self._verified.add(meta.digest)
                return
            peers = await self._first_peers(meta)
            ready = await in_heavy_thread(ready_to_fetch, meta, home, have)
            if meta.digest not in self._store.arriving():  # dropped meanwhile, and a plug-in does not know it
                raise TorrentdistError("not_found", what=f"an arriving bundle {meta.digest}")
            limit = self._limits.get(meta.digest, 0)
            # libtorrent dials at once: a limit that is set later comes after megabytes.
            ready.params.download_limit = usable_rate(limit) or -1
            transfer = self._engine.fetch(meta, home, peers, self._known.place(meta.digest), ready)
            transfer.limit(limit)
            self._tell_masters(ENTERED_SECS)
        files = await in_heavy_thread(ArrivingFiles, meta, home) if meta.packed.files else None
        try:
            async with _meanwhile(_write_arriving(transfer, files)):
                await self._unless_stalled(transfer, stall_secs)
        except TorrentdistError:
            await self._engine.remove(meta.digest)
            raise
        if files is not None:
            await _written(home, meta, files.write_rest)
        self._verified.add(meta.digest)

    async def _unless_stalled(self, transfer: Transfer, stall_secs: float) -> None:
        """Waits for the end of a transfer, as long as it goes on and there is room for it."""
        done = asyncio.ensure_future(transfer.wait_done())
        before, moved_at = transfer.view().done, time.monotonic()
        try:
            while not (await asyncio.wait({done}, timeout=min(stall_secs, ROOM_LOOK_SECS)))[0]:
                view = transfer.view()
                if view.done != before:
                    before, moved_at = view.done, time.monotonic()
                    await self._store.check_room(view.size - view.done)
                elif time.monotonic() - moved_at >= stall_secs:
                    raise TorrentdistError("timed_out", what=f"fetching {transfer.digest[:12]}", seconds=stall_secs)
            done.result()
        finally:
            done.cancel()

    async def _first_peers(self, meta: Metafile) -> list[PeerAddress]:
        if peers := self._peers_at_hand(meta.digest):
            return peers
        self._joining.setdefault(meta.digest, Joining(size=meta.size))
        self._tell_masters(AT_ONCE)
        try:
            async with asyncio.timeout(FIRST_PEERS_SECS):
                while not (peers := self._peers_at_hand(meta.digest)):
                    await self._known.next_picture()
            return peers
        except TimeoutError:
            return []
        finally:
            self._joining.pop(meta.digest, None)

    async def seed(self, digest: Digest) -> Transfer | None:
        """Seeds a published bundle. Returns None if it or its metafile is missing."""
        transfer = self._engine.transfer(digest)
        if transfer is not None and transfer.phase is not TransferPhase.SEEDING:
            # The fetch was overtaken by another way to get the bundle, and lacks content that is
            # here.
            await self._engine.remove(digest)
            transfer = None
        if transfer is None:
            meta = await self._store.metafile(digest)
            if meta is None:
                return None
            ready = await in_heavy_thread(ready_to_seed, meta, self._store.object_dir(digest))
            if self._store.get(digest) is None:  # It was deleted meanwhile.
                return None
            transfer = self._engine.seed(meta, self._store.object_dir(digest), ready)
        return transfer

    def seed_in_place(self, meta: Metafile, directory: Path, ready: ReadyTorrent) -> None:
        """Seeds a plug-in's content where it is, unless the bundle already has a transfer."""
        if self._engine.transfer(meta.digest) is None:
            self._engine.seed(meta, directory, ready)
            self._tell_masters(AT_ONCE)

    def end_seeding(self, digest: Digest) -> None:
        """Ends the seeding of a bundle that was deleted, or that could not be published. It may be
        fetched again meanwhile."""
        task = asyncio.create_task(self._end_seeding_unpublished(digest), name=f"leave {digest[:12]}")
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _end_seeding_unpublished(self, digest: Digest) -> None:
        transfer = self._engine.transfer(digest)
        if transfer is None or self._store.get(digest) is not None:
            return
        # One that has just begun to seed is checked first.
        if transfer.phase is TransferPhase.SEEDING or digest not in self._fetching:
            await self._engine.remove(digest)

    @contextmanager
    def staying(self, digest: Digest | None) -> Iterator[None]:
        """Within the block, this host does not stop seeding this content. None: it may."""
        if digest is None:
            yield
            return
        self._staying.append(digest)
        try:
            yield
        finally:
            self._staying.remove(digest)

    async def stop_seeding(self, digest: Digest) -> None:
        if digest in self._staying:
            return
        await self._engine.remove(digest)
        self._tell_masters(LEFT_SECS)


async def _written(home: Path, meta: Metafile, write: Callable[[GoOn], None]) -> None:
    """Writes small files of a bundle whose packs are here."""
    with disk_failures(home, needed=meta.packed_size):
        await in_writing_thread(write)


@asynccontextmanager
async def _meanwhile(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Runs `work` beside the block. When the block ends, `work` is cancelled and has ended. Its
    failure is only logged."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await until_ended(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("small files are written at the end only", exc_info=error)


async def _write_arriving(transfer: Transfer, files: ArrivingFiles | None) -> None:
    """Writes small files as their pieces arrive.

    If the disk fails here, what is left is written at the end, and fails with a reason.
    """
    while files is not None:
        await asyncio.sleep(WRITE_SECS)
        transfer.save()
        have = transfer.have()
        try:
            await in_writing_thread(lambda go_on, have=have: files.write(have, go_on))  # type: ignore[misc]
        except OSError as exc:
            log.warning("small files are written at the end only", digest=transfer.digest, reason=str(exc))
            return
