"""Filling a file with parts that this host has, and which of its pieces are right then."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torrentdist.bundle.file_tree import TreeFile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.bundle.reuse import part_filling
from torrentdist.bundle.reuse.chunk_plan import OwnFile
from torrentdist.bundle.reuse.chunker import LARGE_FILE, can_cut, hash_chunk
from torrentdist.bundle.reuse.part_filling import (
    RECIPE,
    FilledParts,
    KnownChunks,
    bytes_of_parts,
    fill_parts,
    large_own_files,
    read_recipe,
    right_pieces,
)
from torrentdist.bundle.reuse.recipe import Recipe, encode_recipe, file_recipe
from torrentdist.testing.sample_trees import some_bytes

PIECE = 32 * 1024
ROOT = b"r" * 32


class Site:
    """A bundle with one file that is here, and one that arrives, both of 200,000 bytes."""

    def __init__(self, work: Path, path: str = "f") -> None:
        self.work = work
        self.old, new = some_bytes(200_000, 1), some_bytes(200_000, 2)
        self.new = self.old[:100_000] + new[100_000:]
        self.home = work / "old"
        (self.home / "content").mkdir(parents=True)
        (self.home / "content" / "f").write_bytes(self.old)
        source = work / "source" / path
        source.parent.mkdir(parents=True)
        source.write_bytes(self.new)
        self.meta = make_metafile(work / "source", piece_length=PIECE)
        self.content = work / "content"
        self.content.mkdir()
        root = self.meta.files[0].root
        self.say(root, b"half".ljust(16))
        self.own = OwnFile(self.home / "content", "f", 200_000, ROOT)
        self.left = 0

    def say(self, root: bytes, hash_: bytes, size: int = 200_000, half: int = 100_000) -> None:
        """Makes the recipes. Both say that the first `half` bytes have this hash."""
        self.recipe = Recipe((file_recipe(root, iter([(half, hash_), (size - half, b"other".ljust(16))])),))
        known = Recipe((file_recipe(ROOT, iter([(half, hash_), (200_000 - half, bytes(16))])),))
        (self.home / RECIPE).write_bytes(encode_recipe(known))

    def fill(self, calls: int = 1000, *, is_new: bool = True, skip: frozenset[str] = frozenset()) -> FilledParts:
        """Fills; after so many questions whether to go on, the answer is no."""
        self.left = calls

        def go_on() -> bool:
            self.left -= 1
            return self.left >= 0

        return fill_parts(self.meta, self.content, self.recipe, [self.own], skip=skip, is_new=is_new, go_on=go_on)

    @property
    def filled(self) -> Path:
        return self.content / "f"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_the_pieces_that_the_known_half_makes_up_are_right(site: Site) -> None:
    """Pieces would be fetched though they are here, or handed out though they are wrong."""
    found = site.fill()

    assert {"f": [True] * 3 + [False] * 4} == found.pieces
    assert {site.home / "content"} == found.sources
    assert 3 * PIECE == bytes_of_parts(site.meta, found.pieces)
    assert site.new[:100_000] == site.filled.read_bytes()[:100_000]
    assert bytes(100_000) == site.filled.read_bytes()[100_000:]


def test_a_file_that_is_all_here_is_all_right(site: Site) -> None:
    """A file whose every chunk is known would be fetched again."""
    (site.home / "content" / "f").write_bytes(site.new)
    site.recipe = Recipe((file_recipe(site.meta.files[0].root, iter([(100_000, b"h" * 16), (100_000, b"o" * 16)])),))
    known = Recipe((file_recipe(ROOT, iter([(100_000, b"h" * 16), (100_000, b"o" * 16)])),))
    (site.home / RECIPE).write_bytes(encode_recipe(known))

    assert {"f": [True] * 7} == site.fill().pieces


def test_nothing_more_is_read_once_all_chunks_are_known(site: Site) -> None:
    """Each older version of a large file would be cut into chunks for nothing, for seconds."""
    root = site.meta.files[0].root
    site.recipe = Recipe((file_recipe(root, iter([(100_000, b"h" * 16), (100_000, b"o" * 16)])),))
    known = Recipe((file_recipe(ROOT, iter([(100_000, b"h" * 16), (100_000, b"o" * 16)])),))
    (site.home / RECIPE).write_bytes(encode_recipe(known))
    other = OwnFile(site.work / "other", "f", 200_000, b"o" * 32)
    asked = []
    for own in ([site.own], [site.own, other]):
        calls: list[bool] = []

        def go_on(calls: list[bool] = calls) -> bool:
            calls.append(True)
            return True

        fill_parts(site.meta, site.content, site.recipe, own, skip=frozenset(), is_new=True, go_on=go_on)
        asked.append(len(calls))

    assert asked[0] == asked[1]


def test_work_that_is_told_to_stop_copies_nothing_more(site: Site) -> None:
    """A host that shuts down would copy gigabytes first."""
    for calls in range(20):
        found = site.fill(calls)
        if site.filled.exists():
            assert b"" == site.filled.read_bytes().strip(b"\0")
            assert {"f": [False] * 7} == found.pieces
            return
    raise AssertionError("nothing was filled")


def test_what_is_left_out_or_already_there_stays_as_it_is(site: Site) -> None:
    """Bytes that have arrived would be written over."""
    assert FilledParts({}, frozenset()) == site.fill(skip=frozenset({"f"}))
    assert FilledParts({}, frozenset()) == site.fill(0)
    assert FilledParts({}, frozenset()) == site.fill(1)
    assert not site.filled.exists()
    site.filled.write_bytes(b"arrived")

    assert FilledParts({}, frozenset()) == site.fill(is_new=False)
    assert b"arrived" == site.filled.read_bytes()


def test_a_recipe_of_another_length_is_not_followed(site: Site) -> None:
    """A lying recipe would cost the copying of all its bytes."""
    root = site.meta.files[0].root
    site.say(root, b"h" * 16, size=200_001)

    assert FilledParts({}, frozenset()) == site.fill()
    site.recipe = Recipe(())
    assert FilledParts({}, frozenset()) == site.fill()


def test_only_large_files_are_compared() -> None:
    """Every small file of a bundle would be read for nothing."""
    files = [TreeFile(b"a", LARGE_FILE, ROOT), TreeFile(b"b", LARGE_FILE + 1, ROOT)]

    assert ["b"] == [own.path for own in large_own_files(Path("x"), files)]


HALF = [True] * 3 + [False] * 4


def test_what_is_copied_in_several_turns_is_the_same(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of more than some megabytes would be wrong, or each would leave open files behind."""
    monkeypatch.setattr(part_filling, "_COPY", 30_000)
    before = len(os.listdir("/proc/self/fd"))

    assert {"f": HALF} == site.fill().pieces
    assert site.new[:100_000] + bytes(100_000) == site.filled.read_bytes()
    assert before == len(os.listdir("/proc/self/fd"))
    assert 0 == site.filled.stat().st_mode & 0o133


def test_a_source_that_became_shorter_ends_its_part(site: Site) -> None:
    """A fetch would copy for ever from a file that was truncated."""
    os.truncate(site.home / "content" / "f", 50_000)

    assert {"f": [True, *[False] * 6]} == site.fill().pieces
    assert site.left > 900


def test_a_symlink_is_no_source(site: Site) -> None:
    """A user could make a daemon read a file that only the daemon can read."""
    (site.home / "content" / "f").rename(site.work / "other")
    (site.home / "content" / "f").symlink_to(site.work / "other")

    assert {"f": [False] * 7} == site.fill().pieces


@pytest.mark.skipif(not can_cut(), reason="there is no hash of chunks on this machine")
def test_only_a_source_whose_bytes_are_not_what_its_recipe_says_is_suspect(site: Site) -> None:
    """A damaged bundle would be copied from again and again, or a sound one no more."""
    assert {site.home / "content"} == site.fill().suspects
    for calls in range(30):
        assert site.fill(calls).suspects <= {site.home / "content"}
    right = hash_chunk(site.old[:100_000])
    assert right is not None
    site.say(site.meta.files[0].root, right)

    assert FilledParts({"f": HALF}, frozenset({site.home / "content"})) == site.fill()


def test_a_new_bundle_is_filled_over_what_lies_there(site: Site) -> None:
    """A bundle would stay empty, because its files were made before their bytes arrived."""
    assert {"f": HALF} == site.fill(is_new=False).pieces
    site.filled.write_bytes(b"left over")

    assert {"f": HALF} == site.fill().pieces


def test_a_file_in_directories_is_filled_there(tmp_path: Path) -> None:
    """Only files at the top of a bundle would be filled."""
    site = Site(tmp_path, "a/b/f")

    assert {"a/b/f": HALF} == site.fill().pieces
    assert site.new[:100_000] == (site.content / "a" / "b" / "f").read_bytes()[:100_000]


def test_so_much_of_a_recipe_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of gigabytes would be read into memory."""
    monkeypatch.setattr(part_filling, "MAX_RECIPE_BYTES", 3)
    assert read_recipe(tmp_path) is None
    (tmp_path / RECIPE).write_bytes(b"0123456789")

    assert b"0123" == read_recipe(tmp_path)


@pytest.mark.skipif(not can_cut(), reason="there is no hash of chunks on this machine")
@pytest.mark.parametrize(("half", "is_suspect"), [(3 * PIECE, False), (3 * PIECE + 1, True), (PIECE, False)])
def test_chunks_of_right_pieces_are_not_read_again(site: Site, half: int, is_suspect: bool) -> None:
    """All chunks would be read again when one piece is wrong, or a wrong one would be trusted."""
    site.say(site.meta.files[0].root, b"wrong".ljust(16), half=half)

    assert is_suspect == bool(site.fill().suspects)


def test_a_file_without_piece_layer_is_right_or_wrong_as_a_whole(tmp_path: Path) -> None:
    """Half a small file would be handed out, or a missing file would be taken for a whole one."""
    (tmp_path / "f").write_bytes(b"right")
    meta, large = make_metafile(tmp_path / "f", piece_length=PIECE), Site(tmp_path / "large")
    found = [right_pieces(meta.files[0], tmp_path / "f", meta, lambda: True)]
    (tmp_path / "f").write_bytes(b"wrong")
    found += [right_pieces(meta.files[0], tmp_path / name, meta, lambda: True) for name in ("f", "none")]

    assert [[True], [False], [False]] == found
    assert [False] * 7 == right_pieces(large.meta.files[0], large.filled, large.meta, lambda: True)


@pytest.mark.skipif(not can_cut(), reason="there is no hash of chunks on this machine")
def test_a_file_of_a_directory_is_read_for_its_chunks(site: Site) -> None:
    """A download into a directory would use nothing of its last version."""
    own = OwnFile(site.home / "content", "f", 200_000, b"")
    found = [KnownChunks(lambda: True).of(own), KnownChunks(lambda: False).of(own)]

    assert [200_000, None] == [one and one.size for one in found]
