"""Parts of large files are taken from older versions, and only what is right counts."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from small_disks import small_disk  # noqa: F401

from torrentdist.bundle.content_check import verify_content
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile_and_recipe
from torrentdist.bundle.reuse import chunk_plan
from torrentdist.bundle.reuse.chunk_plan import OwnFile, known_parts
from torrentdist.bundle.reuse.directory_sources import fill_from_directories, large_files_below
from torrentdist.bundle.reuse.file_filling import Filling
from torrentdist.bundle.reuse.part_filling import RECIPE
from torrentdist.bundle.reuse.recipe import (
    LEAST,
    MAX_RECIPE_BYTES,
    MOST,
    FileRecipe,
    Recipe,
    encode_recipe,
    file_recipe,
    parse_recipe,
    split_recipe,
    with_recipe,
)
from torrentdist.bundle.reuse.reuse_plan import Reused
from torrentdist.bundle.reuse.store_reuse import StoreReuse
from torrentdist.bundle.store.object_index import look_at_files
from torrentdist.bundle.store.store import Store
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest
from torrentdist.testing.sample_trees import some_bytes

SIZE = 12_000_000
OLD = some_bytes(SIZE, 1)
NEW = OLD[:3_000_000] + some_bytes(200_000, 2) + OLD[3_000_000:]
CHANGED = 200_000 + 3 * MOST + 4 * 32 * 1024
"""At most the new bytes, the chunks at their ends, and the pieces at the ends of these."""


class Site:
    """A store with an old version of a file."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.store = Store.open(work / "data")
        self.reuse = StoreReuse(self.store)

    def make(self, name: str, content: bytes) -> tuple[Metafile, bytes]:
        (self.work / "made").mkdir(exist_ok=True)
        path = self.work / "made" / name
        path.write_bytes(content)
        meta, recipe = make_metafile_and_recipe(path)
        assert recipe is not None
        return meta, recipe

    def publish(self, name: str, content: bytes, *, keep: bool = False) -> Metafile:
        meta, recipe = self.make(name, content)
        shutil.copy(self.work / "made" / name, self.store.begin(meta) / "content" / name)
        if keep:
            self.reuse.keep_recipe(meta.digest, recipe)
        self.store.publish(meta.digest)
        return meta

    def content(self, meta: Metafile) -> Path:
        return self.store.object_dir(meta.digest) / "content"

    def fill(self, meta: Metafile, raw: bytes) -> Filling:
        self.store.begin(meta)
        return self.reuse.fill(meta, lambda: True, recipe=parse_recipe(raw))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.store.close()


def wrong_pieces(site: Site, meta: Metafile, filling: Filling, content: bytes) -> list[int]:
    """Returns the pieces that count and are not right."""
    assert filling.have is not None
    [file] = meta.files
    here, length = (site.content(meta) / file.path).read_bytes(), meta.piece_length
    spans = [slice(number * length, (number + 1) * length) for number in range(len(filling.have))]
    return [n for n, span in enumerate(spans) if filling.have[n] and here[span] != content[span]]


@pytest.mark.case("H1")
@pytest.mark.parametrize("keep", [False, True], ids=["old file is read", "old recipe is known"])
def test_only_the_changed_part_of_a_file_is_lacking(site: Site, keep: bool) -> None:
    """One changed member of a large archive would move the whole archive again."""
    site.publish("env-42.tar", OLD, keep=keep)
    meta, recipe = site.make("env-43.tar", NEW)

    assert site.reuse.wants_recipe(meta)
    filling = site.fill(meta, recipe)
    assert len(NEW) - CHANGED <= filling.size < len(NEW)
    assert wrong_pieces(site, meta, filling, NEW) == []


def test_a_host_without_a_likely_file_asks_for_no_recipe(site: Site) -> None:
    """Each first download would cost a request more."""
    site.publish("other.bin", OLD)
    meta, recipe = site.make("env-43.tar", NEW)

    assert not site.reuse.wants_recipe(meta)
    assert site.fill(meta, recipe).size == 0


@pytest.mark.case("H3")
@pytest.mark.parametrize("change", ["swapped", "shifted", "all alike"])
def test_a_lying_recipe_costs_bytes_and_never_content(site: Site, change: str) -> None:
    """A forged recipe would decide what hosts run."""
    site.publish("env-42.tar", OLD)
    meta, raw = site.make("env-43.tar", NEW)
    recipe = parse_recipe(raw)
    assert recipe is not None
    [honest] = recipe.files
    hashes = [honest.hashes[at : at + 16] for at in range(0, len(honest.hashes), 16)]
    if change == "swapped":
        lie = msgspec.structs.replace(honest, hashes=b"".join(reversed(hashes)))
    elif change == "shifted":
        lie = msgspec.structs.replace(
            honest, lengths=honest.lengths[4:] + honest.lengths[:4], hashes=honest.hashes[16:] + honest.hashes[:16]
        )
    else:
        lie = msgspec.structs.replace(honest, lengths=honest.lengths, hashes=hashes[0] * len(hashes))
    filling = site.fill(meta, encode_recipe(Recipe((lie,))))

    assert wrong_pieces(site, meta, filling, NEW) == []
    assert filling.size < SIZE / 2


@pytest.mark.case("H2")
@pytest.mark.case("H3")
@pytest.mark.parametrize("within", ["store", "directory"])
def test_a_chunk_that_a_recipe_puts_into_zeros_counts_for_nothing(site: Site, within: str) -> None:
    """Zeros need no transfer and count at once. Bytes that a forged recipe, or a damaged old file,
    puts over them would be published unhashed."""
    new = OLD[:4_000_000] + bytes(2_000_000) + OLD[4_000_000:]
    site.publish("env-42.tar", OLD)
    meta, raw = site.make("env-43.tar", new)
    recipe = parse_recipe(raw)
    assert recipe is not None
    [honest] = recipe.files
    known, *rest = honest.chunks()
    zeros = next(one for one in rest if one.offset > 4_000_000 and one.length > known.length)
    lie: list[tuple[int, bytes]] = []
    for one in (known, *rest):
        put = known.length if one == zeros else 0
        lie += [(put, known.hash)] if put else []
        lie.append((one.length - put, one.hash))
    forged = encode_recipe(Recipe((file_recipe(honest.root, iter(lie)),)))
    if within == "store":
        filling = site.fill(meta, forged)
    else:
        content, own = site.store.begin(meta) / "content", large_files_below(site.work / "made" / "env-42.tar")
        filling = fill_from_directories(meta, content, [], lambda: True, lambda done: None, parse_recipe(forged), own)

    assert wrong_pieces(site, meta, filling, new) == []


@pytest.mark.case("H3")
def test_a_lying_recipe_of_an_old_version_is_as_harmless(site: Site) -> None:
    """The recipe of a bundle that is here would be believed because it is here."""
    old = site.publish("env-42.tar", OLD)
    _, raw = site.make("env-42.tar", OLD)
    recipe = parse_recipe(raw)
    assert recipe is not None
    [honest] = recipe.files
    lie = file_recipe(honest.root, ((one.length, one.hash) for one in reversed([*honest.chunks()])))
    (site.store.object_dir(old.digest) / RECIPE).write_bytes(encode_recipe(Recipe((lie,))))
    meta, raw = site.make("env-43.tar", NEW)
    filling = site.fill(meta, raw)

    assert wrong_pieces(site, meta, filling, NEW) == []


@pytest.mark.case("H3")
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xc1",
        b"\x81\xa5files\x91\x01",
        msgspec.msgpack.encode({"files": [{"root": bytes(32), "lengths": b"abc", "hashes": b""}]}),
        msgspec.msgpack.encode({"files": [{"root": bytes(32), "lengths": bytes(4), "hashes": bytes(16)}]}),
        msgspec.msgpack.encode({"files": [{"root": bytes(32), "lengths": b"\xff" * 4, "hashes": bytes(16)}]}),
        msgspec.msgpack.encode({"files": [{"root": b"", "lengths": b"\1\0\0\0", "hashes": bytes(16)}]}),
        msgspec.msgpack.encode({"version": 2}),
        msgspec.msgpack.encode({"sizes": (1, 2, 3)}),
        bytes(MAX_RECIPE_BYTES + 1),
    ],
)
def test_what_is_no_recipe_is_none(raw: bytes) -> None:
    """Bytes from outside would stop a fetch, or take memory without a bound."""
    assert parse_recipe(raw) is None


def test_a_recipe_has_a_bounded_size() -> None:
    """The recipe of a huge bundle would be refused, and no file of it reused."""
    count = MAX_RECIPE_BYTES // 20 // 2 + 1
    files = tuple(
        FileRecipe(bytes([number]) * 32, LEAST.to_bytes(4, "little") * count, bytes(16 * count)) for number in range(3)
    )
    raw = encode_recipe(Recipe(files))
    recipe = parse_recipe(raw)

    assert len(raw) <= MAX_RECIPE_BYTES
    assert recipe is not None
    assert list(recipe.files) == [files[0]]


def test_a_metafile_and_its_recipe_travel_together(site: Site) -> None:
    """A master would answer for something else than what was sent."""
    meta, recipe = site.make("env-43.tar", NEW)

    assert split_recipe(with_recipe(meta.raw, recipe)) == (meta.raw, recipe)
    assert split_recipe(with_recipe(meta.raw, None)) == (meta.raw, None)
    assert split_recipe(b"d8:metafile1:a6:recipei1ee") == (b"d8:metafile1:a6:recipei1ee", None)


@pytest.mark.case("H4")
def test_an_old_version_that_changed_brings_nothing_wrong(site: Site) -> None:
    """Bytes that somebody changed on the disk would go into the new version."""
    old = site.publish("env-42.tar", OLD, keep=True)
    path = site.content(old) / "env-42.tar"
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(5_000_000)
        file.write(bytes(1_000_000))
        file.truncate(9_000_000)
    meta, recipe = site.make("env-43.tar", NEW)
    filling = site.fill(meta, recipe)

    assert wrong_pieces(site, meta, filling, NEW) == []
    assert 6_000_000 < filling.size < 8_500_000


@pytest.mark.case("H2")
def test_rot_under_the_mark_of_an_old_version_is_found_by_its_parts(site: Site) -> None:
    """A damaged disk would go on giving wrong parts, until somebody verifies all of it."""
    old = site.publish("env-42.tar", OLD, keep=True)
    meta, recipe = site.make("env-43.tar", NEW)
    path = site.content(old) / "env-42.tar"
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(5_000_000)
        file.write(b"rot")
    # Rot changes no times, so the mark is set to what writing left.
    site.store._checks._recall(old.digest).marks.update(look_at_files(site.content(old), ["env-42.tar"]))
    assert site.store.check(old.digest) == []
    filling = site.fill(meta, recipe)

    assert wrong_pieces(site, meta, filling, NEW) == []
    assert filling.suspects == {old.digest}


@pytest.mark.case("H2")
def test_an_old_version_whose_parts_are_right_is_not_suspect(site: Site) -> None:
    """Each fetch would read the older version once more."""
    site.publish("env-42.tar", OLD, keep=True)

    assert site.fill(*site.make("env-43.tar", NEW)).suspects == frozenset()


@pytest.mark.case("H2")
def test_a_file_that_has_begun_to_arrive_is_left_alone(site: Site) -> None:
    """After a crash, bytes of the swarm would be written over by older ones."""
    site.publish("env-42.tar", OLD)
    meta, recipe = site.make("env-43.tar", NEW)
    site.store.begin(meta)
    (site.content(meta) / "env-43.tar").write_bytes(b"arrived")

    assert site.fill(meta, recipe) == Filling()
    assert (site.content(meta) / "env-43.tar").read_bytes() == b"arrived"


@pytest.mark.case("H4")
def test_a_full_disk_leaves_no_part_of_a_file(tmp_path: Path, small_disk: Callable[[int], Path]) -> None:  # noqa: F811
    """A full disk would look like damage."""
    site = Site(tmp_path)
    site.publish("env-42.tar", OLD)
    meta, recipe = site.make("env-43.tar", NEW)
    site.store.begin(meta)
    full = small_disk(4_000_000)
    site.content(meta).rmdir()
    site.content(meta).symlink_to(full)
    with pytest.raises(TorrentdistError) as caught:
        site.reuse.fill(meta, lambda: True, recipe=parse_recipe(recipe))
    site.store.close()

    assert caught.value.code == "disk_full"
    assert list(full.iterdir()) == []


@pytest.mark.case("H1")
def test_a_directory_of_the_user_is_a_source(site: Site) -> None:
    """`download --from` would fetch a changed archive again."""
    (site.work / "copies" / "deep").mkdir(parents=True)
    (site.work / "copies" / "deep" / "env-41.tar").write_bytes(OLD)
    meta, recipe = site.make("env-43.tar", NEW)
    content = site.store.begin(meta) / "content"
    own = large_files_below(site.work / "copies")
    told: list[int] = []
    filling = fill_from_directories(meta, content, [], lambda: True, told.append, parse_recipe(recipe), own)

    assert filling.size >= len(NEW) - CHANGED
    assert told[-1] == filling.size
    assert wrong_pieces(site, meta, filling, NEW) == []


def test_a_file_without_a_change_of_bytes_is_whole(site: Site) -> None:
    """A file whose chunks are all here would be fetched in part."""
    (site.work / "copies").mkdir()
    (site.work / "copies" / "env-42.tar").write_bytes(NEW + OLD[:1000])
    meta, recipe = site.make("env-43.tar", NEW)
    content = site.store.begin(meta) / "content"
    own = large_files_below(site.work / "copies")
    fill_from_directories(meta, content, [], lambda: True, lambda done: None, parse_recipe(recipe), own)
    os.truncate(content / "env-43.tar", len(NEW))

    assert len(verify_content(meta, content)) <= 1


@pytest.mark.case("H1")
def test_what_would_move_is_told_by_the_recipes_alone(site: Site) -> None:
    """A dry run would name a number that the upload does not keep."""
    old = site.publish("env-42.tar", OLD, keep=True)
    meta, raw = site.make("env-43.tar", NEW)
    recipe = parse_recipe(raw)
    assert recipe is not None
    told = site.reuse.shared_parts(meta, recipe, set())

    assert told == {old.digest: site.fill(meta, raw).size}


def test_very_many_equal_files_are_compared_in_moments(site: Site) -> None:
    """One request about a bundle of tiny equal files would keep a master busy for hours."""
    site.publish("env-42.tar", OLD, keep=True)
    meta, _ = site.make("env-43.tar", NEW)
    [file] = meta.files
    chunks = file_recipe(file.root, iter([(LEAST, b"x" * 16)] * 500_000))
    many, began = msgspec.structs.replace(meta, files=meta.files * 2_000), time.process_time()

    assert {} == site.reuse.shared_parts(many, Recipe((chunks,)), set())
    assert time.process_time() - began < 5.0


def test_very_many_equal_files_of_many_chunks_count_only_so_far(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """One request about a bundle of large equal files would keep a master busy for hours."""
    meta, raw = site.make("env-43.tar", NEW)
    recipe, asked = parse_recipe(raw), list[object]()
    assert recipe is not None
    monkeypatch.setattr(chunk_plan, "MOST_CHUNKS", 20 * recipe.files[0].count)
    many = msgspec.structs.replace(meta, files=meta.files * 1_000)
    own = [OwnFile("a", "env-43.tar", len(NEW), b"")]

    assert {} == known_parts(many, recipe, own, asked.append, set())
    assert len(asked) == 20


def test_only_the_bundles_to_compare_with_count(site: Site) -> None:
    """What is new in a version would be said to be in a later one, whole or in parts."""
    old, later = site.publish("env-42.tar", OLD, keep=True), site.publish("env-44.tar", NEW, keep=True)
    meta, raw = site.make("env-43.tar", NEW)
    recipe, elsewhere = parse_recipe(raw), Digest("e" * 64)
    shared = site.reuse.reused(meta, recipe, [old.digest]).counts

    assert len(NEW) - CHANGED <= shared[old.digest] < len(NEW)
    assert shared.keys() == {old.digest}
    assert Reused({later.digest: meta.size}) == site.reuse.reused(meta, recipe, [later.digest, old.digest])
    assert Reused({}, unread=1) == site.reuse.reused(meta, recipe, [elsewhere])
