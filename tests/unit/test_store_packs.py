"""A store with bundles of many small files: versions share what they have in common on the disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from torrentdist.bundle.content_check import remove_wrong_packs, verify_content, verify_packs
from torrentdist.bundle.files.joined_files import write_at
from torrentdist.bundle.files.shared_blocks import disk_use
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.bundle.packs.pack_files import write_files, write_known_files, write_packs
from torrentdist.bundle.packs.pack_filling import SmallSource, fill_packs
from torrentdist.bundle.reuse.store_reuse import StoreReuse
from torrentdist.bundle.store import store_checks
from torrentdist.bundle.store.object_index import mark_files, marked_files
from torrentdist.bundle.store.store import Store
from torrentdist.testing.sample_trees import some_bytes, write_tree

OLD = {f"d{number % 9}/f{number:03}": some_bytes(3000 + number, number) for number in range(600)}
DIRECTORIES = {path.partition("/")[0] for path in OLD}
LARGE = {"large.bin": some_bytes(500_000, 1)}


class Site:
    def __init__(self, top: Path) -> None:
        self.top = top
        self.store = Store.open(top / "data")
        self.reuse = StoreReuse(self.store)
        self.reuse.may_link = True

    def home(self, meta: Metafile) -> Path:
        return self.store.object_dir(meta.digest)

    def source(self, name: str, tree: dict[str, bytes]) -> Metafile:
        write_tree(self.top / name, tree)
        return make_metafile(self.top / name)

    def take(self, name: str, meta: Metafile) -> list[bool]:
        """Publishes a bundle: from what is here, and the rest from its source as from the swarm.
        Returns which pieces were here."""
        home = self.store.begin(meta)
        have = self.reuse.fill(meta, lambda: True).have
        have = [False] * meta.num_pieces if have is None else list(have)
        write_packs(meta, self.top / name, self.top / f"{name}-swarm")
        at = 0
        for file in meta.wire_files:
            data = ((self.top / f"{name}-swarm" if file.is_pack else self.top / name) / _below(file.place)).read_bytes()
            for start in range(0, file.size, meta.piece_length):
                if not have[at]:
                    self.fetch(meta, home / file.place, data, start)
                at += 1
        write_files(meta, home)
        self.store.publish(meta.digest)
        self.reuse.catch_up()
        return have

    def fetch(self, meta: Metafile, path: Path, data: bytes, start: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "r+b" if path.exists() else "w+b") as file:
            file.seek(start)
            file.write(data[start : start + meta.piece_length])


def _below(place: str) -> str:
    return place.removeprefix("content/")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.store.close()


def sound(site: Site, meta: Metafile) -> bool:
    return not verify_content(meta, site.home(meta) / "content") and not verify_packs(meta, site.home(meta))


@pytest.mark.case("H1")
def test_the_second_version_takes_room_for_what_changed(site: Site) -> None:
    """A disk without reflinks would hold every version of an environment in full."""
    old = site.source("old", OLD | LARGE)
    new = site.source("new", OLD | LARGE | {"d4/f004": b"patched"})
    site.take("old", old)
    have = site.take("new", new)

    assert sound(site, old)
    assert sound(site, new)
    assert sum(have) > 0.9 * len(have)
    assert disk_use(site.home(new), clones=False).own < 0.6 * disk_use(site.top / "old", clones=False).own


def test_links_leave_the_old_version_as_it_was_published(site: Site) -> None:
    """Every new version would have all older ones read again when they are handed out."""
    old = site.source("old", OLD | LARGE)
    site.take("old", old)
    site.take("new", site.source("new", OLD | LARGE | {"d4/f004": b"patched"}))
    changes = [path for path, mark in _marks(site, old).items() if mark != os.lstat(path).st_ctime_ns]

    assert [] == changes
    assert [] == site.store.check(old.digest)


def test_links_from_one_version_leave_all_that_share_its_files(site: Site) -> None:
    """A restart would read every older version in full."""
    first = site.source("first", OLD | LARGE)
    site.take("first", first)
    site.take("second", site.source("second", OLD | LARGE | {"d4/f004": b"patched"}))
    site.take("third", site.source("third", OLD | LARGE | {"d4/f004": b"once more"}))
    (site.home(first) / "metafile").write_bytes(b"whoever reads files now needs this")

    assert [] == site.store.check_quick(first.digest)


def _marks(site: Site, meta: Metafile) -> dict[str, int]:
    content = site.home(meta) / "content"
    return {str(content / mark.path): mark.ctime_ns for mark in site.store._objects.marks(meta.digest)}


def test_small_files_share_their_bytes_in_whatever_directory_they_are(site: Site) -> None:
    """Every version of an environment would take room for all its small files again, since most of
    them are in directories of directories."""
    tree = {path.replace("/", "/site/lib/"): data for path, data in OLD.items()}
    tree |= {"d1/site/lib/large.bin": some_bytes(500_000, 1)}
    site.take("old", site.source("old", tree))
    new = site.source("new", tree | {"d4/site/lib/f004": b"patched"})
    site.take("new", new)
    content = site.home(new) / "content"

    assert {"d4/site/lib/f004"} == {path for path in tree if (content / path).stat().st_nlink == 1}


@pytest.mark.case("H4")
def test_the_old_version_goes_and_the_new_one_stays(site: Site) -> None:
    """Removing one version would take files of the other one with it."""
    old = site.source("old", OLD | LARGE)
    new = site.source("new", OLD | LARGE | {"d4/f004": b"patched"})
    site.take("old", old)
    site.take("new", new)
    site.store.discard(old.digest)

    assert [] == site.store.check(new.digest)
    assert sound(site, new)


def test_a_removed_version_leaves_no_doubt_about_the_others(site: Site) -> None:
    """Each eviction would have what stays read in full when it is handed out."""
    old = site.source("old", OLD | LARGE)
    new = site.source("new", OLD | LARGE | {"d4/f004": b"patched"})
    site.take("old", old)
    site.take("new", new)
    spoiled = site.home(new) / "content/d3/f012"
    spoiled.chmod(0o644)
    spoiled.write_bytes(bytes(spoiled.stat().st_size))
    site.store.discard(old.digest)
    (site.home(new) / "metafile").write_bytes(b"whoever reads files now needs this")
    rest = [file.path for file in new.files if file.path != "d3/f012"]

    assert [] == site.store.check(new.digest, rest)
    assert ["metafile"] == [damage.path for damage in site.store.check(new.digest, ["d3/f012"])]


@pytest.mark.case("H4")
def test_bytes_that_arrive_never_go_into_a_file_of_another_bundle(site: Site) -> None:
    """An uploader could write into every bundle that shares a file with its own."""
    old = site.source("old", OLD | LARGE)
    new = site.source("new", OLD | LARGE | {"d4/f004": b"patched"})
    site.take("old", old)
    home = site.store.begin(new)
    site.reuse.fill(new, lambda: True)
    write_at(new, home / "content", 0, bytes(new.size))

    assert sound(site, old)


@pytest.mark.case("H4")
def test_a_repair_never_writes_into_a_file_of_another_bundle(site: Site) -> None:
    """A damaged version, fetched again, would damage the others while its bytes arrive."""
    old = site.source("old", OLD | LARGE)
    new = site.source("new", OLD | LARGE | {"d4/f004": b"patched"})
    site.take("old", old)
    site.take("new", new)
    site.store.set_aside(new.digest, "damaged")
    home = site.store.begin(new)
    shared = [path for path in (home / "content").rglob("*") if path.is_file() and path.stat().st_nlink > 1]

    assert [] == shared
    assert sound(site, old)


@pytest.mark.case("H4")
def test_what_goes_on_leaves_small_files_linked_and_mends_them(site: Site) -> None:
    """A fetch that was interrupted would copy every small file that it had linked, and one that
    mends a linked file would write into another bundle."""
    old = site.source("old", OLD | LARGE)
    new = site.source("new", OLD | LARGE | {"d4/f004": b"patched"})
    site.take("old", old)
    site.take("new", new)
    wrong = site.home(new) / "content/d3/f003"
    wrong.chmod(0o644)
    wrong.write_bytes(bytes(wrong.stat().st_size))
    site.store.set_aside(new.digest, "damaged")
    home = site.store.begin(new, keeps_links=True)
    linked = [path for path in home.rglob("*") if path.is_file() and path.stat().st_nlink > 1]
    write_files(new, home)
    site.store.publish(new.digest)

    assert len(linked) > 0.9 * len(OLD)
    assert all("content/d" in str(path) for path in linked)
    assert sound(site, new)
    assert ["d3/f003"] == [damage.path for damage in verify_content(old, site.home(old) / "content")]


@pytest.mark.case("H2")
def test_a_small_file_that_was_changed_is_not_taken_over(site: Site) -> None:
    """What somebody wrote into a store would spread to every later version."""
    old = site.source("old", OLD)
    site.take("old", old)
    victim = site.home(old) / "content/d3/f003"
    victim.chmod(0o644)
    victim.write_bytes(bytes(victim.stat().st_size))
    victim.chmod(0o444)
    new = site.source("new", OLD | {"d4/f004": b"patched"})
    site.take("new", new)

    assert sound(site, new)


@pytest.mark.case("N2")
def test_packs_that_are_gone_are_made_again_from_the_files(site: Site) -> None:
    """A plug-in that moves the files would leave a bundle that nobody can get from the swarm."""
    meta = site.source("old", OLD)
    home = site.store.begin(meta)
    shutil.copytree(site.top / "old", home / "content", dirs_exist_ok=True)
    site.store.publish(meta.digest)

    assert sound(site, meta)


@pytest.mark.case("E5")
def test_a_flipped_bit_in_a_pack_is_damage(site: Site) -> None:
    """A host would offer wrong pieces, and no check would find them."""
    meta = site.source("old", OLD)
    site.take("old", meta)
    pack = site.home(meta) / "packs/00000"
    data = bytearray(pack.read_bytes())
    data[1000] ^= 1
    pack.chmod(0o644)
    pack.write_bytes(data)

    assert ["packs/00000"] == [damage.path for damage in site.store.verify(meta.digest)]
    assert ["packs/00000"] == [damage.path for damage in site.store.check(meta.digest)]


@pytest.mark.parametrize("change", ["gone", "short", "a directory"])
def test_a_pack_that_cannot_be_read_is_damage(site: Site, change: str) -> None:
    """If this fails, a host offers pieces that it does not have."""
    meta = site.source("old", OLD)
    site.take("old", meta)
    pack, home = site.home(meta) / "packs/00001", site.home(meta)
    if change == "short":
        os.truncate(pack, 100)
    else:
        pack.unlink()
    if change == "a directory":
        pack.mkdir()

    assert ["packs/00001"] == [damage.path for damage in verify_packs(meta, home)]
    assert [] == verify_packs(meta, home, ["../packs/00000"])


def test_packs_are_read_only_once_published(site: Site) -> None:
    """If this fails, a program that runs as the daemon's user writes into them by mistake."""
    meta = site.source("old", OLD)
    site.take("old", meta)
    modes = {os.stat(pack).st_mode & 0o777 for pack in (site.home(meta) / "packs").iterdir()}

    assert {0o444} == modes


def test_small_files_that_a_pack_lacks_are_not_written_from_it(site: Site) -> None:
    """If this fails, a plug-in that moves files is given zeros, and takes them for the file."""
    meta = site.source("old", OLD)
    home = site.store.begin(meta)
    write_packs(meta, site.top / "old", home)
    pack, files = meta.packs[0]
    with open(home / pack.place, "r+b") as begun:
        begun.write(bytes(files[0].size))
    write_known_files(meta, home)
    there = {str(path.relative_to(home / "content")) for path in (home / "content").rglob("*") if path.is_file()}

    assert {files[0].path} == OLD.keys() - there


def test_a_link_in_the_place_of_a_pack_is_no_pack(site: Site) -> None:
    """A plug-in that leaves a link there would be read through it, whatever it leads to."""
    meta = site.source("old", {path: data[:6] for path, data in OLD.items()})
    ((pack, _),) = meta.packs
    place = site.top / "home" / pack.place
    place.parent.mkdir(parents=True)
    place.symlink_to("x" * pack.size)
    write_packs(meta, site.top / "old", site.top / "home")

    assert (False, pack.size) == (place.is_symlink(), place.stat().st_size)


def test_a_source_with_other_bytes_goes_into_no_pack(site: Site) -> None:
    """If this fails, nobody looks at a bundle that was found to be damaged, and its bytes are
    hashed once more for nothing."""
    meta = site.source("old", OLD)
    wrong: list[SmallSource] = []
    victim, sound = meta.packs[0][1][:2]
    (site.top / "old" / victim.path).write_bytes(b"x" * victim.size)
    (site.top / "home").mkdir()
    known = [SmallSource(file, site.top / "old", file.path) for file in (victim, sound)]
    fill_packs(meta, site.top / "home", known, lambda: True, wrong.append)
    data = (site.top / "home" / meta.packs[0][0].place).read_bytes()

    assert [victim.path] == [one.file.path for one in wrong]
    assert bytes(victim.size) + OLD[sound.path] == data[: victim.size + sound.size]


@pytest.mark.case("H1")
def test_a_plug_in_that_moves_files_finds_the_known_ones(site: Site) -> None:
    """It would fetch an environment again for one patched file, and what the packs lack would be
    published as zeros."""
    site.take("old", site.source("old", OLD))
    new = site.source("new", OLD | {"d4/f004": b"patched"})
    home = site.store.begin(new)
    site.reuse.may_link = False
    site.reuse.fill(new, lambda: True)
    write_known_files(new, home)
    there = {str(path.relative_to(home / "content")) for path in (home / "content").rglob("*") if path.is_file()}
    (home / "content/d4/f004").write_bytes(b"patched")
    remove_wrong_packs(new, home)
    site.store.publish(new.digest)

    assert {"d4/f004"} == {file.path for file in new.packed.files} - there
    assert sound(site, new)


def test_files_in_doubt_are_read_together(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a version that shares its files is removed, each file that is read would cost a new
    index of fifty thousand."""
    meta = site.source("old", OLD)
    site.take("old", meta)
    put_in_doubt(site, meta)
    monkeypatch.setattr(store_checks, "TICK_NS", -1_000_000_000)
    first = site.store.check(meta.digest, ["d4/f004"])
    (site.home(meta) / "metafile").write_bytes(b"whoever reads files now needs this")

    assert ([], []) == (first, site.store.check_quick(meta.digest))


def test_a_pack_in_doubt_is_read_without_the_others(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive of a bundle whose packs are in doubt would read all of them for each."""
    meta = site.source("old", OLD)
    site.take("old", meta)
    put_in_doubt(site, meta)
    other = site.home(meta) / "packs/00001"
    other.chmod(0o644)
    other.write_bytes(bytes(other.stat().st_size))
    monkeypatch.setattr(store_checks, "READ_ALONG", 0)

    assert [] == site.store.check(meta.digest, ["../packs/00000"])
    assert ["packs/00001"] == [damage.path for damage in site.store.check(meta.digest, ["../packs/00001"])]


def put_in_doubt(site: Site, meta: Metafile) -> None:
    """Changes the times of all files as a link does that comes and goes."""
    for path in [path for path in site.home(meta).rglob("*") if path.parent.name in ("packs", *DIRECTORIES)]:
        (site.top / "link").hardlink_to(path)
        (site.top / "link").unlink()


@pytest.mark.case("H4")
def test_a_small_file_with_wrong_bytes_makes_its_bundle_suspect(site: Site) -> None:
    """What a disk has changed without a trace would be found by nobody but the next job."""
    old = site.source("old", OLD)
    site.take("old", old)
    victim = site.home(old) / "content/d4/f013"
    victim.chmod(0o644)
    victim.write_bytes(bytes(victim.stat().st_size))
    victim.chmod(0o444)
    site.store._objects.mark_anew(old.digest, mark_files(site.home(old) / "content", marked_files(old)))
    site.store._checks.forget(old.digest)
    new = site.source("new", OLD | {"d4/f004": b"patched"})
    site.store.begin(new)

    assert {old.digest} == site.reuse.fill(new, lambda: True).suspects


@pytest.mark.case("H2")
def test_the_versions_that_share_a_damaged_file_are_named(site: Site) -> None:
    """The older version would hand out wrong bytes until somebody verifies it, too."""
    trees = {"old": OLD, "new": OLD | {"d4/f004": b"patched"}, "other": {"large.bin": LARGE["large.bin"]}}
    metas = {name: site.source(name, tree) for name, tree in trees.items()}
    for name, meta in metas.items():
        site.take(name, meta)
    shared = site.home(metas["new"]) / "content/d4/f013"
    shared.chmod(0o644)
    shared.write_bytes(bytes(shared.stat().st_size))
    damage = [one.path for one in site.store.verify(metas["new"].digest)]

    assert "d4/f013" in damage
    assert [metas["old"].digest] == site.store.sharers(metas["new"].digest, damage)
    assert [] == site.store.sharers(metas["new"].digest, ["d4/f004"])
