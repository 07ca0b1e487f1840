"""DEST and the part directory beside it, on a real file system."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from torrentdist.bundle.content_check import same_content
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.client.bundles.destination import (
    Memo,
    check,
    check_room,
    drop_part,
    find_kept,
    open_part,
    part_path,
    resolve,
)
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.model.wire.swarm_messages import PeerAddress, PeerRole

ID = BundleId("etl-1")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    top = tmp_path / "source"
    (top / "deep/er").mkdir(parents=True)
    (top / "hollow").mkdir()
    (top / "run.sh").write_text("#!/bin/sh\n")
    (top / "run.sh").chmod(0o755)
    (top / "deep/er/data").write_bytes(b"x" * 40_000)
    (top / "empty").touch()
    (top / "link").symlink_to("deep/er/data")
    return top


@pytest.fixture
def directory(source: Path) -> Metafile:
    return make_metafile(source)


@pytest.fixture
def single(source: Path) -> Metafile:
    return make_metafile(source / "deep/er/data")


def arrive(meta: Metafile, source: Path, content: Path) -> None:
    """Writes what a swarm leaves: the files that are not empty, with ordinary modes."""
    for file in meta.files:
        if file.size:
            (content / file.path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source if meta.single_file else source / file.path, content / file.path)


def test_a_directory_is_published_as_it_was(source: Path, directory: Metafile, tmp_path: Path) -> None:
    """If this failed, a download would differ from the upload, or leave its part directory
    behind."""
    dest = tmp_path / "dest"
    with open_part(dest) as part:
        part.begin(ID, directory)
        arrive(directory, source, part.content)
        part.publish(directory, dest, replace=False)

    assert same_content(directory, dest)
    assert not part_path(dest).exists()
    assert os.access(dest / "run.sh", os.X_OK)
    assert (dest / "deep/er/data").stat().st_mode & 0o777 == 0o644


def test_a_download_is_closed_to_whom_the_umask_shuts_out(source: Path, directory: Metafile, tmp_path: Path) -> None:
    """A key of mode 0400 became readable for every user of the host, whatever its new owner's
    umask."""
    before = os.umask(0o077)
    try:
        with open_part(tmp_path / "dest") as part:
            part.begin(ID, directory)
            arrive(directory, source, part.content)
            part.publish(directory, tmp_path / "dest", replace=False)
    finally:
        os.umask(before)
    found = [tmp_path / "dest", *(path for path in (tmp_path / "dest").rglob("*") if not path.is_symlink())]

    assert [] == [path for path in found if path.stat().st_mode & 0o077]


def test_a_single_file_is_published_under_the_name_of_dest(source: Path, single: Metafile, tmp_path: Path) -> None:
    """If this failed, `download ID file` would make a directory of it or use another name."""
    dest = tmp_path / "other-name"
    with open_part(dest) as part:
        part.begin(ID, single)
        arrive(single, source / "deep/er/data", part.content)
        part.publish(single, dest, replace=False)

    assert dest.read_bytes() == b"x" * 40_000
    assert not part_path(dest).exists()


def test_a_single_file_goes_into_a_directory(single: Metafile, directory: Metafile, tmp_path: Path) -> None:
    """If this failed, DEST would not mean the same as for `cp`."""
    (tmp_path / "there").mkdir()
    found = [
        resolve(f"{tmp_path}/there", single),
        resolve(f"{tmp_path}/new/", single),
        resolve(f"{tmp_path}/new", single),
        resolve(f"{tmp_path}/there", directory),
    ]

    assert [tmp_path / "there/data", tmp_path / "new/data", tmp_path / "new", tmp_path / "there"] == found


def test_check_tells_free_same_and_other(source: Path, directory: Metafile, tmp_path: Path) -> None:
    """If this failed, a download would overwrite other content, or fetch again what is there."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").touch()

    assert [check(directory, tmp_path / name) for name in ("none", "empty", "source")] == [False, False, True]
    with pytest.raises(TorrentdistError) as caught:
        check(directory, tmp_path / "other")
    assert (caught.value.code, caught.value.exit_code) == ("dest_exists", 9)


@pytest.mark.parametrize("name", ["dest", "d" * 255, "ü" * 127])
def test_replace_takes_the_place_of_what_is_there(source: Path, directory: Metafile, tmp_path: Path, name: str) -> None:
    """If this failed, --force would fail, or mix old and new content."""
    dest = tmp_path / name
    dest.mkdir()
    (dest / "old").touch()
    with open_part(dest) as part:
        part.begin(ID, directory)
        arrive(directory, source, part.content)
        part.publish(directory, dest, replace=True)

    assert same_content(directory, dest)
    assert {name, "source"} == {entry.name for entry in tmp_path.iterdir()}


def test_what_came_meanwhile_is_not_overwritten(source: Path, single: Metafile, tmp_path: Path) -> None:
    """If this failed, a file that was written to DEST during the download would be lost."""
    dest = tmp_path / "dest"
    with open_part(dest) as part:
        part.begin(ID, single)
        arrive(single, source / "deep/er/data", part.content)
        dest.write_text("mine")
        with pytest.raises(TorrentdistError) as caught:
            part.publish(single, dest, replace=False)

    assert caught.value.code == "dest_exists"
    assert dest.read_text() == "mine"
    assert part_path(dest).exists()


def test_a_part_is_resumed_only_for_its_own_content(directory: Metafile, single: Metafile, tmp_path: Path) -> None:
    """If this failed, an interrupted download would start again, or mix two bundles."""
    dest = tmp_path / "dest"
    peers = [PeerAddress(host="127.0.0.1", port=7, role=PeerRole.MASTER, complete=True)]
    with open_part(dest) as part:
        part.begin(ID, directory)
        (part.content / "half").write_text("arrived")
        part.keep(Memo(bundle=ID, digest=directory.digest, peers=peers))
    with open_part(dest) as part:
        resumed = part.begin(ID, directory)
        kept = (part.content / "half").exists()
    with open_part(dest) as part:
        other = part.begin(ID, single)
        gone = not (part.content / "half").exists()

    assert (peers, True) == (resumed, kept)
    assert (other, gone) == ([], True)


@pytest.mark.parametrize("into_directory", [False, True])
def test_the_kept_metafile_is_found_again(single: Metafile, tmp_path: Path, into_directory: bool) -> None:
    """If this failed, an interrupted download could not go on while the masters are away."""
    dest = tmp_path / "data" if into_directory else tmp_path / "dest"
    with open_part(dest) as part:
        part.begin(ID, single)
    given = tmp_path if into_directory else dest
    kept = find_kept(given, ID)

    assert kept is not None
    assert single.digest == kept.metafile.digest
    assert find_kept(given, BundleId("etl-2")) is None


def test_a_second_download_to_the_same_place_is_refused(tmp_path: Path) -> None:
    """If this failed, two processes would write into the same files."""
    with open_part(tmp_path / "dest"), pytest.raises(TorrentdistError) as caught, open_part(tmp_path / "dest"):
        pass

    assert caught.value.code == "dest_busy"


def test_a_part_left_beside_a_complete_dest_is_dropped(tmp_path: Path) -> None:
    """If this failed, a crash right after the rename would leave a hidden directory for ever."""
    dest = tmp_path / "dest"
    with open_part(dest):
        pass
    drop_part(dest)

    assert list(tmp_path.iterdir()) == []


def test_packs_that_have_arrived_count_as_room_that_is_used(directory: Metafile, tmp_path: Path) -> None:
    """A download that goes on would be refused for room that its own packs take."""
    with open_part(tmp_path / "dest") as part:
        part.begin(ID, directory)
        before = part.bytes_on_disk()
        (part.home / "packs").mkdir()
        (part.home / "packs/00000").write_bytes(b"x" * 40_000)
        after = part.bytes_on_disk()

    assert after - before >= 40_000


def test_a_part_directory_whose_content_was_moved_is_used_again(directory: Metafile, tmp_path: Path) -> None:
    """A download that was killed at its last step could never be made again."""
    with open_part(tmp_path / "dest") as part:
        part.begin(ID, directory)
        part.content.rename(tmp_path / "moved")
        part.begin(ID, directory)

        assert part.content.is_dir()


READ_ONLY = """
import os, shutil, sys
from pathlib import Path
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.client.bundles.destination import open_part
from torrentdist.model.ids import BundleId
os.chdir(sys.argv[1])
meta, dest, left = make_metafile(Path("source")), Path("dest"), Path(".dest.torrentdist-part/replaced-1/ro")
if os.geteuid() == 0:  # who may do everything
    for place in (Path("."), *Path(".").rglob("*")):
        os.chown(place, 65534, 65534)
    os.setgroups([]); os.setresgid(*[65534] * 3); os.setresuid(*[65534] * 3)
for place in (dest / "ro", left):
    place.mkdir(parents=True)
    (place / "file").touch()
    place.chmod(0o555)
with open_part(dest) as part:
    part.begin(BundleId("etl-1"), meta)
    shutil.copyfile("source/file", part.content / "file")
    part.publish(meta, dest, replace=True)
print(sorted(os.listdir(".")), os.listdir("dest"))
"""


def test_read_only_directories_are_replaced(tmp_path: Path) -> None:
    """What `download --force` has replaced would stay on the disk, in a directory that ends the
    next download to that place as a bug."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source/file").write_text("new")
    done = subprocess.run([sys.executable, "-c", READ_ONLY, str(tmp_path)], capture_output=True, text=True, check=False)

    assert ("['dest', 'source'] ['file']\n", "") == (done.stdout, done.stderr)


def test_a_download_without_room_is_refused_before_it_begins(
    directory: Metafile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A download fills the disk and fails at its end, or is refused although the rest fits."""
    whole, asked = directory.size + directory.packed_size, list[Path]()

    def usage(path: Path) -> shutil._ntuple_diskusage:
        asked.append(path)
        return shutil._ntuple_diskusage(10 * whole, 9 * whole, whole - 1)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    for there in (1, whole, 2 * whole):
        check_room(directory, tmp_path / "new" / "folder" / "dest", there)
    with pytest.raises(TorrentdistError) as caught:
        check_room(directory, tmp_path / "new" / "folder" / "dest", 0)

    assert ("disk_full", whole, whole - 1) == (
        caught.value.code, caught.value.fields["needed"], caught.value.fields["free"]
    )  # fmt: skip
    assert (str(tmp_path), {tmp_path}) == (caught.value.fields["path"], set(asked))


def test_long_names_have_part_directories_of_their_own(tmp_path: Path) -> None:
    """Two downloads whose long names begin alike take each other for an earlier attempt."""
    parts = [
        part_path(tmp_path / ("n" * length + end)) for length, end in ((200, ""), (201, ""), (250, "a"), (250, "b"))
    ]

    assert tmp_path / f".{'n' * 200}.torrentdist-part" == parts[0]
    assert (4, {tmp_path}) == (len(set(parts)), {part.parent for part in parts})
    assert {1 + 200 + len(".torrentdist-part")} == {len(part.name) for part in parts}
