"""One file is copied: every byte of it, with its holes, and nothing that is no such file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from torrentdist.bundle.file_tree import FileEntry
from torrentdist.bundle.files.file_cloner import FileCloner, copy_some, link_file
from torrentdist.bundle.files.shared_blocks import DiskUse, disk_use, total_bytes
from torrentdist.model.errors import TorrentdistError
from torrentdist.testing.sample_trees import some_bytes

KIB = 1024
SMALL = 64 * KIB


def entry(size: int, *, executable: bool = False) -> FileEntry:
    return FileEntry(path="the/file", size=size, root=b"", executable=executable)


def clone(file: FileEntry, source: Path, target: Path, *, links: bool = False) -> int:
    """Returns the bytes of all steps."""
    return sum(FileCloner(links=links).clone(file, os.fsencode(source), os.fsencode(target)))


@pytest.mark.parametrize("executable", [False, True])
@pytest.mark.parametrize("size", [0, 1, SMALL - 1, SMALL, SMALL + 1, 9 * KIB * KIB])
def test_a_copy_has_every_byte(tmp_path: Path, size: int, executable: bool) -> None:
    """A file whose size is at a limit loses its end, or its owner cannot write to it."""
    source, target, data = tmp_path / "source", tmp_path / "target", some_bytes(size, 1)
    source.write_bytes(data)
    steps = clone(entry(size, executable=executable), source, target)

    assert (size, data) == (steps, target.read_bytes())
    assert (0o755 if executable else 0o644) == stat.S_IMODE(target.stat().st_mode)


@pytest.mark.parametrize(("begin", "end"), [(0, 3), (3, 8), (4, 4), (0, 8)])
def test_holes_count_as_copied(tmp_path: Path, begin: int, end: int) -> None:
    """The progress of a sparse file never reaches its end, or bytes beside a hole are lost."""
    source, target, size = tmp_path / "source", tmp_path / "target", 8 * SMALL + 5
    with source.open("wb") as file:
        file.seek(begin * SMALL)
        file.write(b"x" * ((end - begin) * SMALL))
        file.truncate(size)
    steps = clone(entry(size), source, target)

    assert (size, source.read_bytes()) == (steps, target.read_bytes())
    assert target.stat().st_blocks <= source.stat().st_blocks


@pytest.mark.parametrize("size", [10, 2 * SMALL])
def test_a_file_of_another_size_is_no_source(tmp_path: Path, size: int) -> None:
    """A part of a file passes for the whole, and a user's job runs with it."""
    (tmp_path / "source").write_bytes(b"x" * (size - 1))
    with pytest.raises(TorrentdistError) as caught:
        clone(entry(size), tmp_path / "source", tmp_path / "target")

    assert ("corrupt", "the/file") == (caught.value.code, caught.value.fields["path"])
    assert f"it has {size - 1} bytes instead of {size} bytes" == caught.value.fields["detail"]
    assert ["source"] == os.listdir(tmp_path)


@pytest.mark.parametrize("size", [0, 10, 2 * SMALL])
def test_what_is_no_file_is_no_source(tmp_path: Path, size: int) -> None:
    """A download waits for ever for somebody who writes into a fifo, or copies a stranger's
    file."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "secret").write_bytes(b"x" * size)
    (tmp_path / "link").symlink_to("secret")
    with pytest.raises(TorrentdistError, match="it is no file"):
        clone(entry(size), tmp_path / "fifo", tmp_path / "target")
    with pytest.raises(OSError, match="symbolic"):
        clone(entry(size), tmp_path / "link", tmp_path / "target")

    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("size", [0, 10, 2 * SMALL])
def test_a_copy_replaces_nothing(tmp_path: Path, size: int) -> None:
    """A copy destroys the file that another program has just written."""
    (tmp_path / "source").write_bytes(b"x" * size)
    (tmp_path / "target").write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        clone(entry(size), tmp_path / "source", tmp_path / "target")

    assert b"mine" == (tmp_path / "target").read_bytes()


@pytest.mark.parametrize(
    ("mode", "executable", "size", "links"),
    [
        (0o444, False, 5, True),
        (0o555, True, 5, True),
        (0o644, False, 5, False),
        (0o464, False, 5, False),
        (0o446, False, 5, False),
        (0o444, True, 5, False),
        (0o555, False, 5, False),
        (0o444, False, 4, False),
    ],
)
def test_only_a_sealed_file_gets_a_second_name(
    tmp_path: Path, mode: int, executable: bool, size: int, links: bool
) -> None:
    """A write into one bundle changes another one of the same store."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"12345")
    source.chmod(mode)
    linked = link_file(entry(size, executable=executable), os.fsencode(source), os.fsencode(target))

    assert (links, links) == (linked, target.exists())
    assert (2 if links else 1) == source.stat().st_nlink


def test_what_cannot_be_linked_is_copied(tmp_path: Path) -> None:
    """A store fails to take a known file whose name has been taken, or that has just gone."""
    source, target, link = tmp_path / "source", tmp_path / "target", tmp_path / "link"
    source.write_bytes(b"12345")
    source.chmod(0o444)
    link.symlink_to("source")
    target.touch()
    pairs = [(source, target), (tmp_path / "gone", tmp_path / "new"), (link, tmp_path / "new")]

    assert [False] * 3 == [link_file(entry(5), os.fsencode(a), os.fsencode(b)) for a, b in pairs]
    with pytest.raises(NotADirectoryError):
        link_file(entry(5), os.fsencode(source), os.fsencode(target / "below"))


@pytest.mark.parametrize("links", [False, True])
def test_links_are_made_where_they_are_wanted(tmp_path: Path, links: bool) -> None:
    """A user's download is a second name of the store's file."""
    source = tmp_path / "source"
    source.write_bytes(b"12345")
    source.chmod(0o444)
    steps = [clone(entry(5), source, tmp_path / name, links=links) for name in ("a", "b")]

    assert [5, 5] == steps
    assert source.stat().st_nlink in ((1, 3) if links else (1,))


@pytest.mark.parametrize(
    ("start", "length", "copied"), [(0, 5, b"01234"), (3, 4, b"3456"), (8, 4, b"89"), (10, 4, b"")]
)
def test_a_part_goes_to_its_place(tmp_path: Path, start: int, length: int, copied: bytes) -> None:
    """A bundle that is made of parts of an older one gets them at other places."""
    (tmp_path / "source").write_bytes(b"0123456789")
    (tmp_path / "target").write_bytes(b"." * 20)
    with (tmp_path / "source").open("rb") as source, (tmp_path / "target").open("rb+") as target:
        count = copy_some(source.fileno(), target.fileno(), start, 6, length)

    assert len(copied) == count
    assert b"." * 6 + copied + b"." * (14 - len(copied)) == (tmp_path / "target").read_bytes()


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([0, 10], [20, 5], 15),
        ([0, 10], [10, 5], 15),
        ([0, 10], [9, 5], 14),
        ([0, 100], [10, 5], 100),
        ([20, 5], [0, 10, 24, 6], 20),
        ([], [], 0),
    ],
)
def test_a_shared_block_counts_once(first: list[int], second: list[int], expected: int) -> None:
    """A store evicts bundles although there is room, or fills the disk."""
    one = DiskUse(own=1000, shared=first, linked={1: 100, 2: 200})
    other = DiskUse(own=3000, shared=second, linked={2: 200, 3: 400})

    assert 4000 + 700 + expected == total_bytes([one, other])


def test_linked_files_count_once_and_the_others_are_own(tmp_path: Path) -> None:
    """A store believes that deleting a bundle frees what other bundles still use."""
    for name in ("a/own", "a/linked", "b/own"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(some_bytes(SMALL, 1))
    os.link(tmp_path / "a/linked", tmp_path / "b/linked")
    os.sync()
    found = (tmp_path / "a/linked").stat()
    use = disk_use(tmp_path / "a", tmp_path / "b", tmp_path / "nothing", clones=False)

    assert ({found.st_ino: found.st_blocks * 512}, 2 * found.st_blocks * 512) == (use.linked, use.own)
    assert [] == list(use.shared)
