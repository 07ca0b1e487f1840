"""An engine in memory beside libtorrent's: transfers copy real files from peer to peer, at a rate
and over links that the seed chooses.

Always: a transfer counts a piece only after its bytes were compared with the metafile. A peer that
lost its files, or lies, gives nothing.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from simulation.host_process import HERE, NOBODY
from simulation.simulated_network import SimulatedNetwork
from simulation.simulated_transfer import SimulatedTransfer

from torrentdist.bundle.content_check import verify_content
from torrentdist.bundle.files.durability import disk_failure
from torrentdist.bundle.metafile import Metafile, WireFile
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest
from torrentdist.model.swarm_place import SwarmPlace
from torrentdist.model.wire.swarm_messages import PeerAddress
from torrentdist.model.wire.transfer_messages import TransferPhase
from torrentdist.swarm.engine import connections, preparation
from torrentdist.swarm.engine.connections import clean_addresses
from torrentdist.swarm.engine.preparation import ReadyTorrent, ready_to_fetch
from torrentdist.swarm.engine.session_settings import EngineConfig
from torrentdist.swarm.engine.traffic import EngineStatistics
from torrentdist.swarm.engine.transfer import Transfer

GIVING = (TransferPhase.FETCHING, TransferPhase.SEEDING)
BLOCK = 16 * 1024
STEP_SECS = (0.02, 0.12)
"""Time between two pieces of one transfer."""
admits = functools.lru_cache(maxsize=4096)(connections.admits)
"""Remembered, because it is asked for each piece and peer. Libtorrent's own filter is compiled."""


class SimulatedEngine:
    network: SimulatedNetwork
    rng: random.Random
    everywhere: dict[tuple[str, int], SimulatedEngine]
    """The engines of the whole story, by where they listen."""

    def __init__(self, config: EngineConfig, *, tell: Any = None, on_blocked: Any = None) -> None:
        self._on_blocked: Callable[[str], None] = on_blocked or (lambda _: None)
        self._process = HERE.get()
        self.host = self._process.address
        self.port = self.tls_port = 0
        self.on_entered: list[Callable[[Digest], None]] = []
        self._transfers: dict[Digest, SimulatedTransfer] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._allowed: frozenset[str] | None = None
        self._is_closing = False

    async def start(self) -> None:
        self.port = self.network.free_port()
        self.everywhere[self.host, self.port] = self
        self._process.at_death.append(lambda: self.everywhere.pop((self.host, self.port), None))

    def join(self, memberships: object) -> None:
        pass

    def seed(self, meta: Metafile, save_dir: Path, ready: ReadyTorrent | None = None) -> Transfer:
        if (known := self._transfers.get(meta.digest)) is not None:
            return known
        self._check_open()
        return self._enter(SimulatedTransfer(self, meta, save_dir, TransferPhase.SEEDING))

    def fetch(
        self, meta: Metafile, save_dir: Path, peers: Sequence[PeerAddress] = (), place: SwarmPlace | None = None,
        ready: ReadyTorrent | None = None,
    ) -> Transfer:  # fmt: skip
        self._check_open()
        if (known := self._transfers.get(meta.digest)) is not None:
            known.add_peers(peers)
            return known
        ready = ready or ready_to_fetch(meta, save_dir)
        transfer = SimulatedTransfer(self, meta, save_dir, TransferPhase.CHECKING)
        self._enter(transfer)
        transfer.add_peers(peers)
        task = asyncio.get_running_loop().create_task(self._run(transfer, meta, ready))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return transfer

    def transfer(self, digest: Digest) -> Transfer | None:
        return self._transfers.get(digest)

    def transfers(self, among: Iterable[Digest] | None = None) -> list[Transfer]:
        if among is None:
            return list(self._transfers.values())
        return [self._transfers[digest] for digest in among if digest in self._transfers]

    def digests(self) -> list[Digest]:
        return list(self._transfers)

    def moving(self) -> list[Transfer]:
        return [transfer for transfer in self._transfers.values() if transfer.active]

    async def remove(self, digest: Digest) -> None:
        transfer = self._transfers.pop(digest, None)
        if transfer is not None:
            transfer.fail(TorrentdistError("closing", what="the transfer"))
            await asyncio.sleep(self.rng.uniform(0.0, 0.02))

    def allow(self, addresses: Iterable[str] | None) -> None:
        self._allowed = clean_addresses(addresses)

    def statistics(self) -> EngineStatistics:
        return EngineStatistics(torrents=len(self._transfers))

    @property
    def rate_limits(self) -> tuple[int, int]:
        return 0, 0

    def set_rate(self, *, upload: int | None = None, download: int | None = None) -> None:
        pass

    def set_rtt(self, seconds: float) -> None:
        pass

    def crowd(self, digest: Digest, receivers: int | None) -> None:
        pass

    def crowd_all(self, receivers: Mapping[Digest, int | None]) -> None:
        pass

    def conduct(self, digest: Digest, place: SwarmPlace | None) -> None:
        pass

    async def close(self) -> None:
        self._is_closing = True
        for task in self._tasks:
            task.cancel()
        self.everywhere.pop((self.host, self.port), None)
        for digest in list(self._transfers):
            await self.remove(digest)

    # what a transfer asks of its engine

    def is_own(self, endpoint: tuple[str, int]) -> bool:
        return endpoint == (self.host, self.port)

    def refresh(self) -> None:
        pass

    # internals

    def _check_open(self) -> None:
        if self._is_closing:
            raise TorrentdistError("closing", what="the engine")

    def _enter(self, transfer: SimulatedTransfer) -> SimulatedTransfer:
        self._transfers[transfer.digest] = transfer
        for tell in self.on_entered:
            tell(transfer.digest)
        return transfer

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.result()  # The loop notes what it raises, and the story fails.

    async def _run(self, transfer: SimulatedTransfer, meta: Metafile, ready: ReadyTorrent) -> None:
        """Fetches piece after piece until the transfer is complete, has failed or was removed."""
        try:
            if ready.needs_files:
                await asyncio.to_thread(preparation.prepare_files, transfer.meta, transfer.save_dir)
            have = list(ready.params.have_pieces)
            if not ready.is_checked:
                have = await asyncio.to_thread(_checked, meta, transfer.save_dir)
            if transfer.active:  # Otherwise it was removed meanwhile.
                transfer.begin(have)
            while transfer.missing and transfer.active:
                await asyncio.sleep(self.rng.uniform(*STEP_SECS))
                piece = self.rng.choice(transfer.missing)
                if transfer.active and self._fetch_piece(transfer, *piece):
                    transfer.missing.remove(piece)
            if not transfer.active:
                return
            # The story checks what its engine did, and no fault of this host's disk hits the check.
            look = NOBODY.context().run
            damage = await asyncio.to_thread(look, verify_content, meta, transfer.save_dir / "content")
            if transfer.active:  # Otherwise it was removed meanwhile, and its files may be gone.
                if damage and not meta.packed.files and not self._process.rots:
                    raise AssertionError(f"the simulated engine took wrong bytes: {damage}")
                transfer.complete()
        except OSError as exc:
            transfer.fail(disk_failure(exc, transfer.save_dir, transfer.meta.size))

    def _fetch_piece(self, transfer: SimulatedTransfer, file: WireFile, offset: int) -> bool:
        size = min(transfer.meta.piece_length, file.size - offset)
        known = sorted(transfer.known_peers(), key=lambda peer: (peer.host, peer.port))
        peers = [found for peer in known if (found := self._reached(peer, transfer.digest))]
        if not peers:
            return False
        giver = self.rng.choice(peers)
        theirs = giver._transfers[transfer.digest]
        data = _read(theirs.save_dir / file.place, offset, size)
        if (file, offset) in theirs.missing or len(data) != size:
            return False
        if not is_right(transfer.meta, file, offset, data):
            transfer.failed_hash()
            return False
        _write(transfer.save_dir / file.place, offset, data)
        theirs.gave(size)
        transfer.got(size, from_master=False)
        return True

    def _reached(self, peer: PeerAddress, digest: Digest) -> SimulatedEngine | None:
        """Returns the engine of a peer that has this bundle's transfer and talks to us."""
        there = self.everywhere.get((peer.host, peer.port))
        if there is None or there is self or there._process.held is not None:
            return None
        both_ways = self.network.passes(self.host, there.host) and self.network.passes(there.host, self.host)
        if not both_ways or (self._allowed is not None and not admits(self._allowed, there.host)):
            return None
        if there._allowed is not None and not admits(there._allowed, self.host):
            there._process.context().run(there._on_blocked, self.host)
            return None
        theirs = there._transfers.get(digest)
        return there if theirs is not None and theirs.phase in GIVING else None


def is_right(meta: Metafile, file: WireFile, offset: int, data: bytes) -> bool:
    """Whether these are the bytes of this piece, by the hashes of BitTorrent v2."""
    layer, number = meta.piece_layers.get(file.root), offset // meta.piece_length * 32
    blocks = [hashlib.sha256(data[at : at + BLOCK]).digest() for at in range(0, len(data), BLOCK)]
    wanted = meta.piece_length // BLOCK if layer else 1
    while len(blocks) < wanted or len(blocks) & (len(blocks) - 1):
        blocks.append(bytes(32))
    while len(blocks) > 1:
        blocks = [hashlib.sha256(one + other).digest() for one, other in zip(blocks[::2], blocks[1::2], strict=True)]
    return blocks[0] == (layer[number : number + 32] if layer else file.root)


def _checked(meta: Metafile, home: Path) -> list[bool]:
    """Returns which pieces are on the disk and right, as libtorrent finds out by reading them."""
    pieces = [
        (file, offset, min(meta.piece_length, file.size - offset))
        for file in meta.wire_files
        for offset in range(0, file.size, meta.piece_length)
    ]
    found = (_read(home / file.place, offset, size) for file, offset, size in pieces)
    return [
        len(data) == size and is_right(meta, file, offset, data)
        for (file, offset, size), data in zip(pieces, found, strict=True)
    ]


def _read(path: Path, offset: int, size: int) -> bytes:
    try:
        with path.open("rb") as stream:
            stream.seek(offset)
            return stream.read(size)
    except OSError:
        return b""


def _write(path: Path, offset: int, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("r+b" if path.exists() else "wb") as stream:
        stream.seek(offset)
        stream.write(data)
