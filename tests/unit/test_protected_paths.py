"""Places that `download --force` does not replace."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torrentdist.client.bundles.protected_paths import mount_points_in, protection, refuse_protected
from torrentdist.model.errors import TorrentdistError


@pytest.mark.case("G4")
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/work/here", "the current directory"),
        ("/work", "a parent of the current directory"),
        ("/", "a parent of the current directory"),
        ("/home/ann", "a home directory"),
        ("/home", "a parent of the home directory /home/ann"),
        ("/mnt/disk", "a mount point"),
        ("/mnt", "a parent of the mount point /mnt/disk"),
        ("/work/here/dest", None),
        ("/work/her", None),
        ("/home/ann/bundle", None),
        ("/mnt/disk/bundle", None),
    ],
)
def test_what_holds_more_than_a_download_is_protected(path: str, expected: str | None) -> None:
    """A mistake in a script would replace a home directory by a bundle."""
    assert expected == protection(path, "/work/here", ["/home/ann"], ["/", "/mnt/disk"])


@pytest.mark.case("G4")
@pytest.mark.parametrize("kind", ["current", "parent", "home", "another user's home", "mount point", "symlink"])
def test_paths_of_this_machine_are_protected(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule could be right, and never be given this machine's paths."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a" / "b")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "a" / "b")
    places = {
        "current": tmp_path / "a" / "b",
        "parent": tmp_path / "a",
        "home": tmp_path / "home",
        "another user's home": Path(os.path.expanduser("~root")),
        "mount point": Path("/proc"),
        "symlink": tmp_path / "link",
    }
    with pytest.raises(TorrentdistError) as caught:
        refuse_protected(places[kind])

    assert ("protected_path", 4) == (caught.value.code, caught.value.exit_code)


@pytest.mark.case("G4")
def test_an_ordinary_directory_is_not_protected(tmp_path: Path) -> None:
    """`--force` would replace nothing at all."""
    refuse_protected(tmp_path / "dest")


@pytest.mark.parametrize("sign", ["\r", "\x0b", "\x0c", "\u2028"])
def test_a_mount_point_may_have_any_name(sign: str) -> None:
    """A disk that somebody has mounted at such a place would end each `download --force` as a bug,
    or its place would not be protected."""
    table = f"22 1 254:1 / / rw - ext4 /dev/vda rw\n31 22 8:1 / /mnt/my\\040{sign}disk rw - ext4 /dev/sda rw\n"

    assert ["/", f"/mnt/my {sign}disk"] == mount_points_in(table.encode())
