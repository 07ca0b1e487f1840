"""The table of an engine's transfers: the hash on the wire leads to the digest."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest
from torrentdist.model.wire.transfer_messages import TransferPhase
from torrentdist.swarm.engine import preparation
from torrentdist.swarm.engine.engine import Engine
from torrentdist.swarm.engine.session import LibtorrentSession
from torrentdist.swarm.engine.session_settings import EngineConfig
from torrentdist.swarm.engine.transfer import Transfer
from torrentdist.swarm.engine.transfers import Transfers, WireHash


def test_alerts_are_mapped_back_by_the_hash_on_the_wire() -> None:
    """A swarm whose hash on the wire differs from its digest would never learn that a transfer is
    done."""
    transfers = Transfers(LibtorrentSession(EngineConfig()), lambda _: None)
    wire, digest = WireHash("ab" * 32), Digest("cd" * 32)
    transfers.name(wire, digest)

    assert digest == transfers.digest_of(wire)
    assert transfers.digest_of(WireHash(digest)) is None


class NoEngine:
    """The parts of an engine that a transfer uses."""

    def is_own(self, endpoint: tuple[str, int]) -> bool:
        return False

    def refresh(self) -> None:
        pass


def bundle(home: Path, content: str) -> Metafile:
    home.mkdir()
    (home / "file").write_text(content)
    return make_metafile(home)


@pytest.mark.case("G11")
def test_only_transfers_that_move_are_looked_at(tmp_path: Path) -> None:
    """G11: an engine would look at each of its host's bundles every second."""
    transfers = Transfers(LibtorrentSession(EngineConfig()), lambda _: None)
    held, wanted = (bundle(tmp_path / name, name) for name in ("held", "wanted"))
    seed = Transfer(held, tmp_path, NoEngine(), phase=TransferPhase.SEEDING)
    fetch = Transfer(wanted, tmp_path, NoEngine(), phase=TransferPhase.FETCHING)
    transfers.enter(seed)
    transfers.enter(fetch)

    assert [fetch] == transfers.moving()
    fetch.fail(TorrentdistError("closing", what="a test"))
    assert [] == transfers.moving()
    assert {seed, fetch} == set(transfers.all())


def test_a_removed_transfer_makes_no_files_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory of a bundle that was removed as its fetch began would come back, with some of
    its files."""
    meta, home = bundle(tmp_path / "source", "wanted"), tmp_path / "home"
    (home / "content").mkdir(parents=True)
    (home / "content/file").touch()
    begun, release = threading.Event(), threading.Event()

    def prepare(*_: object) -> None:
        begun.set()
        release.wait(20)

    monkeypatch.setattr(preparation, "prepare_files", prepare)

    async def play() -> bool:
        engine = Engine(EngineConfig())
        await engine.start()
        engine.fetch(meta, home)
        await asyncio.to_thread(begun.wait, 20)
        removing = asyncio.create_task(engine.remove(meta.digest))
        await asyncio.wait({removing}, timeout=0.2)
        early = removing.done()
        release.set()
        await removing
        await engine.close()
        return early

    assert not asyncio.run(play())
