"""Files that a store has already are taken into a bundle that arrives, or left to the swarm.

Longer than most files: all its tests share one store with an older version.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from small_disks import small_disk  # noqa: F401

from torrentdist.bundle.content_check import verify_content
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile, make_metafile_and_recipe
from torrentdist.bundle.reuse.chunker import LARGE_FILE
from torrentdist.bundle.reuse.directory_sources import fill_from_directories, held_by_directory, held_by_store
from torrentdist.bundle.reuse.file_filling import Filling
from torrentdist.bundle.reuse.own_sizes import OwnSizes
from torrentdist.bundle.reuse.recipe import parse_recipe
from torrentdist.bundle.reuse.reuse_plan import wanted_hints
from torrentdist.bundle.reuse.store_reuse import StoreReuse
from torrentdist.bundle.store.object_index import look_at_files
from torrentdist.bundle.store.store import Store
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest
from torrentdist.testing.sample_trees import read_tree, some_bytes, write_tree

OLD: Mapping[str, bytes] = {
    "lib/large.bin": some_bytes(300_000, 1),
    "lib/small.txt": b"small",
    "data/same": some_bytes(70_000, 2),
}
NEW: Mapping[str, bytes] = {
    "renamed/large.bin": OLD["lib/large.bin"],
    "lib/small.txt": OLD["lib/small.txt"],
    "twice/same": OLD["data/same"],
    "twice/same again": OLD["data/same"],
    "lib/new.bin": some_bytes(90_000, 3),
}
REUSED = {"renamed/large.bin", "lib/small.txt", "twice/same", "twice/same again"}


class Site:
    """A store, and what it takes from itself."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.store = Store.open(work / "data")
        self.reuse = StoreReuse(self.store)

    def meta(self, name: str, tree: Mapping[str, bytes], piece_length: int | None = None) -> Metafile:
        write_tree(self.work / name, tree)
        return make_metafile(self.work / name, piece_length=piece_length)

    def publish(self, name: str, tree: Mapping[str, bytes]) -> Metafile:
        meta = self.meta(name, tree)
        shutil.copytree(self.work / name, self.store.begin(meta) / "content", dirs_exist_ok=True)
        self.store.publish(meta.digest)
        return meta

    def content(self, digest: Digest) -> Path:
        return self.store.object_dir(digest) / "content"

    def fill(self, meta: Metafile, progress: Callable[[int], None] = lambda done: None) -> Filling:
        self.store.begin(meta)
        return self.reuse.fill(meta, lambda: True, progress)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.store.close()


def pieces_of(meta: Metafile, paths: set[str]) -> list[bool]:
    return [file.path in paths for file in meta.files for _ in range(-(-file.size // meta.piece_length))]


@pytest.mark.case("H1")
@pytest.mark.parametrize("piece_length", [32 * 1024, 1024 * 1024])
def test_known_files_are_taken_wherever_they_were(site: Site, piece_length: int) -> None:
    """A renamed file, a copy, or a file in a bundle with other pieces would cross the network."""
    site.publish("old", OLD)
    meta = site.meta("new", NEW, piece_length)
    filling = site.fill(meta)

    assert read_tree(site.content(meta.digest)) == {path: NEW[path] for path in REUSED}
    assert filling.size == sum(len(NEW[path]) for path in REUSED)
    assert filling.have == pieces_of(meta, REUSED)
    assert filling.suspects == frozenset()


@pytest.mark.case("H1")
def test_a_file_is_found_in_whichever_bundle_has_it(site: Site) -> None:
    """Only the last version would count, and files that came back would be fetched again."""
    for number, (path, content) in enumerate(OLD.items()):
        site.publish(f"old-{number}", {path: content})
    filling = site.fill(site.meta("new", NEW))

    assert filling.size == sum(len(NEW[path]) for path in REUSED)


def test_a_damaged_index_does_not_end_the_fetch_of_another_bundle(site: Site) -> None:
    """A single bit that turns on its disk would keep a host from fetching anything new."""
    old = site.publish("old", OLD)
    index, site.reuse.may_link = site.store.object_dir(old.digest) / "index", True
    index.write_bytes(b"x" + index.read_bytes()[1:])
    filling = site.fill(site.meta("new", NEW))

    assert filling.size == sum(len(NEW[path]) for path in REUSED)
    assert filling.suspects == {old.digest}


def test_a_host_without_an_older_version_changes_nothing(site: Site) -> None:
    """The first upload of anything would be slower than before."""
    site.publish("other", {"other.bin": some_bytes(100_000, 9)})
    meta = site.meta("new", NEW)

    assert site.fill(meta) == Filling()
    assert list(site.content(meta.digest).iterdir()) == []


@pytest.mark.case("H4")
def test_a_bundle_that_was_removed_is_no_source(site: Site) -> None:
    """Files of a bundle that is gone would be counted on."""
    old = site.publish("old", OLD)
    meta = site.meta("new", NEW)
    assert [old.digest] == site.reuse.sources(meta)
    site.store.discard(old.digest)

    assert site.fill(meta) == Filling()


@pytest.mark.case("H4")
def test_a_source_that_goes_in_the_middle_is_left_to_the_swarm(site: Site) -> None:
    """An eviction during a fetch would end the fetch."""
    old = site.publish("old", OLD)
    meta = site.meta("new", NEW)
    known = site.reuse.known(meta)
    shutil.rmtree(site.store.object_dir(old.digest) / "content" / "lib")
    filling = site.fill(meta)

    assert len(known) == len(REUSED)
    assert filling.size == 2 * len(OLD["data/same"])
    assert old.digest in filling.suspects


@pytest.mark.case("H2")
@pytest.mark.case("H4")
def test_a_file_that_was_written_to_is_not_taken(site: Site) -> None:
    """What somebody wrote into the old version would become part of the new one."""
    old = site.publish("old", OLD)
    meta = site.meta("new", NEW)
    place = site.content(old.digest) / "lib" / "large.bin"
    place.chmod(0o644)
    with place.open("r+b") as file:
        file.write(b"mine")
    filling = site.fill(meta)

    assert "renamed/large.bin" not in read_tree(site.content(meta.digest))
    assert filling.have == pieces_of(meta, REUSED - {"renamed/large.bin"})
    assert filling.suspects == {old.digest}


@pytest.mark.case("H2")
def test_a_file_whose_bytes_rotted_under_its_mark_is_not_taken(site: Site) -> None:
    """A damaged disk would spread its damage from version to version."""
    old = site.publish("old", OLD)
    meta = site.meta("new", NEW)
    place = site.content(old.digest) / "lib" / "large.bin"
    place.chmod(0o644)
    with place.open("r+b") as file:
        file.write(b"rot")
    # Rot changes no times, so the mark is set to what writing left.
    marks = site.store._checks._recall(old.digest).marks
    marks.update(look_at_files(site.content(old.digest), ["lib/large.bin"]))
    assert site.store.check(old.digest) == []
    filling = site.fill(meta)

    assert "renamed/large.bin" not in read_tree(site.content(meta.digest))
    assert filling.have == pieces_of(meta, REUSED - {"renamed/large.bin"})
    assert filling.suspects == {old.digest}


@pytest.mark.case("H4")
def test_a_fifo_in_place_of_a_source_blocks_nothing(site: Site) -> None:
    """A fetch would wait forever for a writer of the fifo."""
    old = site.publish("old", OLD)
    place = site.content(old.digest) / "lib" / "large.bin"
    place.unlink()
    os.mkfifo(place)
    began = time.monotonic()
    filling = site.fill(site.meta("new", NEW))

    assert time.monotonic() - began < 10
    assert filling.size == sum(len(NEW[path]) for path in REUSED - {"renamed/large.bin"})


@pytest.mark.case("H2")
@pytest.mark.case("H4")
def test_what_is_there_after_a_crash_is_hashed_again(site: Site) -> None:
    """A file that a killed process had half copied would count as whole."""
    site.publish("old", OLD)
    meta = site.meta("new", NEW)
    content = site.store.begin(meta) / "content"
    write_tree(content, {"renamed/large.bin": OLD["lib/large.bin"][:1000], "lib/small.txt": b"SMALL"})
    filling = site.fill(meta)

    assert filling.have is None
    assert (content / "renamed" / "large.bin").read_bytes() == OLD["lib/large.bin"]
    assert (content / "lib" / "small.txt").read_bytes() == b"SMALL"


def test_zeros_become_holes_beside_files_that_are_known(site: Site) -> None:
    """Zeros would be fetched, or counted as here without a file that holds them."""
    zeros = bytes(512 * 1024)
    site.publish("old", OLD)
    meta = site.meta("new", {**NEW, "zeros.bin": zeros, "mixed.bin": some_bytes(65_536, 4) + zeros})
    filling = site.fill(meta)
    content = site.content(meta.digest)

    assert filling.have is not None
    assert (content / "zeros.bin").read_bytes() == zeros
    assert (content / "zeros.bin").stat().st_blocks == 0
    missing = [file.path for file in meta.files if not any(pieces_of(meta, {file.path}))]
    assert missing == []
    held = [one for one, zero in zip(filling.have, pieces_of(meta, {"zeros.bin"}), strict=True) if zero]
    assert all(held)


def test_the_work_ends_when_it_is_told_to(site: Site) -> None:
    """A removed bundle would go on being written to."""
    site.publish("old", OLD)
    meta = site.meta("new", NEW)
    site.store.begin(meta)
    filling = site.reuse.fill(meta, lambda: False)

    assert filling.have is None
    assert read_tree(site.content(meta.digest)).keys() <= {"lib/small.txt"}


def test_progress_counts_every_byte_once(site: Site) -> None:
    """The masters would be told of more than there is."""
    site.publish("old", OLD)
    told: list[int] = []
    filling = site.fill(site.meta("new", NEW), told.append)

    assert told == sorted(set(told))
    assert told[-1] == filling.size


def test_a_damaged_metafile_of_a_source_costs_nothing_else(site: Site) -> None:
    """One bad file of an old bundle would stop every fetch of this host."""
    old = site.publish("old", OLD)
    (site.store.object_dir(old.digest) / "metafile").write_bytes(b"d4:infoi1ee")

    assert site.fill(site.meta("new", NEW)) == Filling()


@pytest.mark.case("H4")
def test_a_full_disk_is_the_usual_error(tmp_path: Path, small_disk: Callable[[int], Path]) -> None:  # noqa: F811
    """A full disk would look like damage, or leave half a file that counts."""
    site = Site(tmp_path)
    site.publish("old", {"large.bin": some_bytes(3_000_000, 5)})
    meta = site.meta("new", {"large.bin": some_bytes(3_000_000, 5), "x": b"x"})
    site.store.begin(meta)
    full = small_disk(2_000_000)
    site.content(meta.digest).rmdir()
    (site.store.object_dir(meta.digest) / "content").symlink_to(full)
    with pytest.raises(TorrentdistError) as caught:
        site.reuse.fill(meta, lambda: True)
    site.store.close()

    assert caught.value.code == "disk_full"
    assert list(full.iterdir()) == []


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A directory on another file system."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system to write to")
    path = Path(tempfile.mkdtemp(dir=memory, prefix="torrentdist-test-"))
    yield path
    shutil.rmtree(path)


@pytest.mark.case("H1")
@pytest.mark.case("H4")
def test_a_directory_on_another_file_system_is_a_source(site: Site, elsewhere: Path) -> None:
    """`download --from` would fail where a reflink cannot be made."""
    write_tree(elsewhere / "old", OLD)
    (elsewhere / "old" / "loop").symlink_to("/")
    meta = site.meta("new", NEW)
    content = site.store.begin(meta) / "content"
    filling = fill_from_directories(
        meta, content, [held_by_directory(elsewhere / "old", meta)], lambda: True, lambda done: None
    )

    assert read_tree(content) == {path: NEW[path] for path in REUSED}
    assert filling.have == pieces_of(meta, REUSED)


def test_a_single_file_is_a_source_too(site: Site) -> None:
    """An archive's older copy could not be named."""
    meta = site.meta("new", NEW)
    write_tree(site.work / "alone", {"any name": OLD["lib/large.bin"]})
    content = site.store.begin(meta) / "content"
    held = held_by_directory(site.work / "alone" / "any name", meta)
    filling = fill_from_directories(meta, content, [held], lambda: True, lambda done: None)

    assert filling.size == len(OLD["lib/large.bin"])


def test_the_store_of_a_daemon_is_a_source_for_a_download(site: Site) -> None:
    """A download without a supervisor would fetch what the host's store has."""
    site.publish("old", OLD)
    meta = site.meta("new", NEW)
    content = site.work / "part"
    content.mkdir()
    filling = fill_from_directories(meta, content, held_by_store(site.work / "data"), lambda: True, lambda done: None)

    assert filling.have == pieces_of(meta, REUSED)
    assert list(held_by_store(site.work / "nothing")) == []


def test_filled_content_passes_the_check_of_a_publication(site: Site) -> None:
    """A bundle made of old files would fail at its publication."""
    site.publish("old", OLD)
    meta = site.meta("new", {**OLD, "more/small.txt": b"small"})
    filling = site.fill(meta)
    site.store.publish(meta.digest)

    assert filling.have is not None
    assert all(filling.have)
    assert verify_content(meta, site.content(meta.digest)) == []


def test_own_bytes_are_all_bytes_where_no_blocks_are_shared(site: Site) -> None:
    """`supervisor ls` would show a full disk as an empty one."""
    old = site.publish("old", OLD)
    sizes = OwnSizes(site.store)
    before = sizes.of(old.digest, old.size)
    sizes.measure(site.reuse.take_stale())

    assert old.size == before == sizes.of(old.digest, old.size)


def test_a_publication_makes_only_its_sources_stale(site: Site) -> None:
    """Each publication would measure every file of every bundle on this host."""
    old = site.publish("old", OLD)
    site.publish("a twin", {**OLD, "one more": b"more"})
    site.publish("other", {"other.bin": some_bytes(100_000, 9)})
    site.reuse.catch_up()
    site.reuse.take_stale()
    meta = site.meta("new", {"same": OLD["lib/large.bin"], "twin's": b"more"})
    site.fill(meta)
    site.reuse.catch_up()
    while_it_arrives = site.reuse.take_stale()
    site.store.publish(meta.digest)
    site.reuse.catch_up()
    after = site.reuse.take_stale()

    assert while_it_arrives == frozenset()
    assert len(after) == 1
    assert old.digest not in after


def test_parts_that_were_taken_make_their_source_stale(site: Site) -> None:
    """Blocks that a large file shares with its older version would count twice."""
    large = some_bytes(LARGE_FILE + 100_000, 1)
    old = site.publish("old", {"large.bin": large})
    site.publish("other", {"large.bin": some_bytes(LARGE_FILE + 100_000, 2)})
    site.reuse.catch_up()
    write_tree(site.work / "new", {"large.bin": large + b"more"})
    meta, recipe = make_metafile_and_recipe(site.work / "new")
    site.store.begin(meta)
    site.reuse.fill(meta, lambda: True, recipe=parse_recipe(recipe))
    site.store.abandon(meta.digest)
    site.reuse.catch_up()

    assert site.reuse.take_stale() == {old.digest}


def test_a_removal_makes_those_stale_that_hold_the_same_files(site: Site) -> None:
    """A bundle whose blocks nobody else uses any more would seem to take no room."""
    old = site.publish("old", OLD)
    new = site.publish("new", NEW)
    site.publish("other", {"other.bin": some_bytes(100_000, 9)})
    site.reuse.catch_up()
    site.store.discard(old.digest)
    site.reuse.catch_up()

    assert [site.reuse.take_stale() for _ in range(3)] == [{new.digest}, {new.digest}, frozenset()]


@pytest.mark.alone
def test_thousands_of_files_are_matched_quickly(site: Site) -> None:
    """A host would look for known files for seconds before it fetches anything. It takes long:
    thousands of files are written and hashed."""
    tree = {f"{number % 50}/{number}": b"%d" % number for number in range(4_000)}
    site.publish("old", tree)
    meta = site.meta("new", tree | {"more": b"more"})
    site.store.begin(meta)
    began = time.process_time()
    known = site.reuse.known(meta)
    took = time.process_time() - began

    assert len(known) == 4_000
    assert took < 0.25


@pytest.mark.alone
def test_a_bundle_without_known_files_waits_for_nothing(site: Site) -> None:
    """The first upload of anything would become slower with every bundle that a host keeps."""
    for number in range(200):
        site.reuse._index.add(Digest(f"{number:064x}"), [os.urandom(32) for _ in range(5_000)])
    meta = site.meta("new", {f"{number % 50}/{number}": b"%d" % number for number in range(5_000)})
    site.store.begin(meta)
    wanted = wanted_hints(meta.files)
    began = time.monotonic()
    found = site.reuse._index.find(wanted.keys())
    took = time.monotonic() - began

    assert found == {}
    assert took < 1.0


def test_a_disk_error_while_filling_is_one_of_the_table(site: Site) -> None:
    """A host whose disk fails or is full would fetch the bundle again and again without a pause,
    and tell nobody why."""
    site.publish("old", OLD)
    meta = site.meta("new", NEW)
    site.store.begin(meta)
    shutil.rmtree(site.content(meta.digest))
    with pytest.raises(TorrentdistError) as caught:
        site.reuse.fill(meta, lambda: True)

    assert ("disk_error", str(site.content(meta.digest))) == (caught.value.code, caught.value.fields["path"])
