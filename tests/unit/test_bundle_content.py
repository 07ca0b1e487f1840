"""Content on disk is completed and compared without trusting anything that is already there."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from torrentdist.bundle.content_check import Damage, finish_content, same_content, verify_content, verify_copy
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.model.errors import TorrentdistError

BIG = 5 * 1024 * 1024


@pytest.fixture
def meta(tmp_path: Path) -> Metafile:
    source = tmp_path / "source"
    (source / "d" / "e").mkdir(parents=True)
    (source / "void" / "inner").mkdir(parents=True)
    (source / "big").write_bytes(bytes(range(256)) * (BIG // 256))
    (source / "d" / "run").write_bytes(b"#!/bin/sh\n")
    (source / "d" / "run").chmod(0o755)
    (source / "d" / "e" / "empty").touch()
    (source / "link").symlink_to("d/e")
    (source / "d" / "up").symlink_to("../big")
    return make_metafile(source)


def arrived(meta: Metafile, source: Path, content: Path) -> Path:
    """Writes what a swarm leaves: the bytes of all files that are not empty."""
    content.mkdir()
    for file in meta.files:
        if file.size:
            (content / file.path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / file.path, content / file.path)
    return content


@pytest.fixture
def content(meta: Metafile, tmp_path: Path) -> Path:
    return arrived(meta, tmp_path / "source", tmp_path / "content")


@pytest.fixture
def finished(meta: Metafile, content: Path) -> Path:
    finish_content(meta, content)
    return content


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_finishing_completes_what_the_swarm_cannot_carry(meta: Metafile, finished: Path) -> None:
    """Symlinks, empty files and directories, or modes would be lost on the way."""

    assert verify_content(meta, finished) == []
    assert tuple(mode(finished / path) for path in ("big", "d/run", "d/e/empty")) == (0o444, 0o555, 0o444)
    assert tuple(mode(finished / path) for path in ("", "d", "void/inner")) == (0o755, 0o755, 0o755)
    assert (os.readlink(finished / "link"), os.readlink(finished / "d" / "up")) == ("d/e", "../big")


def test_finishing_twice_changes_nothing(meta: Metafile, finished: Path) -> None:
    """A daemon that crashed after this step could not repeat it."""
    finish_content(meta, finished)

    assert verify_content(meta, finished) == []


def test_leftovers_are_removed(meta: Metafile, content: Path) -> None:
    """What another program left would be published as part of the bundle."""
    (content / "extra").write_bytes(b"x")
    (content / "d" / "old" / "deep").mkdir(parents=True)
    (content / "d" / "old" / "deep" / "f").write_bytes(b"x")
    (content / "link").write_bytes(b"no link")
    (content / "void").symlink_to("d")
    (content / "d" / "up").symlink_to("elsewhere")
    os.mkfifo(content / "pipe")
    with open(os.fsencode(content) + b"/\xff", "wb"):
        pass
    finish_content(meta, content)

    assert verify_content(meta, content) == []


def test_no_symlink_is_followed_while_finishing(meta: Metafile, content: Path, tmp_path: Path) -> None:
    """A planted symlink would make the cleanup delete or change another user's files."""
    outside = tmp_path / "outside"
    (outside / "e").mkdir(parents=True)
    (outside / "precious").write_bytes(b"x")
    (outside / "run").write_bytes(b"x")
    (outside / "run").chmod(0o600)
    shutil.rmtree(content / "d")
    (content / "d").symlink_to(outside)
    (content / "void").symlink_to(outside)
    (content / "extra").symlink_to(outside)
    (content / "big").unlink()
    (content / "big").symlink_to(outside / "precious")
    finish_content(meta, content)

    assert (sorted(os.listdir(outside)), os.listdir(outside / "e")) == (["e", "precious", "run"], [])
    assert (mode(outside / "run"), (outside / "precious").read_bytes()) == (0o600, b"x")
    assert [damage.path for damage in verify_content(meta, content)] == ["big", "d/run"]


def test_a_content_directory_that_is_a_symlink_is_refused(meta: Metafile, content: Path, tmp_path: Path) -> None:
    """Finishing would clean up whatever the symlink points to."""
    (content / "precious").touch()
    (tmp_path / "alias").symlink_to(content)
    with pytest.raises(TorrentdistError) as caught:
        finish_content(meta, tmp_path / "alias")

    assert (caught.value.code, (content / "precious").exists()) == ("disk_error", True)


def flip(path: Path, offset: int) -> None:
    path.chmod(0o644)
    with path.open("r+b") as out:
        out.seek(offset)
        byte = out.read(1)
        out.seek(offset)
        out.write(bytes([byte[0] ^ 1]))
    path.chmod(0o444)


def replace_by(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
        make(path)

    return apply


DAMAGE: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "first byte": ("big", lambda path: flip(path, 0), "do not match"),
    "last byte": ("big", lambda path: flip(path, BIG - 1), "do not match"),
    "byte in the middle": ("big", lambda path: flip(path, 4 * 1024 * 1024), "do not match"),
    "shorter": ("big", lambda path: os.truncate(path, BIG - 1), "bytes instead of"),
    "longer": ("big", lambda path: os.truncate(path, BIG + 1), "bytes instead of"),
    "empty file grew": ("d/e/empty", lambda path: os.truncate(path, 1), "1 bytes instead of 0"),
    "file missing": ("big", lambda path: path.unlink(), "missing"),
    "empty file missing": ("d/e/empty", lambda path: path.unlink(), "missing"),
    "executable bit lost": ("d/run", lambda path: path.chmod(0o444), "executable"),
    "executable bit gained": ("big", lambda path: path.chmod(0o555), "executable"),
    "symlink missing": ("link", lambda path: path.unlink(), "missing"),
    "symlink elsewhere": ("link", replace_by(lambda path: path.symlink_to("d")), "target"),
    "symlink became a file": ("link", replace_by(lambda path: path.touch()), "instead of a symlink"),
    "file became a symlink": ("d/run", replace_by(lambda path: path.symlink_to("../big")), "instead of a file"),
    "file became a fifo": ("big", replace_by(lambda path: os.mkfifo(path)), "fifo instead of a file"),
    "file became a directory": ("big", replace_by(lambda path: path.mkdir()), "directory instead of a file"),
    "empty directory missing": ("void/inner", lambda path: path.rmdir(), "missing"),
    "empty directory is used": ("void/inner/x", lambda path: path.touch(), "not in the bundle"),
    "extra directory": ("extra", lambda path: path.mkdir(), "not in the bundle"),
    "extra symlink": ("d/extra", lambda path: path.symlink_to("/"), "not in the bundle"),
}


@pytest.mark.parametrize(("path", "damage", "said"), DAMAGE.values(), ids=DAMAGE.keys())
@pytest.mark.case("E5")
def test_every_damage_is_found_and_named(
    meta: Metafile, finished: Path, path: str, damage: Callable[[Path], object], said: str
) -> None:
    """Content that is not what was uploaded would be served."""
    damage(finished / path)
    [found] = verify_content(meta, finished)

    assert (path, True) == (found.path, said in found.reason)
    assert not same_content(meta, finished)


def test_a_missing_content_directory_is_damage(meta: Metafile, tmp_path: Path) -> None:
    """A wiped disk would raise an unexpected exception, or pass."""
    (tmp_path / "file").touch()

    assert [damage.path for damage in verify_content(meta, tmp_path / "nothing")] == ["."]
    assert [Damage(".", "it is no directory")] == verify_content(meta, tmp_path / "file")


def test_verifying_reads_every_byte_and_says_so(meta: Metafile, finished: Path) -> None:
    """A scrub would show no progress."""
    seen: list[tuple[int, int]] = []
    verify_content(meta, finished, lambda done, total: seen.append((done, total)))

    assert (meta.size, meta.size) == seen[-1]


def test_a_single_file_is_compared_where_it_lies(tmp_path: Path) -> None:
    """`download` would refuse, or overwrite, a file that is already there."""
    (tmp_path / "job.py").write_bytes(b"print()")
    meta = make_metafile(tmp_path / "job.py")
    content = tmp_path / "content"
    content.mkdir()
    shutil.copy(tmp_path / "job.py", content / "job.py")
    shutil.copy(tmp_path / "job.py", tmp_path / "renamed.py")
    finish_content(meta, content)

    assert verify_content(meta, content) == []
    assert (same_content(meta, tmp_path / "job.py"), same_content(meta, tmp_path / "renamed.py")) == (True, True)
    assert (same_content(meta, content), same_content(meta, tmp_path / "nothing")) == (False, False)
    (tmp_path / "renamed.py").write_bytes(b"Print()")
    assert [damage.path for damage in verify_copy(meta, tmp_path / "renamed.py")] == ["job.py"]


def test_a_directory_is_the_same_wherever_it_lies(meta: Metafile, finished: Path, tmp_path: Path) -> None:
    """A second download to the same place would fail instead of having nothing to do."""

    assert (same_content(meta, tmp_path / "source"), same_content(meta, finished)) == (True, True)
    assert (same_content(meta, tmp_path / "nothing"), same_content(meta, finished / "big")) == (False, False)
