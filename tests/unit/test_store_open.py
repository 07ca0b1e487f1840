"""Opening a store: which process may, which store it is, and what happens to what it finds."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from small_disks import small_disk  # noqa: F401

from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.bundle.store.store import Store
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest

MIB = 1024 * 1024
NO_TEXT = b'{"schema": 1, "id": "\xff", "bindings": {"\xff": ""}}'

HOLD_THE_STORE = """
import sys
from pathlib import Path
from torrentdist.bundle.store.store import Store
store = Store.open(Path(sys.argv[1]))
print(store.id, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def meta(tmp_path: Path) -> Metafile:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "file").write_bytes(b"x" * 1000)
    return make_metafile(tmp_path / "source")


@pytest.fixture
def filled(data: Path, meta: Metafile, tmp_path: Path) -> Path:
    """A closed store with one published bundle."""
    store = Store.open(data)
    shutil.copy(tmp_path / "source" / "file", store.begin(meta) / "content")
    store.publish(meta.digest)
    store.close()
    return data


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def one_tree(top: Path, files: dict[str, bytes]) -> Metafile:
    top.mkdir()
    for name, content in files.items():
        (top / name).write_bytes(content)
    return make_metafile(top)


@contextmanager
def opened(data: Path) -> Iterator[Store]:
    store = Store.open(data, lock_wait=0)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def another_process(data: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has the store open."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_THE_STORE, str(data)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline()
            yield process
        finally:
            process.kill()


def test_second_daemon_is_refused_and_told_which_process_has_the_store(data: Path) -> None:
    """Two daemons would write into one store, or an operator would not know which one to stop."""
    with another_process(data) as other, pytest.raises(TorrentdistError) as failure:
        Store.open(data, lock_wait=0)

    assert (failure.value.code, failure.value.exit_code) == ("store_locked", 9)
    assert {"path": str(data), "pid": str(other.pid)} == failure.value.fields


def test_a30_a_killed_daemon_is_no_obstacle(data: Path) -> None:
    """A30: a daemon killed with -9 and restarted at once would be refused as a second daemon."""
    with another_process(data) as other:
        other.send_signal(signal.SIGKILL)
        store = Store.open(data)
        store.close()

    assert other.returncode == -signal.SIGKILL


def test_store_opens_again_after_close(data: Path) -> None:
    """A daemon could not be restarted within its process, as tests and `dev` do."""
    with opened(data) as first:
        first_id = first.id
    with opened(data) as second:
        assert first_id == second.id


def test_a27_a_replaced_disk_is_another_store(data: Path) -> None:
    """A27: a master that comes back with an empty disk would count as a holder of what it lost."""
    with opened(data) as store:
        before = store.id
    shutil.rmtree(data)
    with opened(data) as store:
        assert before != store.id


def test_a24_published_bundles_are_there_after_a_restart(filled: Path, meta: Metafile) -> None:
    """A24: a restarted master would serve nothing."""
    with opened(filled) as store:
        [stored] = store.published().values()

        assert (meta.digest, 1000, 1) == (stored.digest, stored.size, stored.files)
        assert (store.check_quick(meta.digest), store.verify(meta.digest)) == ([], [])


def test_a13_wiped_links_lose_no_bytes(filled: Path, meta: Metafile) -> None:
    """A13: bundles would be deleted, or served unverified, because someone emptied the directory of
    links."""
    shutil.rmtree(filled / "bundles")
    with opened(filled) as store:
        found = (store.published(), store.arriving(), store.usage().arriving_bytes)
        directory = store.begin(meta)

        assert ({}, [meta.digest], 1000) == found
        assert (directory / "content" / "file").read_bytes() == b"x" * 1000
        assert meta.digest == store.publish(meta.digest).digest


def test_wiped_objects_are_not_published(filled: Path, meta: Metafile) -> None:
    """A host would claim to hold what it does not have."""
    shutil.rmtree(filled / "objects")
    with opened(filled) as store:
        assert (store.published(), store.arriving()) == ({}, [])
        assert list((filled / "bundles").iterdir()) == []


def test_foreign_files_are_left_alone(filled: Path) -> None:
    """Opening a store would delete files that are not its own."""
    foreign = [
        filled / name
        for name in ("notes.txt", "objects/README", "objects/.hidden/file", "bundles/mine", "transit/keep/this")
    ]
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    (filled / "objects" / ("a" * 64)).symlink_to(filled)
    with opened(filled) as store:
        assert len(store.published()) == 1
        assert store.arriving() == []
    assert [path.read_text() for path in foreign] == ["mine"] * 5


def test_interrupted_deletion_is_finished(filled: Path, meta: Metafile) -> None:
    """A crash during a deletion would leave bytes that are never freed."""
    (filled / "objects" / meta.digest).rename(filled / "transit" / f"{meta.digest}.0123456789abcdef")
    (filled / "bundles" / meta.digest).rename(filled / "transit" / meta.digest)
    with opened(filled) as store:
        assert (store.published(), store.arriving()) == ({}, [])
        assert list((filled / "transit").iterdir()) == []


def test_what_an_interrupted_look_at_the_disk_left_is_removed(filled: Path) -> None:
    """Each loss of power while a daemon starts would leave a directory for ever."""
    (filled / "transit" / ".torrentdist-a8_bcd1f").mkdir()
    (filled / "transit" / ".torrentdist-a8_bcd1f" / "one").write_bytes(b"1")
    with opened(filled):
        assert list((filled / "transit").iterdir()) == []


def test_decided_deletion_is_carried_out(filled: Path, meta: Metafile) -> None:
    """A discarded bundle would come back as an arriving one."""
    (filled / "bundles" / meta.digest).rename(filled / "transit" / meta.digest)
    with opened(filled) as store:
        assert (store.published(), store.arriving()) == ({}, [])
        assert list((filled / "objects").iterdir()) == []


def test_order_that_was_overtaken_deletes_nothing(filled: Path, meta: Metafile) -> None:
    """The leftover of an older removal would delete a bundle that was published again."""
    (filled / "transit" / meta.digest).symlink_to(f"../objects/{meta.digest}")
    with opened(filled) as store:
        assert [meta.digest] == list(store.published())


def test_bundle_without_a_readable_index_is_checked_again(filled: Path, meta: Metafile) -> None:
    """A published bundle without a readable index would be served unchecked, or keep the daemon
    from starting."""
    (filled / "objects" / meta.digest / "index").write_bytes(b"\x00garbage")
    with opened(filled) as store:
        assert ({}, [meta.digest]) == (store.published(), store.arriving())


def test_arriving_object_with_a_damaged_metafile_can_be_begun_again(filled: Path, meta: Metafile) -> None:
    """One bad sector would stop a daemon from starting, or a bundle from ever being fetched
    again."""
    (filled / "bundles" / meta.digest).unlink()
    (filled / "objects" / meta.digest / "metafile").write_bytes(b"garbage")
    with opened(filled) as store:
        arrival = store.arrival(meta.digest)
        store.begin(meta)

        assert arrival is not None
        assert (arrival.size, store.usage().arriving_bytes) == (0, 1000)
        assert meta == store.metafile(meta.digest)


@pytest.mark.parametrize("name", ["store.json", "catalog.json"])
@pytest.mark.parametrize("content", [b"", b"{", b'{"schema": 2}', b'{"schema": 1, "id": 7, "bindings": 7}', NO_TEXT])
def test_damaged_state_is_refused_and_kept(filled: Path, name: str, content: bytes) -> None:
    """A damaged file would be replaced by an empty one, and pins, names or the store's id would be
    lost without a message."""
    (filled / name).write_bytes(content)
    with pytest.raises(TorrentdistError) as failure:
        Store.open(filled, lock_wait=0)

    assert ("disk_error", str(filled / name)) == (failure.value.code, failure.value.fields["path"])
    assert content == (filled / name).read_bytes()


def test_a_refused_store_is_not_locked(filled: Path) -> None:
    """A daemon that failed to start would keep the lock while its process runs."""
    catalog = filled / "catalog.json"
    catalog.write_bytes(b"{")
    with pytest.raises(TorrentdistError):
        Store.open(filled)
    catalog.unlink()
    with opened(filled) as store:
        assert len(store.published()) == 1


def test_directory_that_cannot_be_made_is_a_disk_error(tmp_path: Path) -> None:
    """A wrong data_dir would end in a traceback."""
    (tmp_path / "file").touch()
    with pytest.raises(TorrentdistError) as failure:
        Store.open(tmp_path / "file" / "data")

    assert failure.value.code == "disk_error"


def test_torn_writes_are_cleared_away(filled: Path) -> None:
    """Every crash would leave another temporary file."""
    (filled / ".catalog.json.0123456789ab.tmp").touch()
    with opened(filled):
        assert list(filled.glob(".*.tmp")) == []


def test_closed_store_changes_nothing_more(data: Path, meta: Metafile) -> None:
    """A thread that is late would write into a store that another daemon has opened."""
    store = Store.open(data)
    store.close()
    with pytest.raises(TorrentdistError) as failure:
        store.begin(meta)

    assert failure.value.code == "closing"


def test_changes_after_close_are_refused_for_names_too(data: Path) -> None:
    """The catalog of the next daemon would be overwritten by the one before."""
    store = Store.open(data)
    store.close()
    with pytest.raises(TorrentdistError) as failure:
        store.bind(BundleId("etl-1"), Digest("a" * 64))

    assert failure.value.code == "closing"


@pytest.mark.alone
def test_five_hundred_bundles_open_quickly(filled: Path, meta: Metafile) -> None:
    """A daemon with many bundles would be slow to start: metafiles or indexes would be parsed at
    open."""
    for number in range(499):
        other = filled / "objects" / f"{number:064x}"
        shutil.copytree(filled / "objects" / meta.digest, other)
        (filled / "bundles" / other.name).symlink_to(f"../objects/{other.name}")
    begun = time.perf_counter()
    with opened(filled) as store:
        seconds = time.perf_counter() - begun

        assert len(store.published()) == 500
    assert seconds < 0.5


def test_a_clock_that_was_ahead_keeps_no_bundle_for_ever(filled: Path, meta: Metafile) -> None:
    """`prune` and the high mark would pass it by until it is used again, after restarts too."""
    store = Store.open(filled, clock=lambda: 4e9)
    store.touch(meta.digest)
    store.close()
    with closing(Store.open(filled, clock=lambda: 2e9)) as store:
        assert [meta.digest] == [one.digest for one in store.plan_prune(older_than=0, claims=lambda _: frozenset())]


@pytest.mark.parametrize("has_room", [True, False])
def test_what_arrives_again_shares_its_files_with_no_other_bundle(
    small_disk: Callable[[int], Path],  # noqa: F811
    tmp_path: Path,
    has_room: bool,
) -> None:
    """A repair would write into another bundle, or a full disk would end what needs no room."""
    size = 2 * MIB
    metas = [one_tree(tmp_path / name, {"large": bytes(size), "more": name.encode()}) for name in ("old", "new")]
    disk = small_disk(6 * MIB)
    with opened(disk / "data") as store:
        old, new = (store.begin(meta) / "content" for meta in metas)
        (old / "large").write_bytes(bytes(size))
        os.link(old / "large", new / "large")
        (disk / "other").write_bytes(bytes(0 if has_room else 3 * MIB))

        store.begin(metas[1], at_work=True)
        shared = (old / "large").stat().st_nlink
        store.begin(metas[1])

        assert 2 == shared, "a fetch that is under way would lose its files"
        assert 1 == (old / "large").stat().st_nlink
        assert has_room == (new / "large").exists()
        assert [] == list((store.data_dir / "transit").iterdir())


def test_a_copy_that_fails_leaves_nothing(data: Path, meta: Metafile, tmp_path: Path) -> None:
    """Each attempt on a failing disk would take more of it until the daemon is restarted."""
    with opened(data) as store:
        content = store.begin(meta) / "content"
        shutil.copy(tmp_path / "source" / "file", content)
        os.link(content / "file", tmp_path / "link")
        with files_of_at_most(500), pytest.raises(TorrentdistError):
            store.begin(meta)

        assert [] == list((data / "transit").iterdir())
        assert 1000 == (content / "file").stat().st_size
