"""Holes: found in the metafile and made on disk, without changing a byte."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torrentdist.bundle.content_check import finish_content, verify_content
from torrentdist.bundle.files.holes import data_ranges, make_sparse, zero_pieces, zero_runs
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile

KIB = 1024
PIECE = 64 * KIB
NOISE = os.urandom(PIECE)


def bundle(top: Path, **files: bytes) -> Metafile:
    top.mkdir()
    for name, data in files.items():
        (top / name).write_bytes(data)
    return make_metafile(top, piece_length=PIECE)


def disk_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (bytes(4 * PIECE), [(0, 4 * PIECE)]),
        (NOISE + bytes(2 * PIECE) + NOISE, [(PIECE, 3 * PIECE)]),
        (bytes(PIECE) + NOISE + bytes(PIECE + 100), [(0, PIECE), (2 * PIECE, 3 * PIECE + 100)]),
        (NOISE + bytes(PIECE - 1) + b"x" + bytes(PIECE), [(2 * PIECE, 3 * PIECE)]),
        (bytes(3 * PIECE - 1) + b"x", [(0, 2 * PIECE)]),
        (NOISE + bytes(100), []),
        (bytes(PIECE), [(0, PIECE)]),
        (bytes(10), []),
        (NOISE * 3, []),
    ],
)
def test_zeros_are_found_by_their_hashes(tmp_path: Path, data: bytes, expected: list[tuple[int, int]]) -> None:
    """Bytes that are not zeros would be thrown away, or zeros would be stored and sent."""
    meta = bundle(tmp_path / "source", data=data)

    assert expected == [(run.start, run.end) for run in zero_runs(meta)]


def test_pieces_are_counted_as_a_torrent_does(tmp_path: Path) -> None:
    """A receiver would believe that it has pieces that it lacks."""
    meta = bundle(tmp_path / "source", a=NOISE + b"x", b=b"", c=bytes(2 * PIECE) + NOISE, d=b"short", e=bytes(PIECE))

    assert [False, False, True, True, False, False, True] == zero_pieces(meta)
    assert len(zero_pieces(meta)) == meta.num_pieces


def test_content_is_the_same_with_holes(tmp_path: Path) -> None:
    """Freeing the room of zeros would damage a bundle, or free nothing."""
    data = NOISE + bytes(64 * PIECE) + NOISE
    meta = bundle(tmp_path / "source", data=data)
    before = disk_bytes(tmp_path / "source" / "data")
    finish_content(meta, tmp_path / "source")

    assert [] == verify_content(meta, tmp_path / "source")
    assert before >= len(data)
    assert disk_bytes(tmp_path / "source" / "data") <= 4 * PIECE


def test_a_file_that_got_holes_is_not_as_it_was_found(tmp_path: Path) -> None:
    """Marks are made of what was found. If this fails, a host reads large files again each time
    they are handed out."""
    meta = bundle(tmp_path / "source", data=NOISE + bytes(64 * PIECE), dense=NOISE)
    for name in ("data", "dense"):
        (tmp_path / "source" / name).chmod(0o444)
    known = finish_content(meta, tmp_path / "source")

    assert {"dense"} == set(known)
    assert known["dense"].st_ctime_ns == (tmp_path / "source" / "dense").stat().st_ctime_ns


def test_a_sparse_file_holds_nothing_yet(tmp_path: Path) -> None:
    """A receiver would write zeros that its file system need not store."""
    meta = bundle(tmp_path / "source", data=NOISE + bytes(64 * PIECE), dense=NOISE)
    make_sparse(meta, tmp_path / "dest" / "content")
    path = tmp_path / "dest" / "content" / "data"
    with path.open("rb") as file:
        ranges = list(data_ranges(file.fileno(), 65 * PIECE))

    assert [path] == list(path.parent.iterdir())
    assert (65 * PIECE, []) == (path.stat().st_size, ranges)
