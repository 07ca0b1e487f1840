"""Which parts of a file come from another one, and which pieces are right afterwards."""

from __future__ import annotations

import hashlib

import pytest

from torrentdist.bundle import bencode
from torrentdist.bundle.metafile import FileEntry, Metafile, WireFile
from torrentdist.bundle.packs.pack_manifest import PackedFiles
from torrentdist.bundle.reuse import recipe
from torrentdist.bundle.reuse.chunk_plan import Copy, LikelyFiles, OwnFile, covered_pieces, known_parts, share, stem
from torrentdist.bundle.reuse.recipe import (
    LEAST,
    MOST,
    PER_CHUNK,
    FileRecipe,
    Recipe,
    encode_recipe,
    file_recipe,
    parse_recipe,
    recipe_hash,
    split_recipe,
    with_recipe,
)
from torrentdist.bundle.reuse.reuse_plan import Reused, bytes_in, with_parts
from torrentdist.model.ids import Digest

PIECE = 32 * 1024
ROOT = b"r" * 32


def recipe_of(*chunks: tuple[int, str], root: bytes = ROOT) -> FileRecipe:
    return file_recipe(root, iter([(length, name.encode().ljust(16)) for length, name in chunks]))


# what to copy


def test_neighbouring_chunks_are_copied_together() -> None:
    """Each chunk of a large file would be a copy of its own, or bytes would come from a wrong
    place."""
    wanted = recipe_of((10, "a"), (20, "b"), (5, "new"), (20, "b"), (30, "c"), (10, "a"))
    known = recipe_of((7, "x"), (10, "a"), (20, "b"), (30, "c"))
    copies, lacking = share(wanted.chunks(), known)

    assert [Copy(0, 30, 7), Copy(35, 50, 17), Copy(85, 10, 7)] == copies
    assert [(30, 5)] == [(chunk.offset, chunk.length) for chunk in lacking]


def test_a_chunk_of_another_length_is_another_chunk() -> None:
    """A hash that means other bytes would be believed."""
    copies, lacking = share(recipe_of((10, "a")).chunks(), recipe_of((11, "a")))

    assert ([], 1) == (copies, len(lacking))


def test_chunks_that_are_neighbours_on_one_side_alone_stay_apart() -> None:
    """Bytes between them would be copied over the new file."""
    wanted = recipe_of((10, "a"), (10, "b"))
    copies, _ = share(wanted.chunks(), recipe_of((10, "a"), (1, "x"), (10, "b")))

    assert [Copy(0, 10, 0), Copy(10, 10, 11)] == copies
    apart, _ = share(recipe_of((10, "a"), (1, "x"), (10, "b")).chunks(), wanted)
    assert [Copy(0, 10, 0), Copy(11, 10, 10)] == apart


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([], [False, False, False]),
        ([Copy(0, 25, 0)], [True, True, True]),
        ([Copy(0, 24, 0)], [True, True, False]),
        ([Copy(0, 9, 0), Copy(9, 1, 0)], [True, False, False]),
        ([Copy(5, 15, 0), Copy(0, 5, 0)], [True, True, False]),
        ([Copy(0, 8, 0), Copy(2, 6, 0)], [False, False, False]),
        ([Copy(0, 8, 0), Copy(2, 8, 0)], [True, False, False]),
        ([Copy(0, 9, 0), Copy(2, 6, 0)], [False, False, False]),
        ([Copy(1, 19, 0)], [False, True, False]),
        ([Copy(20, 5, 0)], [False, False, True]),
    ],
)
def test_a_piece_is_covered_if_every_byte_of_it_is(parts: list[Copy], expected: list[bool]) -> None:
    """A dry run would promise bytes that have to be sent, or send what is here."""
    assert expected == covered_pieces(25, 10, parts)


@pytest.mark.parametrize(
    ("path", "expected"), [("a/env-42.tar", "env-#.tar"), ("env-1.2_3-4.tar", "env-#.tar"), ("9", "#"), ("x", "x")]
)
def test_names_are_alike_without_their_versions(path: str, expected: str) -> None:
    """The next version of an archive would be compared with nothing."""
    assert expected == stem(path)


def test_shared_bytes_are_counted_by_the_source_that_has_most() -> None:
    """A dry run would name the wrong bundle, or count bytes twice."""
    wanted = {b"a" * 32: recipe_of((16, "1"), (16, "2"), (10, "3"), root=b"a" * 32), ROOT: recipe_of((20, "9"))}
    files = [FileEntry(*values, False) for values in (("f", 42, b"a" * 32), ("g", 20, ROOT), ("h", 5, ROOT))]
    meta = a_metafile(*files)
    own = [
        OwnFile(source, path, 5, source.encode()) for source, path in (("x", "f"), ("y", "f"), ("z", "g"), ("z", "h"))
    ]
    chunks = {"x": recipe_of((16, "1")), "y": recipe_of((16, "2"), (10, "3")), "z": recipe_of((20, "9"))}
    counts = known_parts(meta, Recipe(tuple(wanted.values())), own, lambda one: chunks[one.source], set())

    assert {"y": 42, "z": 20} == counts
    assert {"z": 20} == known_parts(meta, Recipe((wanted[ROOT],)), own, lambda one: chunks[one.source], {"f"})
    assert {"z": 20} == known_parts(meta, Recipe(tuple(wanted.values())), own, lambda one: chunks[one.source], {"f"})
    assert {} == known_parts(meta, Recipe(tuple(wanted.values())), own, lambda one: None, set())
    assert {} == known_parts(meta, Recipe(()), own, lambda one: chunks[one.source], set())


def own_file(source: str, path: str, size: int = 100, root: bytes = b"") -> OwnFile[str]:
    return OwnFile(source, path, size, root or f"{source}/{path}".encode())


@pytest.mark.parametrize(
    ("own", "likely"),
    [
        ([own_file("new", "x/env-2.tar"), own_file("old", "a/env-1.tar")], ["old", "new"]),
        ([own_file(name, f"{name}/env-2.tar") for name in "bcd"] + [own_file("e", "a/env-1.tar")], ["e", "b", "c"]),
        ([own_file(name, "a/env-1.tar", 10) for name in "bcde"], ["b", "c", "d"]),
        ([own_file("b", "x/env-1.tar", root=ROOT), own_file("c", "a/env-1.tar", root=ROOT)], ["c"]),
        ([own_file("b", "a/env-1.tar", 200), own_file("c", "a/env-1.tar", 100)], ["b", "c"]),
        ([own_file("b", "a/env-1.tar", 200), own_file("c", "a/env-1.tar", 101)], ["b"]),
        ([own_file("b", "a/env-1.tar", 301), own_file("c", "a/env-1.tar", 1)], []),
        ([OwnFile("b", "a/env-1.tar", 100, b""), OwnFile("c", "a/env-1.tar", 100, b"")], ["b", "c"]),
        ([own_file("b", "a/other.tar")], []),
    ],
)
def test_few_files_are_read_and_the_likeliest_first(own: list[OwnFile[str]], likely: list[str]) -> None:
    """A fetch would read files that have nothing in common, or all versions of one."""
    file = FileEntry("a/env-1.tar", 100, ROOT, False)

    assert likely == [one.source for one in LikelyFiles(own).of(file)]


def a_metafile(*files: FileEntry) -> Metafile:
    return Metafile(Digest("0" * 64), "n", 16, False, files, (), (), {}, b"", (), PackedFiles((), ()))


# what is right afterwards


def test_a_reuse_is_told_with_the_most_bytes_first() -> None:
    """An upload would name the bundle that matters least, or leave parts of files out."""
    one, two, three = (Digest(letter * 64) for letter in "abc")
    reused = Reused.of({one: 5, two: 3}, {two: 4, three: 1}, 2)

    assert [(two, 7), (one, 5), (three, 1)] == list(reused.counts.items())
    assert (13, 2, 0) == (reused.total, reused.unread, Reused({}).total)


def test_filled_files_say_which_of_their_pieces_are_here() -> None:
    """Pieces of one file would be taken for those of another, and damaged ones handed out."""
    files = [WireFile(name, name, size, ROOT) for name, size in (("a", 20), ("b", 25), ("c", 10), ("d", 1))]
    have = [True, False, True, True, False, True, False]

    assert have == with_parts(files, 10, have, {})
    assert [True, False, False, True, True, True, False] == with_parts(files, 10, have, {"b": [False, True, True]})
    assert [True, False, True, True, False, False, True] == with_parts(files, 10, have, {"c": [False], "d": [True]})


def test_the_last_piece_of_a_file_is_shorter() -> None:
    """Progress would pass 100 %."""
    assert 25 == bytes_in(25, 10, [True, True, True])
    assert 15 == bytes_in(25, 10, [True, False, True])
    assert 0 == bytes_in(25, 10, [False, False, False])
    assert 10 == bytes_in(10, 10, [True])


# recipes


@pytest.mark.parametrize(
    ("file", "is_sound"),
    [
        (recipe_of((1, "a"), (MOST, "b")), True),
        (recipe_of((1, "a"), (LEAST - 1, "b")), True),
        (recipe_of((1, "a"), (LEAST - 2, "b")), False),  # a million chunks of a byte, for each of many equal files
        (recipe_of((0, "a")), False),
        (recipe_of((MOST + 1, "a")), False),
        (recipe_of((1, "a"), root=b"r" * 31), False),
        (FileRecipe(ROOT, bytes(3), bytes(16)), False),
        (FileRecipe(ROOT, LEAST.to_bytes(5, "little"), bytes(16)), False),
        (FileRecipe(ROOT, LEAST.to_bytes(4, "little"), bytes(15)), False),
        (FileRecipe(ROOT, LEAST.to_bytes(4, "little"), bytes(32)), False),
        (FileRecipe(ROOT, b"", b""), True),
    ],
)
def test_a_recipe_that_cannot_be_followed_is_none(file: FileRecipe, is_sound: bool) -> None:
    """A damaged recipe would stop a fetch with a bug, or keep a host busy for hours."""
    assert (Recipe((file,)) if is_sound else None) == parse_recipe(encode_recipe(Recipe((file,))))


def test_one_damaged_file_spoils_its_recipe() -> None:
    """A recipe would be followed in part, though its sender is not to be believed."""
    both = Recipe((recipe_of((1, "a")), recipe_of((0, "b"))))

    assert None is parse_recipe(encode_recipe(both))
    assert None is parse_recipe(None)


def test_a_recipe_of_other_parameters_is_not_followed() -> None:
    """Chunks that were cut in another way would be compared with ours, and none would be found."""
    file = recipe_of((1, "a"))
    for other in (Recipe((file,), version=2), Recipe((file,), sizes=(1, 2, 3))):
        assert None is parse_recipe(encode_recipe(other))


def test_a_recipe_has_room_for_so_many_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recipe would be too large for a request, or lack files that fit."""
    small, large = recipe_of((1, "a"), root=b"s" * 32), recipe_of((1, "a"), (2, "b"), (3, "c"))
    room = 128 + small.count * PER_CHUNK + 128
    for most, files, kept in (
        (room, (small,), (small,)),
        (room - 1, (small,), ()),
        (room + 128 + PER_CHUNK, (small, small), (small, small)),
        (room + 127 + PER_CHUNK, (small, small), (small,)),
        (room, (large, small), (small,)),
    ):
        monkeypatch.setattr(recipe, "MAX_RECIPE_BYTES", most)
        assert Recipe(kept) == parse_recipe(encode_recipe(Recipe(files)))
    raw = encode_recipe(Recipe((small,)))
    monkeypatch.setattr(recipe, "MAX_RECIPE_BYTES", len(raw))
    assert parse_recipe(raw)
    monkeypatch.setattr(recipe, "MAX_RECIPE_BYTES", len(raw) - 1)
    assert not parse_recipe(raw)


def test_a_metafile_goes_with_its_recipe_or_alone() -> None:
    """A master would store no recipe, or a metafile that is none."""
    assert (b"m", b"r") == split_recipe(with_recipe(b"m", b"r"))
    assert b"m" == with_recipe(b"m", None)


@pytest.mark.parametrize("extra", [{b"other": b"x"}, {b"a": b"x", b"z": b"y"}])
def test_a_body_with_more_than_a_metafile_and_a_recipe_is_no_pair(extra: dict[bytes, bytes]) -> None:
    """A metafile with a part that begins alike would be torn apart."""
    pair: dict[bytes, bencode.Value] = {b"metafile": b"m", b"recipe": b"r"}
    body = bencode.encode(pair)
    more = bencode.encode({b"metafile": b"m", b"recipe": b"r", b"z": b""})

    assert (b"m", b"r") == split_recipe(body)
    assert (more, None) == split_recipe(more)
    assert (b"x" + body, None) == split_recipe(b"x" + body)
    assert (body + b"x", None) == split_recipe(body + b"x")
    for number in (b"d8:metafilei1e6:recipe1:re", b"d8:metafile1:m6:recipei1ee", b"d8:metafile1:me"):
        assert (number, None) == split_recipe(number)
    damaged = bencode.encode({**pair, **extra})
    assert (damaged, None) == split_recipe(damaged)


def test_a_record_names_the_hash_of_its_recipe() -> None:
    """A host would follow the recipe of another bundle."""
    assert hashlib.sha256(b"recipe").hexdigest() == recipe_hash(b"recipe")
