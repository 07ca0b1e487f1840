"""The product's transfer without a libtorrent torrent: the simulated engine moves its state on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torrentdist.bundle.metafile import Metafile, WireFile
from torrentdist.model.wire.transfer_messages import TransferPhase
from torrentdist.swarm.engine.transfer import Transfer

if TYPE_CHECKING:
    from simulation.simulated_engine import SimulatedEngine


class SimulatedTransfer(Transfer):
    """The product's transfer without a libtorrent torrent: the engine moves its state on."""

    def __init__(self, engine: SimulatedEngine, meta: Metafile, home: Path, phase: TransferPhase) -> None:
        super().__init__(meta, home, engine, phase=phase)
        self.missing: list[tuple[WireFile, int]] = []
        """Each missing piece: its file and its offset there."""
        self.rate_limit = 0

    def begin(self, have: Sequence[bool]) -> None:
        """Begins with the pieces that are here. An empty sequence: none is."""
        length, piece, local = self.meta.piece_length, 0, 0
        for file in self.meta.wire_files:
            for offset in range(0, file.size, length):
                if have and have[piece]:
                    local += min(length, file.size - offset)
                else:
                    self.missing.append((file, offset))
                piece += 1
        self._local = local
        self._view = self._changed(phase=TransferPhase.FETCHING, done=local)
        self._count_sources()

    def got(self, size: int, from_master: bool) -> None:
        self._view = self._changed(done=min(self.meta.size, self._view.done + size), rate=float(size) * 10, peers=1)
        self._count_sources()

    def gave(self, size: int) -> None:
        self._view = self._changed(uploaded=self._view.uploaded + size)

    def complete(self) -> None:
        self._view = self._changed(phase=TransferPhase.SEEDING, done=self.meta.size, rate=0.0, eta=None)
        self._count_sources()
        self._settled.set()

    def failed_hash(self) -> None:
        self._view = self._changed(hash_failures=self._view.hash_failures + 1)

    def run_from(self, piece: int, most: int) -> int:
        return most if self.phase is TransferPhase.SEEDING else 0

    def limit(self, rate: int) -> None:
        self.rate_limit = rate
