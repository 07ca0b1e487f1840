"""Reading a file gives its hash, or says what is wrong with it; one bad file does not affect the
others."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from torrentdist.bundle.hashing import FileHash, FileToHash, ReadFault, hash_files

PIECE = 16 * 1024


def test_each_fault_stays_with_its_file(tmp_path: Path) -> None:
    """A file of another kind or size would get a hash, or one damaged file would hide all
    others."""
    names = ["good", "longer", "shorter", "link", "directory", "fifo", "missing", "empty", "last"]
    for name in ("good", "longer", "shorter", "last"):
        (tmp_path / name).write_bytes(b"x" * 10)
    (tmp_path / "empty").touch()
    (tmp_path / "link").symlink_to("good")
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "fifo")
    sizes = {"longer": 9, "shorter": 11, "empty": 0, "fifo": 0}
    files = [FileToHash(os.fsencode(tmp_path / name), sizes.get(name, 10)) for name in names]
    outcomes = dict(zip(names, hash_files(files, PIECE), strict=True))
    expected = FileHash(hashlib.sha256(b"x" * 10).digest(), b"")

    assert (outcomes["good"], outcomes["last"], outcomes["empty"]) == (expected, expected, FileHash(b"", b""))
    assert [type(outcomes[name]) for name in ("longer", "shorter", "directory", "fifo")] == [ReadFault] * 4
    assert [type(outcomes[name]) for name in ("link", "missing")] == [OSError, FileNotFoundError]


def test_a_large_file_that_became_shorter_has_no_hash(tmp_path: Path) -> None:
    """A fault in one stretch of a file would be forgotten by the next one."""
    (tmp_path / "large").write_bytes(bytes(20 * 1024 * 1024))
    (tmp_path / "next").write_bytes(b"x" * 10)
    files = [FileToHash(os.fsencode(tmp_path / "large"), 20 * 1024 * 1024 + 5)]
    files.append(FileToHash(os.fsencode(tmp_path / "next"), 10))
    large, following = hash_files(files, PIECE)

    assert (type(large), type(following)) == (ReadFault, FileHash)
