"""Old files in a target directory are prepared before the engine fetches the rest."""

from __future__ import annotations

import stat
from pathlib import Path

from torrentdist.bundle.content_check import finish_content
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.swarm.engine.preparation import is_empty_directory, make_writable


def published(content: Path) -> Metafile:
    (content / "dir").mkdir(parents=True)
    (content / "dir" / "file").write_bytes(b"12345")
    (content / "other").write_bytes(b"67890")
    meta = make_metafile(content)
    finish_content(meta, content)
    return meta


def test_only_a_place_without_anything_is_empty_directory(tmp_path: Path) -> None:
    """If this failed, what is there would be overwritten unchecked, or a fresh download would begin
    with a check."""
    (tmp_path / "empty").mkdir()
    published(tmp_path / "full")

    assert [True, True, False] == [is_empty_directory(tmp_path / name) for name in ("missing", "empty", "full")]


def test_published_files_become_writable(tmp_path: Path) -> None:
    """If this failed, a daemon that is not root could never repair a damaged bundle."""
    meta = published(tmp_path / "content")
    (tmp_path / "content" / "dir").chmod(0o555)
    make_writable(meta, tmp_path)
    paths = ["dir", "dir/file", "other"]

    assert [0o755, 0o644, 0o644] == [stat.S_IMODE((tmp_path / "content" / path).stat().st_mode) for path in paths]


def test_what_is_too_long_is_cut(tmp_path: Path) -> None:
    """If this failed, a repaired file would keep surplus bytes, which libtorrent does not check."""
    meta = published(tmp_path / "content")
    (tmp_path / "content" / "other").chmod(0o644)
    (tmp_path / "content" / "other").write_bytes(b"67890 and more")
    make_writable(meta, tmp_path)

    assert b"67890" == (tmp_path / "content" / "other").read_bytes()


def test_a_symlink_in_the_way_is_removed_and_not_followed(tmp_path: Path) -> None:
    """If this failed, a user who can write into a store could make the daemon overwrite any
    file."""
    meta = published(tmp_path / "content")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_bytes(b"not to be touched")
    (tmp_path / "outside" / "file").chmod(0o400)
    (tmp_path / "content" / "other").unlink()
    (tmp_path / "content" / "other").symlink_to(tmp_path / "outside" / "file")
    (tmp_path / "content" / "dir" / "file").unlink()
    (tmp_path / "content" / "dir").rmdir()
    (tmp_path / "content" / "dir").symlink_to(tmp_path / "outside")
    make_writable(meta, tmp_path)

    assert b"not to be touched" == (tmp_path / "outside" / "file").read_bytes()
    assert 0o400 == stat.S_IMODE((tmp_path / "outside" / "file").stat().st_mode)
    assert [] == list((tmp_path / "content").iterdir())
