"""A change to a file in the store is noticed when the file is handed out."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from torrentdist.bundle.content_check import Damage
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.bundle.store import store_checks
from torrentdist.bundle.store.objects import Objects
from torrentdist.bundle.store.store import Store
from torrentdist.host.host_store import HostStore
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest

pytestmark = pytest.mark.case("G2")


@pytest.fixture
def meta(tmp_path: Path) -> Metafile:
    top = tmp_path / "source"
    (top / "lib").mkdir(parents=True)
    (top / "lib" / "data.bin").write_bytes(os.urandom(100_000))
    (top / "other").write_bytes(b"other")
    (top / "link").symlink_to("lib/data.bin")
    return make_metafile(top)


@pytest.fixture
def store(tmp_path: Path, meta: Metafile) -> Iterator[Store]:
    """A store with the published bundle."""
    store = Store.open(tmp_path / "data")
    shutil.copytree(tmp_path / "source", store.begin(meta) / "content", symlinks=True, dirs_exist_ok=True)
    store.publish(meta.digest)
    yield store
    store.close()


def content(store: Store) -> Path:
    [stored] = store.published().values()
    return stored.content


def write_in_place(path: Path) -> None:
    """Writes other bytes and restores size and times, as a job that runs as root can do."""
    before = path.stat()
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.write(b"changed")
    path.chmod(0o444)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def write_through_link(path: Path) -> None:
    other = path.parents[4] / "elsewhere"
    other.hardlink_to(path)
    write_in_place(other)
    other.unlink()


def replace(path: Path) -> None:
    before = path.stat()
    path.unlink()
    path.write_bytes(bytes(before.st_size))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("change", [write_in_place, write_through_link, replace, Path.unlink])
def test_a_changed_file_is_noticed(store: Store, meta: Metafile, change: Callable[[Path], None]) -> None:
    """A job would run what another job wrote, without a message."""
    sound = store.check(meta.digest), store.check(meta.digest, ["lib/data.bin"])
    change(content(store) / "lib" / "data.bin")

    assert ([], []) == sound
    assert ["lib/data.bin"] == [damage.path for damage in store.check(meta.digest)]
    assert ["lib/data.bin"] == [damage.path for damage in store.check(meta.digest, ["lib/data.bin"])]
    assert [] == store.check(meta.digest, ["other"])


def test_a_changed_mode_is_noticed(store: Store, meta: Metafile) -> None:
    """A program that lost its executable bit would be handed to a job."""
    (content(store) / "other").chmod(0o555)

    assert ["other"] == [damage.path for damage in store.check(meta.digest)]


@pytest.mark.parametrize("paths", [None, ["link"]])
def test_a_symlink_that_leads_elsewhere_is_noticed(store: Store, meta: Metafile, paths: list[str] | None) -> None:
    """A reader would get another file under the name of this one."""
    sound = store.check(meta.digest, paths)
    (content(store) / "link").unlink()
    (content(store) / "link").symlink_to("other")

    assert [] == sound
    assert ["link"] == [damage.path for damage in store.check(meta.digest, paths)]


def test_a_restored_copy_is_read_once(store: Store, meta: Metafile, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restore from a backup, every byte would be read at every hand-out, or fetched
    again."""
    for path in [path for path in content(store).rglob("*") if path.is_file() and not path.is_symlink()]:
        copy = path.with_name("copy")
        shutil.copy2(path, copy)
        copy.rename(path)
    monkeypatch.setattr(store_checks, "TICK_NS", -1_000_000_000)
    restored = store.check(meta.digest)
    (content(store).parent / "metafile").write_bytes(b"whoever reads files now needs this")

    assert ([], []) == (restored, store.check_quick(meta.digest))


def test_the_new_mark_outlives_a_restart(store: Store, meta: Metafile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that were found right would be read again after each start."""
    os.utime(content(store) / "other", ns=(0, 0))
    monkeypatch.setattr(store_checks, "TICK_NS", -1_000_000_000)
    published_at = store.published()[meta.digest].published_at
    store.check(meta.digest)
    store.close()
    again = Store.open(store.data_dir)
    (content(again).parent / "metafile").write_bytes(b"whoever reads files now needs this")
    found = again.check_quick(meta.digest), again.published()[meta.digest].published_at
    again.close()

    assert ([], published_at) == found


def test_a_file_that_was_written_a_moment_ago_gets_no_new_mark(store: Store, meta: Metafile) -> None:
    """A second write within one tick of the file system's clock would count as the bytes that were
    read."""
    index = content(store).parent / "index"
    before = index.read_bytes()
    os.utime(content(store) / "other", ns=(0, 0))

    assert ([], before) == (store.check(meta.digest), index.read_bytes())


def test_an_index_of_the_release_before_is_read(store: Store, meta: Metafile) -> None:
    """An upgrade would set every bundle aside, or leave its files without marks for ever."""
    index = content(store).parent / "index"
    head, marks, _ = index.read_bytes().split(b"\n")
    old = [mark[:3] for mark in msgspec.json.decode(marks)]
    store.close()
    index.write_bytes(head + b"\n" + msgspec.json.encode(old) + b"\n")
    again = Store.open(store.data_dir)
    sound = again.check(meta.digest)
    again.close()

    assert [] == sound


def test_reading_everything_marks_everything(store: Store, meta: Metafile, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store of the previous release would never learn the identity of its files."""
    monkeypatch.setattr(store_checks, "TICK_NS", -1_000_000_000)
    os.utime(content(store) / "other", ns=(0, 0))
    index = content(store).parent / "index"
    before = index.read_bytes()
    damage = store.verify(meta.digest)

    assert [] == damage
    assert before != index.read_bytes()


def test_a_bundle_that_goes_is_forgotten(store: Store, meta: Metafile, tmp_path: Path) -> None:
    """A bundle that comes again would be judged by the marks of its old files."""
    store.check(meta.digest)
    store.discard(meta.digest)
    shutil.copytree(tmp_path / "source", store.begin(meta) / "content", symlinks=True, dirs_exist_ok=True)
    digest: Digest = store.publish(meta.digest).digest

    assert [] == store.check(digest)


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Lets this process open nothing more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def check_index(store: Store, digest: Digest) -> list[Damage]:
    return store.check(digest)


def check_doubtful(store: Store, digest: Digest) -> list[Damage]:
    (content(store) / "other").touch()
    return store.check(digest)


def read_everything(store: Store, digest: Digest) -> list[Damage]:
    return store.verify(digest)


@pytest.mark.parametrize(
    ("look", "indexed"),
    [(check_index, False), (check_doubtful, True), (read_everything, False), (read_everything, True)],
)
def test_a_lack_of_descriptors_is_no_damage(
    store: Store, meta: Metafile, look: Callable[[Store, Digest], list[Damage]], indexed: bool
) -> None:
    """A busy host would unpublish sound bundles, and a master would withdraw their replicas."""
    if indexed:
        store.check(meta.digest)
    with no_descriptors(), pytest.raises(TorrentdistError) as caught:
        look(store, meta.digest)
    after = store.verify(meta.digest)

    assert "disk_error" == caught.value.code
    assert [] == after


def test_an_index_that_cannot_be_opened_for_want_of_descriptors_is_kept(store: Store, meta: Metafile) -> None:
    """A host that starts under pressure would unpublish every bundle that it has."""
    objects = Objects(store.data_dir)
    with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
        objects.look(meta.digest)

    assert objects.look(meta.digest) is not None


def test_many_readers_of_a_bundle_in_doubt_leave_threads_to_others(store: Store, meta: Metafile) -> None:
    """If this fails, whoever reads a large file that a backup restored keeps the host from renewing
    its workers' leases, and they are ended."""
    path = content(store) / "lib" / "data.bin"
    path.with_name("copy").hardlink_to(path)

    async def scenario() -> list[list[Damage]]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
        host = HostStore(store)
        with store._state.alone(meta.digest):  # as long as one of them reads
            readers = [asyncio.create_task(host.check(meta.digest)) for _ in range(8)]
            for _ in range(20):
                await asyncio.sleep(0.001)
                async with asyncio.timeout(5.0):
                    await asyncio.to_thread(path.stat)
        return await asyncio.gather(*readers)

    assert [[]] * 8 == asyncio.run(scenario())
