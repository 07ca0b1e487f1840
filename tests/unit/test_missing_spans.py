"""Which bytes of a bundle an uploader has to send, given the pieces that the leader has."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from torrentdist.bundle.files.joined_files import write_at
from torrentdist.bundle.metafile import WireFile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.bundle.reuse.missing_spans import LEAST_SKIPPED, MissingSpan, missing_spans, next_span
from torrentdist.model.errors import TorrentdistError
from torrentdist.testing.sample_trees import read_tree, some_bytes, write_tree

TREE = {
    "a": some_bytes(100_000, 1),
    "b": b"",
    "c": some_bytes(10, 2),
    "d": some_bytes(70_000, 3),
    "e": some_bytes(LEAST_SKIPPED, 4),
    "f": some_bytes(5, 5),
}
PIECE = 32 * 1024


def spans_without(tmp_path: Path, known: set[str]) -> list[MissingSpan]:
    write_tree(tmp_path / "bundle", TREE)
    meta = make_metafile(tmp_path / "bundle", piece_length=PIECE)
    have = [file.path in known for file in meta.files for _ in range(0, file.size, PIECE)]
    return missing_spans(meta.wire_files, PIECE, have)


def test_known_files_are_left_out(tmp_path: Path) -> None:
    """An uploader behind a firewall would send a whole environment for one patched package."""
    assert spans_without(tmp_path, {"a", "e"}) == [
        MissingSpan(100_000, 170_010),
        MissingSpan(170_010 + LEAST_SKIPPED, 186_399),
    ]


def test_a_few_known_bytes_are_sent_too(tmp_path: Path) -> None:
    """Each small file would cost a request."""
    assert spans_without(tmp_path, {"c", "f"}) == [MissingSpan(0, 170_010 + LEAST_SKIPPED)]


def test_the_ends_are_right(tmp_path: Path) -> None:
    """An upload would never end, or end before its last byte."""
    assert spans_without(tmp_path, set()) == [MissingSpan(0, 186_399)]
    assert spans_without(tmp_path, set(TREE)) == []
    assert next_span([], 0, 50) == MissingSpan(50, 50)
    assert next_span([MissingSpan(10, 20), MissingSpan(40, 50)], 0, 50) == MissingSpan(10, 20)
    assert next_span([MissingSpan(10, 20), MissingSpan(40, 50)], 15, 50) == MissingSpan(15, 20)
    assert next_span([MissingSpan(10, 20), MissingSpan(40, 50)], 20, 50) == MissingSpan(40, 50)


def test_a_span_begins_with_the_first_piece_that_is_missing() -> None:
    """An upload would send the wrong pieces of a file, and the leader would never have the right
    ones."""
    files = [WireFile(name, name, size, b"") for name, size in (("a", 5), ("b", 3 * PIECE + 7))]
    have = [True, True, False, True, False]

    assert [MissingSpan(5 + PIECE, 5 + 2 * PIECE), MissingSpan(5 + 3 * PIECE, 12 + 3 * PIECE)] == missing_spans(
        files, PIECE, have
    )


def test_bytes_are_written_into_their_files(tmp_path: Path) -> None:
    """Bytes that cross the end of a file would land in the wrong one."""
    write_tree(tmp_path / "bundle", TREE)
    meta = make_metafile(tmp_path / "bundle", piece_length=PIECE)
    whole = b"".join(TREE[file.path] for file in meta.files)
    for start in range(0, len(whole), 60_000):
        write_at(meta, tmp_path / "content", start, whole[start : start + 60_000])

    assert read_tree(tmp_path / "content") == {path: data for path, data in TREE.items() if data}


def test_a_disk_that_becomes_full_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader would count bytes that the disk had no room for, and an upload whose every byte
    was sent would end as damaged."""
    write_tree(tmp_path / "bundle", {"a": TREE["a"]})
    meta = make_metafile(tmp_path / "bundle", piece_length=PIECE)
    write = os.pwrite

    def on_a_small_disk(fd: int, data: memoryview, at: int) -> int:
        if at >= 50_000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data[: 50_000 - at], at)

    monkeypatch.setattr(os, "pwrite", on_a_small_disk)
    with pytest.raises(TorrentdistError) as raised:
        write_at(meta, tmp_path / "content", 0, TREE["a"])

    assert raised.value.code == "disk_full"
