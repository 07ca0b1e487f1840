"""What is taken from a host's own bundles is right, whatever they hold."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torrentdist.bundle.file_tree import TreeFile
from torrentdist.bundle.metafile import FileEntry, Metafile, WireFile
from torrentdist.bundle.packs.pack_manifest import PackedFiles
from torrentdist.bundle.reuse.reuse_plan import (
    MOST_SOURCES,
    KnownFile,
    bytes_by_source,
    choose_sources,
    held_pieces,
    known_files,
    wanted_hints,
    whole_packs,
    without_packed,
)
from torrentdist.bundle.reuse.root_index import RootIndex, hint_of
from torrentdist.model.ids import Digest

CONTENTS = [b"", *(bytes([n]) * n for n in range(1, 9))]
"""Contents of files: the size is the number of the content."""


def root_of(content: int) -> bytes:
    return hashlib.sha256(CONTENTS[content]).digest() if content else b""


contents = st.integers(0, len(CONTENTS) - 1)
trees = st.lists(contents, max_size=12)


def entries(tree: list[int]) -> list[FileEntry]:
    return [FileEntry(f"new/{n}", content, root_of(content), False) for n, content in enumerate(tree)]


def held(tree: list[int]) -> list[TreeFile]:
    return [TreeFile(f"old/{n}".encode(), content, root_of(content)) for n, content in enumerate(tree)]


def digest(number: int) -> Digest:
    return Digest(f"{number:064x}")


def indexed(bundles: list[list[int]]) -> RootIndex:
    index = RootIndex()
    for number, tree in enumerate(bundles):
        index.add(digest(number), [root_of(content) for content in tree])
    return index


@pytest.mark.case("H1")
@given(trees, st.lists(trees, max_size=4))
def test_every_content_of_a_known_bundle_is_found_under_any_path(wanted: list[int], bundles: list[list[int]]) -> None:
    """A file would cross the network although the host has it."""
    files = entries(wanted)
    hints = wanted_hints(files)
    sources = choose_sources(hints, indexed(bundles).find(hints.keys()))
    known = known_files(files, ((one, held(bundles[int(one, 16)])) for one in sources))

    on_disk = {content for tree in bundles for content in tree if content}
    assert {file.path for file in files if file.size in on_disk} == {one.file.path for one in known}


@pytest.mark.case("H1")
@given(trees, st.lists(trees, max_size=4))
def test_only_the_same_content_is_taken(wanted: list[int], bundles: list[list[int]]) -> None:
    """Clones that cannot match would be made and hashed for nothing."""
    known = known_files(entries(wanted), ((number, held(tree)) for number, tree in enumerate(bundles)))

    for one in known:
        assert bundles[one.source][int(one.path.partition("/")[2])] == one.file.size


@given(trees, st.lists(trees, min_size=1, max_size=4))
def test_the_bundle_with_the_most_bytes_is_read_first(wanted: list[int], bundles: list[list[int]]) -> None:
    """An upload would say that its rest is in a bundle that has little of it."""
    hints = wanted_hints(entries(wanted))
    found = indexed(bundles).find(hints.keys())
    chosen = choose_sources(hints, found)

    weights = {one: sum(hints[hint] for hint in held_hints) for one, held_hints in found.items()}
    assert not chosen or weights[chosen[0]] == max(weights.values())
    assert bool(chosen) is bool(found)


def test_few_bundles_are_read_however_many_have_a_part() -> None:
    """A fetch would wait for the reading of hundreds of metafiles."""
    hints = dict.fromkeys(range(1000), 1)

    assert len(choose_sources(hints, {number: {number} for number in hints})) == MOST_SOURCES


@given(trees)
def test_a_bundle_that_is_dropped_is_not_found(tree: list[int]) -> None:
    """A host would look for files of bundles that it evicted long ago."""
    index = indexed([tree])
    index.drop(digest(0))

    assert index.find({hint_of(root_of(content)) for content in tree if content}) == {}


def test_two_roots_that_begin_alike_are_not_the_same_file() -> None:
    """The index keeps only the beginning of a root, so other content would be taken for it."""
    one, other = b"\1" * 32, b"\1" * 31 + b"\2"
    files = [FileEntry("file", 5, one, False)]
    index = RootIndex()
    index.add(digest(1), [other])

    assert index.find(wanted_hints(files).keys()) != {}
    assert known_files(files, [(digest(1), [TreeFile(b"file", 5, other)])]) == []


@given(st.lists(st.integers(0, 40), min_size=1, max_size=8), st.sets(st.integers(0, 7)))
def test_pieces_that_are_here_are_those_of_whole_files(sizes: list[int], whole: set[int]) -> None:
    """A piece that is not here would be handed out, or one that is here would be fetched."""
    files = [WireFile(str(number), f"content/{number}", size, b"r" * 32) for number, size in enumerate(sizes)]
    have = held_pieces(files, 16, {str(number) for number in whole})

    expected = [number in whole for number, size in enumerate(sizes) for _ in range(-(-size // 16))]
    assert expected == have


def test_pieces_of_zeros_are_here_too() -> None:
    """A hole would be filled from the network with zeros."""
    files = [WireFile("a", "content/a", 32, b"a" * 32), WireFile("b", "content/b", 16, b"b" * 32)]

    assert held_pieces(files, 16, {"b"}, [False, True, False]) == [False, True, True]


def test_the_sources_are_told_with_the_most_bytes_first() -> None:
    """An upload would name the bundle that matters least."""
    files = entries([1, 5, 8])
    known = known_files(files, [("small", held([1, 5])), ("large", held([8]))])

    assert list(bytes_by_source(known).items()) == [("large", 8), ("small", 6)]


def test_a_source_that_adds_nothing_is_not_read() -> None:
    """A fetch would read the metafile of each bundle that holds a known file."""
    assert ["a"] == choose_sources({1: 5, 2: 7}, {"a": {1}, "b": {1}})
    assert ["b"] == choose_sources({1: 5, 2: 7, 3: 1}, {"a": {1, 2}, "b": {1, 2, 3}, "c": {2}, "d": set()})
    assert {hint_of(root_of(5)): 10, hint_of(root_of(3)): 3} == wanted_hints(entries([5, 0, 3, 5]))


def test_each_file_comes_from_the_first_source_that_has_it() -> None:
    """A file would be copied twice, or be taken from one that has other content."""
    files = entries([5, 3])
    first, second = held([5, 5]), held([5, 3])

    assert [(0, "old/0"), (1, "old/1")] == [
        (one.source, one.path) for one in known_files(files, enumerate([first, second]))
    ]
    assert [] == known_files(files, [(0, [TreeFile(b"x", 6, root_of(5))])])
    rest = iter([(0, second), (1, first)])
    assert 2 == len(known_files(files, rest))
    assert [(1, first)] == list(rest)


def test_small_files_come_with_their_pack() -> None:
    """A file would be copied by itself and again in its pack."""
    small = (FileEntry("s", 3, b"s" * 32, False), FileEntry("t", 4, b"t" * 32, True))
    wire = (WireFile("a", "content/a", 5, b"a" * 32), WireFile("../packs/00000", "packs/00000", 7, b"p" * 32))
    loose = FileEntry("a", 5, b"a" * 32, False)
    meta = Metafile(digest(0), "n", 16, False, (loose, *small), (), (), {}, b"", wire, PackedFiles(small, (2,)))
    [pack] = whole_packs(meta)
    alone = [KnownFile(file, "source", file.path) for file in (loose, small[1])]

    assert FileEntry("../packs/00000", 7, b"p" * 32, False) == pack
    assert alone == without_packed(meta, alone)
    packed = KnownFile(pack, "source", "x")
    assert [alone[0], packed] == without_packed(meta, [*alone, packed])


def test_zeros_are_told_for_every_piece() -> None:
    """Pieces of zeros of another bundle would be taken for those of this one."""
    with pytest.raises(ValueError, match="zip"):
        held_pieces([WireFile("a", "content/a", 32, b"a" * 32)], 16, set(), [True])
