"""After a crash, a write is complete or has not happened."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path

import pytest

from torrentdist.bundle.files.durability import (
    as_failure,
    disk_failure,
    disk_failures,
    fsync_dir,
    is_shortage,
    remove_begun,
    sync_filesystem,
    write_durably,
)
from torrentdist.model.errors import TorrentdistError


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    """A reader could see half a file, or a temporary one would stay."""
    path = tmp_path / "state"
    write_durably(path, b"old")
    with path.open("rb") as reader:
        write_durably(path, b"new")
        old = reader.read()

    assert (old, path.read_bytes(), os.listdir(tmp_path)) == (b"old", b"new", ["state"])


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    """A full disk would destroy what was there."""
    (tmp_path / "state").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_durably(tmp_path / "state", b"new")

    assert os.listdir(tmp_path) == ["state"]


def test_a_secret_is_never_readable_by_others(tmp_path: Path) -> None:
    """A key would be readable by everyone until its mode is set."""
    write_durably(tmp_path / "key", b"secret", mode=0o600)

    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


def test_syncing_takes_files_and_directories(tmp_path: Path) -> None:
    """Publishing would fail, or a disk error would count as a success."""
    (tmp_path / "f").touch()
    sync_filesystem(tmp_path)
    sync_filesystem(tmp_path / "f")
    fsync_dir(tmp_path)

    with pytest.raises(FileNotFoundError):
        sync_filesystem(tmp_path / "nothing")
    with pytest.raises(NotADirectoryError):
        fsync_dir(tmp_path / "f")


def test_a_full_disk_has_its_own_error(tmp_path: Path) -> None:
    """A user would be told to check permissions when there is no room."""
    full = disk_failure(OSError(errno.ENOSPC, "No space left on device"), tmp_path / "a" / "b", 10)
    denied = disk_failure(OSError(errno.EACCES, "Permission denied"), tmp_path)

    assert (full.code, full.fields["needed"], full.fields["free"] > 0) == ("disk_full", 10, True)
    assert (denied.code, denied.fields["detail"]) == ("disk_error", "Permission denied")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_says_what_is_needed_and_what_is_there(tmp_path: Path, number: int) -> None:
    """A user does not learn how much to delete, or learns it of another disk."""
    with pytest.raises(TorrentdistError) as caught, disk_failures(tmp_path / "a" / "b", needed=10):
        raise OSError(number, "full")
    free = caught.value.fields["free"]

    assert ("disk_full", 10) == (caught.value.code, caught.value.fields["needed"])
    assert isinstance(free, int)
    assert abs(free - shutil.disk_usage(tmp_path).free) < 2**30


def test_a_failure_names_the_file_that_failed(tmp_path: Path) -> None:
    """A user looks for the failure in a directory with a million files."""
    named = as_failure(OSError(errno.EIO, "broken", "/that/file"), tmp_path)
    unnamed = as_failure(OSError(errno.EIO, "broken"), tmp_path)
    numbered = as_failure(OSError(errno.EIO, "broken", 7), tmp_path)

    assert ["/that/file", str(tmp_path), str(tmp_path)] == [e.fields["path"] for e in (named, unnamed, numbered)]
    assert {("disk_error", "broken")} == {(e.code, e.fields["detail"]) for e in (named, unnamed, numbered)}


def test_a_failure_keeps_what_it_was(tmp_path: Path) -> None:
    """A bug passes for a broken disk, or an error of the table for a bug."""
    known, bug = TorrentdistError("closing", what="x"), ValueError("odd")
    failure = as_failure(bug, tmp_path)

    assert as_failure(known, tmp_path) is known
    assert ("internal", "ValueError: odd", bug) == (failure.code, failure.fields["detail"], failure.__cause__)
    with pytest.raises(ValueError, match="odd"), disk_failures(tmp_path):
        raise bug


def test_a_shortage_of_the_system_is_told_apart() -> None:
    """A bundle is called damaged because the daemon had too many files open."""
    numbers = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ENOSPC)

    assert [True, True, True, False, False] == [is_shortage(OSError(number, "x")) for number in numbers]
    assert (False, False) == (is_shortage(None), is_shortage(ValueError()))


def test_only_what_a_write_had_begun_is_removed(tmp_path: Path) -> None:
    """Every crash leaves a file for ever, or the next start deletes what a user put there."""
    begun = [".state.0123456789ab.tmp", f".{'n' * 64}.0123456789ab.tmp"]
    others = [".state.0123456789a.tmp", "state.0123456789ab.tmp", ".state.0123456789AB.tmp", ".state.tmp", ".tmp"]
    for name in (*begun, *others, f".{'n' * 65}.0123456789ab.tmp", ".state.0123456789ab.tmp2"):
        (tmp_path / name).touch()
    remove_begun(tmp_path)

    assert sorted([*others, f".{'n' * 65}.0123456789ab.tmp", ".state.0123456789ab.tmp2"]) == sorted(
        os.listdir(tmp_path)
    )


def test_a_file_may_have_the_longest_name(tmp_path: Path) -> None:
    """A name that a file system takes leaves no room for the hidden one beside it."""
    write_durably(tmp_path / ("n" * 255), b"new")

    assert ["n" * 255] == os.listdir(tmp_path)
