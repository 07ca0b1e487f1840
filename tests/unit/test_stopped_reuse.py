"""Taking files of this host into an arriving bundle ends soon after a stop. What was not compared
is removed."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from torrentdist.bundle.metafile import FileEntry
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.bundle.reuse.chunker import can_cut, cut_file
from torrentdist.bundle.reuse.directory_sources import fill_from_directories, held_by_directory
from torrentdist.testing.sample_trees import read_tree, some_bytes, write_tree

OLD = {"a": some_bytes(300_000, 1), "b": b"small", "c": some_bytes(70_000, 2)}


class Patience:
    """Says so many times that the work shall go on."""

    def __init__(self, times: int) -> None:
        self.left = times

    def __call__(self) -> bool:
        self.left -= 1
        return self.left >= 0


def test_a_stop_comes_in_the_middle_of_a_large_file(tmp_path: Path) -> None:
    """`download --timeout` and Ctrl-C would wait until all known files are read, for minutes."""
    size = 512 * 1024 * 1024
    write_tree(tmp_path / "new", OLD)
    (tmp_path / "known").mkdir()
    (tmp_path / "known" / "large").touch()
    os.truncate(tmp_path / "known" / "large", size)
    entry = FileEntry("large", size, bytes(32), False)
    meta = msgspec.structs.replace(make_metafile(tmp_path / "new"), files=(entry,))
    go_on = Patience(4)
    _, held = held_by_directory(tmp_path / "known", meta, go_on)

    assert [] == list(held)
    assert -1 == go_on.left


@pytest.mark.parametrize("times", range(20))
def test_a_stop_leaves_no_file_that_nobody_compared(tmp_path: Path, times: int) -> None:
    """A file that was cloned and not compared yet would lie there as if it had arrived."""
    write_tree(tmp_path / "old", OLD)
    meta = make_metafile(tmp_path / "old")
    held = held_by_directory(tmp_path / "old", meta)
    content = tmp_path / "content"
    content.mkdir()
    filling = fill_from_directories(meta, content, [held], Patience(times), lambda done: None)

    assert filling.size == sum(len(data) for data in read_tree(content).values())


@pytest.mark.skipif(not can_cut(), reason="the library that cuts files is not here")
def test_a_stop_comes_while_a_file_is_cut(tmp_path: Path) -> None:
    """A download would read a large older file to its end before it stops."""
    (tmp_path / "large").write_bytes(some_bytes(8_000_000, 3))

    assert None is cut_file(os.fsencode(tmp_path / "large"), Patience(3))
