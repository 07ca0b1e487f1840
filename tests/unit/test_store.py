"""A bundle's life in a store: begun, published, damaged, removed."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from torrentdist.bundle.content_check import Damage
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.bundle.store.store import KeepReason, Store
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A bundle with one of everything that a bundle may hold."""
    top = tmp_path / "source"
    (top / "lib" / "empty dir").mkdir(parents=True)
    (top / "run.sh").write_bytes(b"#!/bin/sh\n")
    (top / "run.sh").chmod(0o755)
    (top / "lib" / "größe.bin").write_bytes(os.urandom(100_000))
    (top / "lib" / "nothing").touch()
    (top / "link").symlink_to("lib/größe.bin")
    return top


@pytest.fixture
def meta(source: Path) -> Metafile:
    return make_metafile(source)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "data")
    yield store
    store.close()


def begin_and_fill(store: Store, meta: Metafile, source: Path) -> Path:
    directory = store.begin(meta)
    for file in meta.files:
        target = directory / "content" / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / file.path, target)
    return directory


@pytest.fixture
def published(store: Store, meta: Metafile, source: Path) -> Digest:
    begin_and_fill(store, meta, source)
    return store.publish(meta.digest).digest


def tree(top: Path) -> dict[str, object]:
    """Returns everything that must stay the same: names, contents, targets of links, executable
    bits."""
    return {
        str(path.relative_to(top)): path.readlink()
        if path.is_symlink()
        else "directory"
        if path.is_dir()
        else (path.read_bytes(), bool(path.stat().st_mode & stat.S_IXUSR))
        for path in top.rglob("*")
    }


def test_published_bundle_is_what_was_uploaded(store: Store, meta: Metafile, source: Path) -> None:
    """A download could differ from the upload in a name, a byte, a link, an empty directory or the
    executable bit."""
    begin_and_fill(store, meta, source)
    stored = store.publish(meta.digest)

    assert tree(source) == tree(stored.content)
    assert (meta.digest, meta.size, len(meta.files)) == (stored.digest, stored.size, stored.files)
    assert {meta.digest: stored} == store.published()


def test_published_files_are_read_only(store: Store, published: Digest) -> None:
    """A job could change the bundle that every other job on the host runs."""
    content = store.published()[published].content
    writable = [path for path in content.rglob("*") if path.is_file() and path.stat().st_mode & 0o222]

    assert writable == []


def test_a12_nothing_shows_before_it_is_published(store: Store, meta: Metafile, source: Path) -> None:
    """A12: a replica could be recorded, or a half-written bundle be served."""
    begin_and_fill(store, meta, source)

    assert (None, {}, [meta.digest]) == (store.get(meta.digest), store.published(), store.arriving())
    assert list((store.data_dir / "bundles").iterdir()) == []


def test_begin_again_keeps_what_has_arrived(store: Store, meta: Metafile, source: Path) -> None:
    """A resumed download would start from nothing, or count its room twice."""
    directory = begin_and_fill(store, meta, source)
    before = tree(directory)

    assert directory == store.begin(meta)
    assert before == tree(directory)
    assert meta.size == store.usage().arriving_bytes


def test_begin_and_publish_of_a_published_bundle_change_nothing(
    store: Store, meta: Metafile, published: Digest
) -> None:
    """A second fetch of the same digest would unpublish it or write into it."""
    before = store.get(published)
    store.begin(meta)

    assert before == store.publish(published)
    assert store.arriving() == []


def test_publish_refuses_an_object_that_lacks_a_file(store: Store, meta: Metafile, source: Path) -> None:
    """An error of the caller would become a published bundle without one of its files."""
    directory = begin_and_fill(store, meta, source)
    (directory / "content" / "run.sh").unlink()
    with pytest.raises(TorrentdistError) as failure:
        store.publish(meta.digest)

    assert failure.value.code == "disk_error"
    assert (None, [meta.digest]) == (store.get(meta.digest), store.arriving())


def test_publish_refuses_a_file_of_the_wrong_size(store: Store, meta: Metafile, source: Path) -> None:
    """A file that was not written to its end would be published."""
    directory = begin_and_fill(store, meta, source)
    os.truncate(directory / "content" / "run.sh", 3)
    with pytest.raises(TorrentdistError) as failure:
        store.publish(meta.digest)

    assert failure.value.code == "corrupt"
    assert [meta.digest] == store.arriving()


def test_publish_of_what_was_never_begun_is_refused(store: Store, meta: Metafile) -> None:
    """A caller's mistake would look like a publication."""
    with pytest.raises(TorrentdistError) as failure:
        store.publish(meta.digest)

    assert failure.value.code == "not_found"


def test_metafile_is_there_from_begin_on(store: Store, meta: Metafile, source: Path) -> None:
    """A download could not go on, or a holder not seed, without asking a master for the
    metafile."""
    none_yet = store.metafile(meta.digest)
    begin_and_fill(store, meta, source)
    while_arriving = store.metafile(meta.digest)
    store.publish(meta.digest)

    assert (None, meta, meta) == (none_yet, while_arriving, store.metafile(meta.digest))
    assert meta.raw == store.raw_metafile(meta.digest)


def test_a_metafile_of_another_bundle_is_corrupt(store: Store, published: Digest, tmp_path: Path) -> None:
    """A holder with a damaged metafile would seed something else under the digest."""
    (tmp_path / "other").write_bytes(b"other")
    other = make_metafile(tmp_path / "other")
    (store.data_dir / "objects" / published / "metafile").write_bytes(other.raw)
    with pytest.raises(TorrentdistError) as failure:
        store.metafile(published)

    assert failure.value.code == "corrupt"
    assert [damage.path for damage in store.verify(published)] == ["metafile"]


def test_single_file_bundle_lies_in_its_content_directory(store: Store, tmp_path: Path) -> None:
    """A bundle that is one file would be one folder too high."""
    (tmp_path / "job.jar").write_bytes(b"jar" * 1000)
    meta = make_metafile(tmp_path / "job.jar")
    begin_and_fill(store, meta, tmp_path)
    stored = store.publish(meta.digest)

    assert tree(stored.content) == {"job.jar": (b"jar" * 1000, False)}


def test_discard_leaves_nothing(store: Store, published: Digest) -> None:
    """A removed bundle would go on filling the disk, or be served."""
    content = store.published()[published].content
    store.pin(published)
    store.discard(published)
    left = [path.name for name in ("objects", "bundles", "transit") for path in (store.data_dir / name).iterdir()]

    assert left == []
    assert not content.exists()
    assert (store.get(published), store.arriving(), store.usage().published_bytes) == (None, [], 0)


def test_what_was_claimed_meanwhile_is_not_evicted(store: Store, published: Digest) -> None:
    """A bundle that was mounted after the choice of what goes would be deleted."""
    assert not store.evict(published, lambda digest: {KeepReason.MOUNTED})
    assert store.settled(published) is not None
    assert store.evict(published, lambda digest: ())
    assert (None, False) == (store.settled(published), store.evict(published, lambda digest: ()))


def test_what_is_held_by_now_is_not_discarded(store: Store, meta: Metafile, source: Path, published: Digest) -> None:
    """If this fails, a removed bundle goes from under a program that has just asked for it."""
    assert not store.discard(published, lambda: True)
    assert store.settled(published) is not None
    assert store.discard(published, lambda: False)
    begin_and_fill(store, meta, source)
    assert store.discard(meta.digest, lambda: True)  # what arrives is of no use to anybody

    assert [] == store.arriving()


def test_discard_copes_with_read_only_directories(store: Store, published: Digest) -> None:
    """A bundle with a read-only directory in it could never be deleted by a daemon that is not
    root."""
    (store.published()[published].content / "lib").chmod(0o500)
    store.discard(published)

    assert list((store.data_dir / "transit").iterdir()) == []


def test_discarded_bundle_can_come_back(store: Store, meta: Metafile, source: Path, published: Digest) -> None:
    """An evicted bundle could not be fetched again."""
    store.discard(published)
    begin_and_fill(store, meta, source)
    store.publish(meta.digest)

    assert store.verify(meta.digest) == []


def test_abandon_drops_what_is_arriving(store: Store, meta: Metafile, source: Path) -> None:
    """A20: an abandoned upload would keep its room for ever."""
    directory = begin_and_fill(store, meta, source)
    store.abandon(meta.digest)

    assert not directory.exists()
    assert (store.arriving(), store.usage().arriving_bytes) == ([], 0)


def test_abandon_spares_what_is_published(store: Store, published: Digest) -> None:
    """Giving up a fetch that another caller has just completed would delete the bundle."""
    store.abandon(published)

    assert [published] == list(store.published())


def test_damaged_bundle_is_no_longer_served_and_keeps_its_bytes(
    store: Store, meta: Metafile, source: Path, published: Digest
) -> None:
    """A damaged bundle would be served, or be fetched again from its first byte."""
    content = store.published()[published].content
    store.set_aside(published, "run.sh: bytes changed")
    arrival = store.arrival(published)

    assert (None, [published], False) == (store.get(published), store.arriving(), content.exists())
    assert (store.data_dir / "objects" / published / "content" / "lib" / "größe.bin").exists()
    assert arrival is not None
    assert (meta.size, "run.sh: bytes changed") == (arrival.size, arrival.set_aside)


def test_repaired_bundle_is_published_again(store: Store, meta: Metafile, source: Path, published: Digest) -> None:
    """A holder could not repair itself: its files would stay read-only, or the old complaint would
    stay."""
    store.set_aside(published, "damaged")
    directory = store.begin(meta)
    writable = all(path.stat().st_mode & 0o200 for path in (directory / "content").rglob("*") if path.is_file())
    (directory / "content" / "run.sh").write_bytes((source / "run.sh").read_bytes())
    store.publish(published)

    assert writable
    assert (store.check_quick(published), store.verify(published), store.arrival(published)) == ([], [], None)
    assert not (store.data_dir / "objects" / published / "set-aside").exists()


def test_repair_does_not_write_into_a_linked_download(
    store: Store, meta: Metafile, published: Digest, tmp_path: Path
) -> None:
    """A repair would overwrite a user's changes in a download that shares its files with the
    store."""
    (tmp_path / "download").hardlink_to(store.published()[published].content / "run.sh")
    store.set_aside(published, "damaged")
    arrived = store.begin(meta) / "content" / "run.sh"
    before = arrived.read_bytes()
    arrived.write_bytes(b"repaired")

    assert before == b"#!/bin/sh\n"
    assert before == (tmp_path / "download").read_bytes()


def test_quick_check_sees_sizes_and_missing_files(store: Store, published: Digest) -> None:
    """Damage that is visible without reading a byte would be found only by the scrub, hours
    later."""
    content = store.published()[published].content
    untouched = store.check_quick(published)
    os.truncate(content / "run.sh", 1)
    (content / "lib" / "nothing").unlink()

    assert untouched == []
    assert {"run.sh", "lib/nothing"} == {damage.path for damage in store.check_quick(published)}


@pytest.mark.parametrize(("good", "bad"), [(b"]\n", b""), (b"run.sh", b"run\xffsh")])
def test_quick_check_sees_a_damaged_index(store: Store, published: Digest, good: bytes, bad: bytes) -> None:
    """A store that has lost the records of its files would call them good."""
    index = store.data_dir / "objects" / published / "index"
    index.write_bytes(index.read_bytes().replace(good, bad))

    assert [damage.path for damage in store.check_quick(published)] == ["index"]


def test_verify_reads_every_byte(store: Store, published: Digest) -> None:
    """Rotten bytes in a file with an unchanged identity would be served."""
    path = store.published()[published].content / "lib" / "größe.bin"
    before = path.stat()
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(50_000)
        byte = file.read(1)
        file.seek(50_000)
        file.write(bytes([byte[0] ^ 1]))
    path.chmod(0o444)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert [Damage("lib/größe.bin", "its bytes do not match its hash")] == store.verify(published)


def test_verify_tells_its_progress(store: Store, meta: Metafile, published: Digest) -> None:
    """Verifying a big bundle would look hung."""
    seen: list[tuple[int, int]] = []
    store.verify(published, lambda done, total: seen.append((done, total)))

    assert (meta.size, meta.size) == seen[-1]


def test_checks_of_an_unknown_bundle_are_refused(store: Store, meta: Metafile) -> None:
    """A bundle that is not there would be reported as undamaged."""
    codes = []
    for check in (store.check_quick, store.verify):
        with pytest.raises(TorrentdistError) as failure:
            check(meta.digest)
        codes.append(failure.value.code)

    assert codes == ["not_found", "not_found"]


def test_removing_what_is_not_there_changes_nothing(store: Store, meta: Metafile) -> None:
    """A removal that is delivered twice would fail the second time."""
    store.discard(meta.digest)
    store.abandon(meta.digest)
    store.set_aside(meta.digest, "damaged")

    assert (store.published(), store.arriving()) == ({}, [])


def test_names_outlive_the_bytes(store: Store, published: Digest) -> None:
    """The meaning of an id would be forgotten with an eviction, and a download would need ZooKeeper
    again."""
    store.bind(BundleId("etl-42"), published)
    store.discard(published)

    assert (published, {BundleId("etl-42")}) == (store.lookup(BundleId("etl-42")), store.names(published))


def test_threads_at_work_on_one_bundle_take_turns(store: Store, meta: Metafile, source: Path) -> None:
    """One thread would delete a bundle while another publishes it."""
    failures: list[BaseException] = []

    def work(turn: Callable[[], object]) -> None:
        try:
            for _ in range(20):
                turn()
        except BaseException as exc:
            failures.append(exc)

    def publish() -> None:
        # Between its two calls another thread may have removed the object. Then it reports that,
        # and nothing else.
        try:
            store.begin(meta)
            store.publish(meta.digest)
        except TorrentdistError as exc:
            if exc.code not in ("not_found", "disk_error"):
                raise

    turns = (publish, publish, lambda: store.discard(meta.digest), lambda: store.set_aside(meta.digest, "x"))
    threads = [threading.Thread(target=work, args=[turn]) for turn in turns]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    store.discard(meta.digest)
    begin_and_fill(store, meta, source)
    store.publish(meta.digest)

    assert failures == []
    assert store.verify(meta.digest) == []
    assert list((store.data_dir / "transit").iterdir()) == []
