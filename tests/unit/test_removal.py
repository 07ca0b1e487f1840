"""What a job leaves goes away, whatever the job has made of it."""

import os
import time
from pathlib import Path

import pytest

from torrentdist.launcher.launcher_client import OwnStarter
from torrentdist.launcher.removal import empty
from torrentdist.model.ids import JobId
from torrentdist.supervisor.process.worker_homes import Homes, clean_up, drop_old_output
from torrentdist.supervisor.worker.worker_types import Key

LEVELS = 1500
"""More than Python calls itself, and a path that is too long for the kernel."""
pytestmark = pytest.mark.case("F1")


def make_deep(top: Path, owner: int = -1) -> None:
    os.chown(top, owner, owner)
    folder = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(LEVELS):
        os.mkdir("d" * 100, dir_fd=folder)
        below = os.open("d" * 100, os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
        os.close(folder)
        os.fchown(below, owner, owner)
        folder = below
    os.mkdir("file", dir_fd=folder)
    os.close(folder)


def test_a_deep_tree_goes(tmp_path: Path) -> None:
    """If this fails, a job fills the disk of its host with files that nobody removes, or ends its
    supervisor."""
    key: Key = (JobId("etl"), 0)
    homes = Homes(tmp_path / "data")
    for folder in (homes.work(key), homes.sign(key)):
        folder.mkdir(parents=True)
        make_deep(folder)
    try:
        clean_up(homes, key)

        assert not homes.work(key).exists()
        assert not homes.sign(key).exists()
    finally:
        empty(str(tmp_path))  # pytest could not


@pytest.mark.skipif(os.getuid() != 0, reason="another user's files take root")
def test_a_deep_tree_of_a_user_of_jobs_goes_without_a_launcher(tmp_path: Path) -> None:
    """If this fails, a job keeps its place on a host whose supervisor is root, and its files, for
    ever."""
    key: Key = (JobId("etl"), 0)
    homes = Homes(tmp_path / "data", OwnStarter("20000").remove)
    homes.work(key).mkdir(parents=True)
    make_deep(homes.work(key), owner=20000)
    try:
        clean_up(homes, key)

        assert not homes.work(key).exists()
    finally:
        empty(str(tmp_path))


def test_closed_directories_and_odd_files_go_and_no_link_is_followed(tmp_path: Path) -> None:
    """If this fails, a job has files of others removed, or leaves some of its own."""
    kept, top = tmp_path / "kept", tmp_path / "top"
    (kept / "folder").mkdir(parents=True)
    (top / "a" / "b").mkdir(parents=True)
    (top / "a" / "b" / "file").touch()
    os.mkfifo(top / "a" / "fifo")
    for number, place in enumerate((top, top / "a", top / "a" / "b")):
        (place / f"link-{number}").symlink_to(kept)
        (place / ".removed-0").mkdir()
    (top / "a" / "b").chmod(0)
    (top / "a").chmod(0)
    empty(str(top))

    assert [] == [*top.iterdir()]
    assert (kept / "folder").is_dir()


def test_output_that_a_wrong_clock_has_dated_goes(tmp_path: Path) -> None:
    """If this fails, what workers printed while a host's clock was ahead stays on its disk for
    years."""
    homes, now = Homes(tmp_path), time.time()
    for worker, dated in enumerate((now, now + 60, now + 365 * 86400)):
        home = homes.guard((JobId("etl"), worker))
        home.mkdir(parents=True)
        os.utime(home, (dated, dated))
    drop_old_output(homes, [], 3600.0)

    assert {0, 1} == {key[1] for key, _ in homes.guards()}
