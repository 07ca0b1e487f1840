"""A destination gets a whole bundle or nothing, and never loses what was there."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest
from reflink_disk import with_reflinks  # noqa: F401

from torrentdist.bundle.content_check import finish_content, verify_copy
from torrentdist.bundle.files.copying import place_content, replace_content
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.model.errors import TorrentdistError
from torrentdist.testing.sample_trees import write_tree

MIB = 1024 * 1024
SHM = Path("/dev/shm")


@pytest.fixture
def content(tmp_path: Path) -> Path:
    content = tmp_path / "content"
    (content / "d" / "void").mkdir(parents=True)
    (content / "d" / "run").write_bytes(b"#!/bin/sh\n")
    (content / "d" / "run").chmod(0o755)
    (content / "data").write_bytes(b"x" * 20_000_000)
    (content / "empty").touch()
    (content / "link").symlink_to("d/run")
    return content


@pytest.fixture
def meta(content: Path) -> Metafile:
    meta = make_metafile(content)
    finish_content(meta, content)
    return meta


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A directory on another file system."""
    if not SHM.is_dir() or SHM.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system to write to")
    path = Path(mkdtemp(dir=SHM, prefix="torrentdist-test-"))
    yield path
    shutil.rmtree(path)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def refused(meta: Metafile, content: Path, dest: Path) -> str:
    with pytest.raises(TorrentdistError) as caught:
        place_content(meta, content, dest)
    return caught.value.code


def test_a_copy_is_the_bundle(meta: Metafile, content: Path, tmp_path: Path) -> None:
    """A user would get something else than was uploaded, or the hidden working directory would
    stay."""
    (tmp_path / "out").mkdir()
    seen: list[tuple[int, int]] = []
    place_content(meta, content, tmp_path / "out" / "dest", lambda done, total: seen.append((done, total)))

    assert verify_copy(meta, tmp_path / "out" / "dest") == []
    assert os.listdir(tmp_path / "out") == ["dest"]
    assert (meta.size, meta.size) == seen[-1]
    assert 0o755 == mode(tmp_path / "out" / "dest") == mode(tmp_path / "out" / "dest" / "d" / "void")


@pytest.mark.case("G2")
def test_a_copy_shares_no_file_with_its_source(meta: Metafile, content: Path, tmp_path: Path) -> None:
    """A user who edits a copy would change the bundle in the store."""
    place_content(meta, content, tmp_path / "dest")
    for path in (tmp_path / "dest" / "data", tmp_path / "dest" / "d" / "run"):
        path.write_bytes(b"mine")

    assert (mode(tmp_path / "dest" / "data"), mode(tmp_path / "dest" / "d" / "run")) == (0o644, 0o755)
    assert (mode(content / "data"), mode(content / "d" / "run")) == (0o444, 0o555)
    assert [] == verify_copy(meta, content)
    assert [1, 1] == [(content / name).stat().st_nlink for name in ("data", "d/run")]


@pytest.mark.parametrize(
    ("umask", "modes"), [(0o022, (0o755, 0o644)), (0o077, (0o700, 0o600)), (0o027, (0o750, 0o640))]
)
def test_a_copy_is_closed_to_whom_the_umask_shuts_out(
    meta: Metafile, content: Path, tmp_path: Path, umask: int, modes: tuple[int, int]
) -> None:
    """A key of mode 0400 became readable for every user of the host, whatever its new owner's
    umask."""
    before = os.umask(umask)
    try:
        place_content(meta, content, tmp_path / "copy")
    finally:
        os.umask(before)
    tops = [tmp_path / "copy", *(tmp_path / "copy" / path for path in meta.directories)]
    files = {file.executable: mode(tmp_path / "copy" / file.path) for file in meta.files}

    assert {modes[0]} == {mode(top) for top in tops}
    assert {True: modes[0], False: modes[1]} == files


@pytest.mark.parametrize(
    ("mode_there", "mode_here"),
    [(0o400, 0o400), (0o600, 0o600), (0o500, 0o500), (0o750, 0o750), (0o444, 0o444), (0o666, 0o644), (0o4711, 0o711)],
)
def test_a_copy_keeps_what_a_mode_closes(tmp_path: Path, mode_there: int, mode_here: int) -> None:
    """A key of mode 0400 became readable for every user of the host."""
    (tmp_path / "source").mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / "source" / name).write_bytes(name.encode())
    (tmp_path / "source" / "b").chmod(mode_there)
    meta = make_metafile(tmp_path / "source")
    finish_content(meta, tmp_path / "source")
    place_content(meta, tmp_path / "source", tmp_path / "copy")

    assert [0o644, mode_here, 0o644] == [mode(tmp_path / "copy" / name) for name in ("a", "b", "c")]


def test_modes_stand_beside_what_the_digest_covers(tmp_path: Path) -> None:
    """Two people with another umask would make two versions of one commit."""
    digests, modes = set(), []
    for name, mode in (("a", 0o644), ("b", 0o600), ("c", 0o644)):
        write_tree(tmp_path / name, {f"f{number}": b"x" * 100 for number in range(200)})
        (tmp_path / name / "f7").chmod(mode)
        meta = make_metafile(tmp_path / name)
        digests.add(meta.digest)
        modes.append(len(meta.modes) // 2)
    old = make_metafile(tmp_path / "b", packed=False)

    assert 1 == len(digests)
    assert [0, 3, 0] == modes
    assert () == old.modes


def disk_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512


@pytest.fixture
def sparse(tmp_path: Path) -> Path:
    """64 MiB of holes with 4 KiB of data in the middle and at the end."""
    (tmp_path / "sparse").mkdir()
    path = tmp_path / "sparse" / "data"
    with path.open("wb") as file:
        file.seek(32 * MIB)
        file.write(os.urandom(4096))
        file.seek(64 * MIB - 4096)
        file.write(os.urandom(4096))
        file.truncate(80 * MIB)
    if disk_bytes(path) > MIB:
        pytest.skip("this file system keeps no holes")
    return tmp_path / "sparse"


def test_a_copy_keeps_holes(sparse: Path, elsewhere: Path) -> None:
    """A sparse file of 1 TiB would fill the disk that it is downloaded to."""
    meta = make_metafile(sparse)
    seen: list[tuple[int, int]] = []
    place_content(meta, sparse, elsewhere / "dest", lambda done, total: seen.append((done, total)))

    assert [] == verify_copy(meta, elsewhere / "dest")
    assert disk_bytes(elsewhere / "dest" / "data") <= MIB
    assert (80 * MIB, 80 * MIB) == seen[-1]


def test_a_reflink_takes_no_room_and_shares_nothing(with_reflinks: Path) -> None:  # noqa: F811
    """A host would store the bytes of each bundle twice, or a user's edit would reach the store."""
    content = with_reflinks / "content"
    content.mkdir()
    (content / "data").write_bytes(os.urandom(100 * MIB))
    meta = make_metafile(content)
    os.sync()
    before = shutil.disk_usage(with_reflinks).free
    place_content(meta, content, with_reflinks / "dest")
    os.sync()
    taken = before - shutil.disk_usage(with_reflinks).free
    (with_reflinks / "dest" / "data").write_bytes(b"mine")

    assert taken < 10 * MIB
    assert [] == verify_copy(meta, content)


def test_another_file_system_gets_a_copy_of_its_own(meta: Metafile, content: Path, elsewhere: Path) -> None:
    """A download to another disk would fail, or give files that their owner cannot write."""
    seen: list[tuple[int, int]] = []
    place_content(meta, content, elsewhere / "dest", lambda done, total: seen.append((done, total)))

    assert verify_copy(meta, elsewhere / "dest") == []
    assert (mode(elsewhere / "dest" / "data"), mode(elsewhere / "dest" / "d" / "run")) == (0o644, 0o755)
    assert (meta.size, meta.size) == seen[-1]
    assert len(seen) > meta.file_count


def test_a_source_of_another_size_is_corrupt(meta: Metafile, content: Path, elsewhere: Path) -> None:
    """A truncated source would give a truncated copy and call it done."""
    os.truncate(content / "data", 10)

    assert refused(meta, content, elsewhere / "dest") == "corrupt"
    assert os.listdir(elsewhere) == []


@pytest.mark.parametrize("name", ["job.py", "n" * 255, "é" * 127])
def test_a_single_file_becomes_a_file(tmp_path: Path, name: str) -> None:
    """A bundle that is one file would become a directory, or a long name would leave no room for
    the hidden name beside it."""
    content = tmp_path / "content"
    content.mkdir()
    (content / name).write_bytes(b"print()")
    meta = make_metafile(content / name)
    place_content(meta, content, tmp_path / name)

    assert (verify_copy(meta, tmp_path / name), (tmp_path / name).read_bytes()) == ([], b"print()")
    assert sorted([name, "content"]) == sorted(os.listdir(tmp_path))
    assert refused(meta, content, tmp_path / name) == "dest_exists"
    (tmp_path / "folder").mkdir()
    assert refused(meta, content, tmp_path / "folder") == "dest_exists"


@pytest.mark.parametrize("what", ["file", "directory", "symlink", "dangling"])
def test_what_is_there_is_not_overwritten(meta: Metafile, content: Path, tmp_path: Path, what: str) -> None:
    """A download would destroy a user's files."""
    dest = tmp_path / "dest"
    (tmp_path / "target").mkdir()
    if what == "file":
        dest.write_bytes(b"mine")
    elif what == "directory":
        dest.mkdir()
        (dest / "mine").touch()
    else:
        dest.symlink_to("target" if what == "symlink" else "nowhere")
    before = dest.lstat()
    seen: list[int] = []
    with pytest.raises(TorrentdistError) as caught:
        place_content(meta, content, dest, lambda done, _total: seen.append(done))

    assert (caught.value.code, seen) == ("dest_exists", [])
    assert (before.st_ino, before.st_mtime_ns) == (dest.lstat().st_ino, dest.lstat().st_mtime_ns)
    assert sorted(os.listdir(tmp_path)) == ["content", "dest", "target"]


def test_an_empty_directory_is_filled(meta: Metafile, content: Path, tmp_path: Path) -> None:
    """`mkdir out; torrentdist download ID out` would be refused."""
    (tmp_path / "dest").mkdir()
    place_content(meta, content, tmp_path / "dest")

    assert verify_copy(meta, tmp_path / "dest") == []


def test_a_destination_that_appears_meanwhile_is_kept(meta: Metafile, content: Path, tmp_path: Path) -> None:
    """Two downloads to one place would destroy what the first one put there."""
    dest = tmp_path / "dest"

    def appear(_done: int, _total: int) -> None:
        dest.mkdir(exist_ok=True)
        (dest / "mine").touch()

    with pytest.raises(TorrentdistError) as caught:
        place_content(meta, content, dest, appear)

    assert (caught.value.code, os.listdir(dest)) == ("dest_exists", ["mine"])


def test_a_file_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    """A rename would replace a file that another program has just written."""
    content = tmp_path / "content"
    content.mkdir()
    (content / "job.py").write_bytes(b"print()")
    meta = make_metafile(content / "job.py")
    dest = tmp_path / "dest"

    def appear(_done: int, _total: int) -> None:
        dest.write_bytes(b"mine")

    with pytest.raises(TorrentdistError) as caught:
        place_content(meta, content, dest, appear)

    assert (caught.value.code, dest.read_bytes()) == ("dest_exists", b"mine")


def test_replacing_removes_what_was_there(meta: Metafile, content: Path, tmp_path: Path) -> None:
    """--force would mix old and new content, or leave a copy of the old one."""
    (tmp_path / "dest").mkdir()
    (tmp_path / "dest" / "old").touch()
    replace_content(meta, content, tmp_path / "dest")

    assert verify_copy(meta, tmp_path / "dest") == []
    assert sorted(os.listdir(tmp_path)) == ["content", "dest"]


def test_a_failed_build_leaves_the_old_content(meta: Metafile, content: Path, tmp_path: Path) -> None:
    """--force would destroy the old content and then fail to bring the new one."""
    (tmp_path / "dest").write_bytes(b"old")
    (content / "data").unlink()
    with pytest.raises(TorrentdistError) as caught:
        replace_content(meta, content, tmp_path / "dest")

    assert (caught.value.code, (tmp_path / "dest").read_bytes()) == ("disk_error", b"old")
    assert sorted(os.listdir(tmp_path)) == ["content", "dest"]


def test_old_content_that_a_crash_left_aside_is_kept(meta: Metafile, content: Path, tmp_path: Path) -> None:
    """A crash between two renames, and then a failed download, would destroy the old content."""
    aside = tmp_path / ".dest.torrentdist-crashed" / "replaced"
    aside.parent.mkdir()
    aside.write_bytes(b"old")
    (content / "data").rename(content / "gone")
    with pytest.raises(TorrentdistError):
        replace_content(meta, content, tmp_path / "dest")
    kept = aside.read_bytes()
    (content / "gone").rename(content / "data")
    replace_content(meta, content, tmp_path / "dest")
    replace_content(meta, content, tmp_path / "dest")

    assert b"old" == kept
    assert ["content", "dest"] == sorted(os.listdir(tmp_path))


def test_what_a_crash_left_is_removed_and_what_is_at_work_is_not(meta: Metafile, content: Path, tmp_path: Path) -> None:
    """Every crash would cost the room of a bundle, or one download would destroy another."""
    stale, busy, foreign = (tmp_path / f".dest.torrentdist-{end}" for end in ("stale", "busy", "file"))
    (stale / "content").mkdir(parents=True)
    busy.mkdir()
    foreign.touch()
    lock = os.open(busy, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    place_content(meta, content, tmp_path / "dest")
    os.close(lock)

    assert (stale.exists(), busy.exists(), foreign.exists()) == (False, True, True)


def test_a_destination_needs_its_directory(meta: Metafile, content: Path, tmp_path: Path) -> None:
    """A typing error in a path would create directories."""

    assert refused(meta, content, tmp_path / "no" / "dest") == "path_not_found"


def test_a_relative_destination_is_taken(
    meta: Metafile, content: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`download ID .` in an empty directory would end in an error of the operating system."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    place_content(meta, content, Path("."))

    assert verify_copy(meta, tmp_path / "here") == []
