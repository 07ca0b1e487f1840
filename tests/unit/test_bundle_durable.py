"""After a crash, a write is complete or has not happened."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from torrentdist.bundle.files.durability import disk_failure, fsync_dir, sync_filesystem, write_durably


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
