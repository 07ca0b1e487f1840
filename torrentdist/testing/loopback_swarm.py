"""Real BitTorrent engines, one per host, that learn of each other without a directory.

Always: all hosts in a swarm dial a host that joins it. An engine starts when its host first needs
it.
"""

import asyncio
from pathlib import Path
from typing import NamedTuple

from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.packs.pack_files import write_files, write_packs
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest, MasterId
from torrentdist.model.wire.swarm_messages import PeerAddress, PeerRole
from torrentdist.swarm.engine.engine import Engine, EngineConfig, Transfer
from torrentdist.testing.loop_thread import BackgroundLoop


class _Seeded(NamedTuple):
    metafile: Metafile
    save_dir: Path


class LoopbackSwarm:
    """The engines of all hosts. Its methods block and may be called from any thread. The engines
    run on the loop."""

    def __init__(self, loop: BackgroundLoop) -> None:
        self._loop = loop
        self._engines: dict[MasterId, Engine] = {}
        self._seeded: dict[MasterId, dict[Digest, _Seeded]] = {}
        self._starting = asyncio.Lock()

    def fetch(self, host: MasterId, metafile: Metafile, dest_dir: Path, stall_secs: float) -> None:
        self._loop.run(self._fetch(host, metafile, dest_dir.parent, stall_secs), timeout=None)
        write_files(metafile, dest_dir.parent)

    def seed(self, host: MasterId, metafile: Metafile, content_dir: Path) -> None:
        write_packs(metafile, content_dir, content_dir.parent)
        self._loop.run(self._seed(host, _Seeded(metafile, content_dir.parent)))

    def leave(self, host: MasterId, digest: Digest) -> None:
        self._loop.run(self._leave(host, digest))

    def crash(self, host: MasterId) -> None:
        """Ends the engine, and remembers what it seeded."""
        self._loop.run(self._close(host))

    def restart(self, host: MasterId) -> None:
        self._loop.run(self._restart(host))

    async def _engine(self, host: MasterId) -> Engine:
        async with self._starting:
            if host not in self._engines:
                engine = Engine(EngineConfig())
                await engine.start()
                self._engines[host] = engine
            return self._engines[host]

    async def _fetch(self, host: MasterId, metafile: Metafile, save_dir: Path, stall_secs: float) -> None:
        engine = await self._engine(host)
        transfer = engine.fetch(metafile, save_dir)
        self._introduce(metafile.digest)
        try:
            await _wait_while_moving(transfer, stall_secs)
        except TorrentdistError:
            await engine.remove(metafile.digest)
            raise
        self._remember(host, _Seeded(metafile, save_dir))

    async def _seed(self, host: MasterId, seeded: _Seeded) -> None:
        engine = await self._engine(host)
        engine.seed(seeded.metafile, seeded.save_dir)
        self._remember(host, seeded)
        self._introduce(seeded.metafile.digest)

    async def _leave(self, host: MasterId, digest: Digest) -> None:
        self._seeded.get(host, {}).pop(digest, None)
        if host in self._engines:
            await self._engines[host].remove(digest)

    async def _close(self, host: MasterId) -> None:
        if (engine := self._engines.pop(host, None)) is not None:
            await engine.close()

    async def _restart(self, host: MasterId) -> None:
        for seeded in list(self._seeded.get(host, {}).values()):
            await self._seed(host, seeded)

    def _remember(self, host: MasterId, seeded: _Seeded) -> None:
        self._seeded.setdefault(host, {})[seeded.metafile.digest] = seeded

    def _introduce(self, digest: Digest) -> None:
        """Names all members of the swarm to each of them. An engine leaves itself out."""
        transfers = {e.port: t for e in self._engines.values() if (t := e.transfer(digest)) is not None}
        members = [
            PeerAddress(host="127.0.0.1", port=port, role=PeerRole.MASTER, complete=not transfer.active)
            for port, transfer in transfers.items()
        ]
        for transfer in transfers.values():
            transfer.add_peers(members)


async def _wait_while_moving(transfer: Transfer, stall_secs: float) -> None:
    """Returns when the transfer is done. Raises `timed_out` when nothing has arrived for
    `stall_secs`."""
    done = -1
    while transfer.view().done > done or transfer.active is False:
        done = transfer.view().done
        try:
            async with asyncio.timeout(stall_secs):
                return await transfer.wait_done()
        except TimeoutError:
            continue
    raise TorrentdistError("timed_out", what=f"the download of {transfer.digest}", seconds=stall_secs)
