"""How two bundles' contents differ, in words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torrentdist.bundle.content_difference import describe_difference
from torrentdist.bundle.metafile_maker import make_metafile

Change = Callable[[Path], object]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda d: (d / "a").write_text("other"), "a has other content"),
        (lambda d: (d / "a").chmod(0o755), "a is executable now"),
        (lambda d: (d / "a").rename(d / "z"), "z is new, a is gone"),
        (lambda d: (d / "empty").rmdir(), "the empty directory empty is gone"),
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
