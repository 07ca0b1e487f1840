"""Receivers that have most of a bundle from an older version, in real engines: they give it away
from the start, and fetch nothing of it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import libtorrent as lt
import pytest
from engines_in_process import MiB, address, engines, published, run
from zookeeper_fixtures import eventually

from torrentdist.bundle.content_check import verify_content
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.reuse.reuse_plan import held_pieces
from torrentdist.model.wire.swarm_messages import PeerRole
from torrentdist.swarm.engine.engine import Engine, EngineConfig
from torrentdist.swarm.engine.preparation import ready_to_fetch
from torrentdist.testing.sample_trees import some_bytes, write_tree

OLD = {f"old/{number}.bin": some_bytes(500_000, number) for number in range(8)}
NEW = {**OLD, "new.bin": some_bytes(300_000, 99)}
NEW_BYTES = 300_000
SLOW = EngineConfig(upload_limit=MiB // 4)


def filled(home: Path, meta: Metafile) -> list[bool]:
    """Puts the old files into `home`. Returns the pieces that are there."""
    write_tree(home / "content", OLD)
    return held_pieces(meta.wire_files, meta.piece_length, set(OLD))


async def uploaded_by(engine: Engine) -> int:
    """Returns the payload bytes that an engine has sent, once the number is steady."""
    seen = [-2, -1]
    while seen[0] != seen[1]:
        before = engine.statistics().at
        await eventually(lambda before=before: engine.statistics().at != before)  # type: ignore[misc]
        seen = [seen[1], engine.statistics().uploaded]
    return seen[1]


@pytest.mark.case("H5")
def test_a_holder_sends_new_bytes_only(tmp_path: Path) -> None:
    """Every host would fetch from the masters what it has on its disk."""
    meta = published(tmp_path / "holder", NEW)

    async def scenario() -> None:
        async with engines(EngineConfig(), EngineConfig(), EngineConfig()) as (holder, *receivers):
            holder.seed(meta, tmp_path / "holder")
            peers = [address(holder, complete=True), *(address(one, PeerRole.SUPERVISOR) for one in receivers)]
            transfers = []
            for number, receiver in enumerate(receivers):
                home = tmp_path / f"receiver-{number}"
                ready = ready_to_fetch(meta, home, filled(home, meta))
                transfers.append(receiver.fetch(meta, home, peers, None, ready))
            for number, transfer in enumerate(transfers):
                await transfer.wait_done()
                sources = transfer.view().sources
                assert sources.local == meta.size - NEW_BYTES
                assert sources.masters + sources.peers == NEW_BYTES
                assert verify_content(meta, tmp_path / f"receiver-{number}" / "content") == []
            assert NEW_BYTES <= await uploaded_by(holder) <= 2 * NEW_BYTES

    run(scenario())


@pytest.mark.case("H5")
def test_a_host_gives_what_it_had_before_it_is_complete(tmp_path: Path) -> None:
    """In a mixed fleet, hosts without the old version would all depend on the masters."""
    meta = published(tmp_path / "holder", NEW)

    async def scenario() -> None:
        async with engines(SLOW, EngineConfig(), EngineConfig()) as (holder, has_old, has_none):
            holder.seed(meta, tmp_path / "holder")
            ready = ready_to_fetch(meta, tmp_path / "old", filled(tmp_path / "old", meta))
            first = has_old.fetch(meta, tmp_path / "old", [], None, ready)
            second = has_none.fetch(meta, tmp_path / "none", [address(has_old, PeerRole.SUPERVISOR)])
            await eventually(lambda: second.view().done >= meta.size - NEW_BYTES)
            assert first.view().sources.local == meta.size - NEW_BYTES
            first.add_peers([address(holder, complete=True)])
            await first.wait_done()
            await second.wait_done()
            assert verify_content(meta, tmp_path / "none" / "content") == []

    run(scenario())


@pytest.mark.case("H5")
def test_a_stock_client_gets_everything_from_a_host_that_was_filled(tmp_path: Path) -> None:
    """A client that is not ours would miss the pieces that nobody sent over the network."""
    meta = published(tmp_path / "holder", NEW)

    async def scenario() -> None:
        async with engines(EngineConfig(), EngineConfig()) as (holder, has_old):
            holder.seed(meta, tmp_path / "holder")
            ready = ready_to_fetch(meta, tmp_path / "old", filled(tmp_path / "old", meta))
            transfer = has_old.fetch(meta, tmp_path / "old", [address(holder, complete=True)], None, ready)
            await transfer.wait_done()
            await asyncio.to_thread(fetch_with_stock_client, meta, tmp_path / "stock", has_old)

    run(scenario())
    assert verify_content(meta, tmp_path / "stock" / "content") == []


def fetch_with_stock_client(meta: Metafile, save_dir: Path, source: Engine) -> None:
    save_dir.mkdir()
    session = lt.session(
        {
            "listen_interfaces": "127.0.0.1:0",
            "enable_outgoing_utp": False,
            "enable_dht": False,
            "enable_lsd": False,
            "min_reconnect_time": 1,
            "allow_multiple_connections_per_ip": True,
        }
    )
    params = lt.load_torrent_buffer(meta.raw)
    params.save_path = str(save_dir)
    handle = session.add_torrent(params)
    deadline = time.monotonic() + 30
    while not handle.status().is_seeding:
        assert time.monotonic() < deadline, "the stock client is not done"
        handle.connect_peer((source.host, source.port))
        time.sleep(0.2)
