"""Sparse bundles in the engine: zeros are neither sent nor stored, and all bytes are right."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from cluster_fixtures import disk_bytes
from engines_in_process import MiB, run

from torrentdist.bundle.content_check import finish_content, verify_content
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.model.wire.swarm_messages import PeerAddress, PeerRole
from torrentdist.model.wire.transfer_messages import Sources, TransferPhase
from torrentdist.swarm.engine.engine import Engine, EngineConfig
from torrentdist.swarm.engine.preparation import ready_to_fetch

SIZE = 256 * MiB


def sparse_bundle(top: Path, data: bytes, *, dense: bytes = b"") -> Metafile:
    """Makes a file of 256 MiB that has `data` in its middle, and a dense one."""
    top.mkdir(parents=True)
    with (top / "sparse").open("wb") as file:
        file.truncate(SIZE)
        file.seek(SIZE // 2)
        file.write(data)
    (top / "dense").write_bytes(dense)
    meta = make_metafile(top)
    finish_content(meta, top)
    return meta


async def fetched(meta: Metafile, tmp_path: Path, have: Sequence[bool] | None = None) -> Sources:
    giver, taker = Engine(EngineConfig()), Engine(EngineConfig())
    try:
        await giver.start()
        await taker.start()
        giver.seed(meta, tmp_path / "a")
        peer = PeerAddress(host="127.0.0.1", port=giver.port, role=PeerRole.MASTER, complete=True)
        ready = ready_to_fetch(meta, tmp_path / "b", have)
        transfer = taker.fetch(meta, tmp_path / "b", [peer], ready=ready)
        await transfer.wait_done()
        assert TransferPhase.SEEDING is transfer.phase
        return transfer.view().sources
    finally:
        await taker.close()
        await giver.close()


@pytest.mark.parametrize(
    ("data", "dense"),
    [(os.urandom(4096), os.urandom(3 * MiB)), (os.urandom(4096), b""), (b"", b"")],
    ids=["sparse and dense", "sparse", "zeros only"],
)
def test_zeros_take_no_room_and_no_time(tmp_path: Path, data: bytes, dense: bytes) -> None:
    """If this failed, a sparse file of 1 TiB would be sent in full and fill the disks of all
    hosts."""
    meta = sparse_bundle(tmp_path / "a" / "content", data, dense=dense)
    found: list[Sources] = []

    async def scenario() -> None:
        found.append(await fetched(meta, tmp_path))

    run(scenario())
    room = disk_bytes(tmp_path / "b")
    finish_content(meta, tmp_path / "b" / "content")

    assert [] == verify_content(meta, tmp_path / "b" / "content")
    assert room <= len(dense) + 4 * MiB
    assert found[0].masters <= len(dense) + 4 * MiB
    assert meta.size == found[0].masters + found[0].local


def test_a_fetch_goes_on_from_what_is_there(tmp_path: Path) -> None:
    """If this failed, the remains of a sparse bundle after a crash would count as complete, or
    would be fetched again with their zeros."""
    meta = sparse_bundle(tmp_path / "a" / "content", os.urandom(4096), dense=os.urandom(3 * MiB))
    (tmp_path / "b" / "content").mkdir(parents=True)
    with (tmp_path / "b" / "content" / "sparse").open("wb") as file:
        file.truncate(SIZE)
    found: list[Sources] = []

    async def scenario() -> None:
        found.append(await fetched(meta, tmp_path))

    run(scenario())
    finish_content(meta, tmp_path / "b" / "content")

    assert [] == verify_content(meta, tmp_path / "b" / "content")
    assert disk_bytes(tmp_path / "b") <= 8 * MiB


def test_pieces_that_are_known_are_neither_fetched_nor_hashed(tmp_path: Path) -> None:
    """If this failed, a host that has most of a bundle would fetch all of it, or first read all of
    it."""
    dense = os.urandom(8 * MiB)
    (tmp_path / "a" / "content").mkdir(parents=True)
    (tmp_path / "a" / "content" / "dense").write_bytes(dense)
    meta = make_metafile(tmp_path / "a" / "content")
    known = meta.num_pieces * 3 // 4
    (tmp_path / "b" / "content").mkdir(parents=True)
    (tmp_path / "b" / "content" / "dense").write_bytes(dense[: known * meta.piece_length])
    have = [piece < known for piece in range(meta.num_pieces)]
    found: list[Sources] = []

    async def scenario() -> None:
        found.append(await fetched(meta, tmp_path, have))

    run(scenario())

    assert [] == verify_content(meta, tmp_path / "b" / "content")
    assert known * meta.piece_length == found[0].local


def test_a_wrong_claim_about_a_piece_is_found_by_the_next_check(tmp_path: Path) -> None:
    """If this failed, a caller's wrong claim about a known piece could be published."""
    (tmp_path / "a" / "content").mkdir(parents=True)
    (tmp_path / "a" / "content" / "dense").write_bytes(os.urandom(2 * MiB))
    meta = make_metafile(tmp_path / "a" / "content")
    (tmp_path / "b" / "content").mkdir(parents=True)
    (tmp_path / "b" / "content" / "dense").write_bytes(bytes(meta.piece_length))

    async def scenario() -> None:
        await fetched(meta, tmp_path, [piece == 0 for piece in range(meta.num_pieces)])

    run(scenario())

    assert ["dense"] == [damage.path for damage in verify_content(meta, tmp_path / "b" / "content")]
