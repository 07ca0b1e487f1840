"""New content takes the place of old content, or the old content stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torrentdist.bundle.files.durability import swap, swap_in_steps

Swap = Callable[[Path, Path, Path], None]
EITHER = pytest.mark.parametrize("put", [swap, swap_in_steps])


@EITHER
@pytest.mark.parametrize("old_is_file", [True, False])
def test_both_contents_are_kept(tmp_path: Path, put: Swap, old_is_file: bool) -> None:
    """`download --force` would mix two contents, or fail if one is a file and one a directory."""
    dest, built, aside = tmp_path / "dest", tmp_path / "built", tmp_path / "aside"
    if old_is_file:
        dest.write_text("old")
        built.mkdir()
    else:
        dest.mkdir()
        built.write_text("new")
    put(built, dest, aside)

    assert (True, old_is_file, not old_is_file) == (not built.exists(), aside.is_file(), aside.is_dir())
    assert (old_is_file, not old_is_file) == (dest.is_dir(), dest.is_file())


@EITHER
def test_old_content_stays_if_the_new_cannot_be_moved(tmp_path: Path, put: Swap) -> None:
    """`download --force` would lose the old content and bring no new one."""
    (tmp_path / "dest").write_text("old")
    with pytest.raises(FileNotFoundError):
        put(tmp_path / "nothing", tmp_path / "dest", tmp_path / "aside")

    assert "old" == (tmp_path / "dest").read_text()
    assert ["dest"] == [path.name for path in tmp_path.iterdir()]
