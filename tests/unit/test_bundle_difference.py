"""How two bundles' contents differ, in words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torrentdist.bundle.content_difference import FileChanges, describe_difference, file_changes
from torrentdist.bundle.metafile_maker import make_metafile

Change = Callable[[Path], object]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda d: (d / "a").write_text("other"), "a has other content"),
        (lambda d: (d / "a").chmod(0o755), "a is executable now"),
        (lambda d: (d / "a").rename(d / "z"), "z is new, a is gone"),
        (lambda d: (d / "empty").rmdir(), "the empty directory empty is gone"),
        (lambda d: (d / "void").mkdir(), "the empty directory void is new"),
        (lambda d: (d / "l").symlink_to("b"), "the symlink l is new"),
        (lambda d: (d / "link").unlink(), "the symlink link is gone"),
        (lambda d: ((d / "link").unlink(), (d / "link").symlink_to("b")), "the symlink link leads elsewhere"),
        (
            lambda d: [(d / f"n{i}").write_text("x") for i in range(5)],
            "n0 is new, n1 is new, n2 is new, and 2 more differences",
        ),
    ],
)
def test_names_what_changed_in_a_directory(tmp_path: Path, change: Change, sentence: str) -> None:
    """A user who uploads again would be told only that something is different."""
    top = tmp_path / "top"
    (top / "empty").mkdir(parents=True)
    for name in ("a", "b"):
        (top / name).write_text(name)
    (top / "link").symlink_to("a")
    before = make_metafile(top)
    change(top)

    assert sentence == describe_difference(before, make_metafile(top))


def test_names_what_changed_of_a_single_file(tmp_path: Path) -> None:
    """A rename or chmod of a single file would be called other content, which its owner cannot
    find."""
    file = tmp_path / "a.py"
    file.write_text("x")
    before = make_metafile(file)
    file.chmod(0o755)
    executable = make_metafile(file)
    renamed = file.rename(tmp_path / "b.py")

    assert "a.py is executable now" == describe_difference(before, executable)
    assert "a.py is no longer executable" == describe_difference(executable, before)
    assert "the file is called b.py now, and was a.py" == describe_difference(executable, make_metafile(renamed))
    assert "it is a directory now, and was a single file" == describe_difference(before, make_metafile(tmp_path))


@pytest.mark.parametrize(
    ("count", "end"),
    [(3, "n2 is new"), (4, "n2 is new, and 1 more difference"), (5, "n2 is new, and 2 more differences")],
)
def test_three_differences_are_named_and_the_rest_is_counted(tmp_path: Path, count: int, end: str) -> None:
    """A user would read a page of names, or not how much is different."""
    (tmp_path / "a").write_text("a")
    before = make_metafile(tmp_path)
    for number in range(count):
        (tmp_path / f"n{number}").write_text(str(number))

    assert describe_difference(before, make_metafile(tmp_path)).endswith(end)
    assert "" == describe_difference(before, before)


def test_files_and_symlinks_are_compared_one_by_one(tmp_path: Path) -> None:
    """`bundle diff` would name the wrong files, or count bytes as new that only moved."""
    old, new = tmp_path / "old", tmp_path / "new"
    for top in (old, new):
        top.mkdir()
        (top / "same").write_text("same")
        (top / "mode").write_text("mode")
        (top / "link").symlink_to("same")
        (top / "other").symlink_to(top.name)
    (old / "moved").write_text("moved")
    (new / "gone-elsewhere").write_text("moved")
    (old / "bytes").write_text("1")
    (new / "bytes").write_text("12")
    (new / "mode").chmod(0o755)
    (new / "extra").symlink_to("same")

    assert FileChanges(
        added=["extra", "gone-elsewhere"], removed=["moved"], changed=["bytes", "mode", "other"], new_bytes=2
    ) == file_changes(make_metafile(old), make_metafile(new))
