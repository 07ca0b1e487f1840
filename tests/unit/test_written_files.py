"""Files of a bundle are written without touching those of others, read by whom they are for, and
deleted whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torrentdist.bundle.files.deletion import delete, delete_what_goes
from torrentdist.bundle.files.file_modes import owner_only_files
from torrentdist.bundle.files.joined_files import write_at
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.model.errors import TorrentdistError
from torrentdist.testing.sample_trees import read_tree, write_tree

TREE = {"a": b"aaaaa", "b": b"", "d/c": b"ccc", "e": b"eeee"}


@pytest.mark.parametrize(
    ("offset", "data", "expected"),
    [
        (0, b"aaaaaccceeee", TREE | {"b": None}),
        (0, b"aaaaa", {"a": b"aaaaa"}),
        (5, b"ccc", {"d/c": b"ccc"}),
        (4, b"acc", {"a": b"\0\0\0\0a", "d/c": b"cc"}),
        (7, b"cee", {"d/c": b"\0\0c", "e": b"ee"}),
        (11, b"eXXX", {"e": b"\0\0\0e"}),
        (12, b"XXX", {}),
        (3, b"", {}),
    ],
)
def test_bytes_go_to_the_files_that_they_belong_to(
    tmp_path: Path, offset: int, data: bytes, expected: dict[str, bytes | None]
) -> None:
    """A piece at the border of two files is written into the wrong one."""
    write_tree(tmp_path / "source", TREE)
    meta = make_metafile(tmp_path / "source", packed=False)
    write_at(meta, tmp_path / "content", offset, data)
    found = read_tree(tmp_path / "content") if (tmp_path / "content").exists() else {}

    assert {name: content for name, content in expected.items() if content is not None} == found


def test_bytes_go_through_no_symlink(tmp_path: Path) -> None:
    """Somebody who may write into a store has a daemon write into a file of another user."""
    write_tree(tmp_path / "source", TREE)
    meta = make_metafile(tmp_path / "source", packed=False)
    (tmp_path / "victim").write_bytes(b"mine")
    (tmp_path / "content").mkdir()
    (tmp_path / "content" / "a").symlink_to(tmp_path / "victim")
    with pytest.raises(TorrentdistError) as caught:
        write_at(meta, tmp_path / "content", 0, b"aaaaa")

    assert ("disk_error", b"mine") == (caught.value.code, (tmp_path / "victim").read_bytes())


def test_a_file_with_other_names_becomes_one_of_its_own(tmp_path: Path) -> None:
    """A repair of one bundle changes another one, or loses what was right in the file."""
    write_tree(tmp_path / "source", TREE)
    meta = make_metafile(tmp_path / "source", packed=False)
    (tmp_path / "content").mkdir()
    (tmp_path / "other").write_bytes(b"12345")
    os.link(tmp_path / "other", tmp_path / "content" / "a")
    write_at(meta, tmp_path / "content", 1, b"aa")

    assert (b"12345", b"1aa45") == ((tmp_path / "other").read_bytes(), (tmp_path / "content" / "a").read_bytes())
    assert ["a"] == os.listdir(tmp_path / "content")


@pytest.mark.parametrize(
    ("modes", "expected"),
    [({"a": 0o600, "e": 0o400}, 2), ({"a": 0o640}, 0), ({"a": 0o604}, 0), ({"a": 0o611}, 1), ({}, 0)],
)
def test_files_that_only_their_owner_reads_are_counted(tmp_path: Path, modes: dict[str, int], expected: int) -> None:
    """A user is not told that a job of another user cannot read what was downloaded."""
    write_tree(tmp_path / "source", TREE)
    meta = make_metafile(tmp_path / "source")
    single = make_metafile(tmp_path / "source" / "a")
    for name, mode in modes.items():
        (tmp_path / "source" / name).chmod(mode)
    (tmp_path / "source" / "b").unlink()

    assert expected == owner_only_files(meta, tmp_path / "source")
    assert (modes.get("a", 0o644) & 0o044 == 0) == owner_only_files(single, tmp_path / "source" / "a")


def test_what_is_deleted_goes_whole_and_alone(tmp_path: Path) -> None:
    """A user's file goes because a bundle links to it, or read-only directories stay for ever."""
    write_tree(tmp_path / "kept", TREE)
    write_tree(tmp_path / "tree", TREE)
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "file").touch()
    (tmp_path / "tree" / "d").chmod(0o500)
    for name in ("link", "file", "tree", "nothing"):
        delete(tmp_path / name)
    delete_what_goes(tmp_path / "nothing")

    assert (["kept"], TREE) == (os.listdir(tmp_path), read_tree(tmp_path / "kept"))
