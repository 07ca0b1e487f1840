"""Files are cut into chunks by their content, always at the same places."""

from __future__ import annotations

import os
import time
from itertools import accumulate
from pathlib import Path

import pytest

from torrentdist.bundle.hashing import LOOK_RANGE, FileHash, FileToHash, hash_files
from torrentdist.bundle.metafile import FileEntry
from torrentdist.bundle.metafile_maker import make_metafile, make_metafile_and_recipe
from torrentdist.bundle.reuse.chunk_plan import LikelyFiles, OwnFile, share
from torrentdist.bundle.reuse.chunker import RecipeMaker, can_cut, cut, cut_file
from torrentdist.bundle.reuse.recipe import LEAST, MOST, FileRecipe, Recipe, encode_recipe, parse_recipe
from torrentdist.testing.sample_trees import some_bytes

PIECE = 32 * 1024
CUTS = [85543, 236286, 290183, 425224, 480078, 579553, 667329, 748274, 841334, 907594, 977329, 1000000]
HASHES = ["06d38f0890fad3b778b767d573f68c5c", "e6cd445ff5c633ee3ec468763c6fdffa"]


def made_while_hashing(path: Path) -> FileRecipe:
    maker, files = RecipeMaker(), [FileToHash(os.fsencode(path), path.stat().st_size)]
    hashes = [found for found in hash_files(files, PIECE, None, maker.look) if isinstance(found, FileHash)]
    return maker.recipe(list(zip(files, hashes, strict=True))).files[0]


def test_the_cut_points_are_pinned() -> None:
    """Another release of the library would cut elsewhere, and no two hosts would agree any more."""
    cuts = cut(some_bytes(1_000_000, 42))

    assert can_cut()
    assert list(accumulate(length for length, _ in cuts)) == CUTS
    assert [hash.hex() for _, hash in cuts[:2]] == HASHES


@pytest.mark.parametrize("size", [LOOK_RANGE - 1, LOOK_RANGE, LOOK_RANGE + 1, 2 * LOOK_RANGE + 777_777])
def test_a_file_is_cut_alike_however_it_is_read(tmp_path: Path, size: int) -> None:
    """An uploader that reads ranges side by side would cut a file otherwise than a receiver."""
    zeros = bytes(6_000_000)
    content = some_bytes(size // 2, 1) + zeros + some_bytes(size - size // 2 - len(zeros), 2)
    path = tmp_path / "file"
    path.write_bytes(content)
    made, read = made_while_hashing(path), cut_file(os.fsencode(path))

    assert read is not None
    assert [(one.length, one.hash) for one in made.chunks()] == cut(content)
    assert (made.lengths, made.hashes) == (read.lengths, read.hashes)


def test_an_insertion_changes_few_chunks(tmp_path: Path) -> None:
    """A changed member of an archive would move everything behind it again."""
    old = some_bytes(40_000_000, 3)
    new = old[:9_000_000] + b"inserted" + old[9_000_000:]
    recipes = []
    for name, content in (("old", old), ("new", new)):
        (tmp_path / name).write_bytes(content)
        recipes.append(made_while_hashing(tmp_path / name))
    copies, lacking = share(recipes[1].chunks(), recipes[0])

    assert sum(chunk.length for chunk in lacking) <= 3 * MOST
    for one in copies:
        source = old[one.source_start : one.source_start + one.length]
        assert source == new[one.start : one.start + one.length]


def test_a_recipe_changes_no_metafile(tmp_path: Path) -> None:
    """The same content would get another digest where the library is installed."""
    (tmp_path / "large").write_bytes(some_bytes(9_000_000, 4))
    (tmp_path / "small").write_bytes(b"small")
    meta, raw = make_metafile_and_recipe(tmp_path)
    recipe = parse_recipe(raw)

    assert meta == make_metafile(tmp_path)
    assert recipe is not None
    assert [file.root for file in meta.files if file.path == "large"] == list(recipe.by_root)
    assert raw is not None
    assert len(raw) < 9_000_000 * 0.001


def test_small_files_have_no_recipe(tmp_path: Path) -> None:
    """Thousands of small files would make a recipe that nobody follows."""
    (tmp_path / "small").write_bytes(some_bytes(4 * 1024 * 1024, 5))

    assert make_metafile_and_recipe(tmp_path)[1] is None


def test_a_file_beyond_the_bound_of_cuts_has_no_recipe(tmp_path: Path) -> None:
    """The cuts of a huge bundle would fill the memory of the uploader."""
    paths = [tmp_path / "a", tmp_path / "b"]
    for path, size in zip(paths, (5_000_000, LOOK_RANGE + 5_000_000), strict=True):
        path.write_bytes(some_bytes(size, size))
    files = [FileToHash(os.fsencode(path), path.stat().st_size) for path in paths]
    hashes = [found for found in hash_files(files, PIECE) if isinstance(found, FileHash)]
    first, second = paths[0].read_bytes(), paths[1].read_bytes()
    maker = RecipeMaker(most=len(cut(first)) + 1)
    maker.look(0, 0, memoryview(first))
    maker.look(1, 0, memoryview(second)[:LOOK_RANGE])
    maker.look(1, LOOK_RANGE, memoryview(second)[LOOK_RANGE:])

    assert [hashes[0].root] == [*maker.recipe(list(zip(files, hashes, strict=True))).by_root]


def test_a_file_without_room_leaves_others_their_recipe() -> None:
    """The recipes of all files that come after a huge one would be lost."""
    length = LEAST.to_bytes(4, "little")
    files = [FileRecipe(n.to_bytes(32), length * n, bytes(16 * n)) for n in (500_000, 500_001, 1)]
    kept = parse_recipe(encode_recipe(Recipe(tuple(files))))

    assert kept is not None
    assert [500_000, 1] == [file.count for file in kept.files]


def own_file(source: int, path: str, root: int, size: int = 5_000_000) -> OwnFile[int]:
    return OwnFile(source, path, size, root.to_bytes(32))


def test_the_likeliest_files_come_first() -> None:
    """A new version would be compared with the wrong old file."""
    own = [
        own_file(0, "x/env-9.tar", 1),
        own_file(1, "env-8.tar", 2),
        own_file(1, "x/env-8.tar", 1),
        own_file(2, "x/env-7.tar", 3),
        own_file(2, "x/env-10.tar", 4),
        own_file(2, "other.tar", 5),
    ]
    likely = LikelyFiles(own)

    assert [own[4], own[0], own[1]] == likely.of(FileEntry("x/env-10.tar", 5_000_000, b"", False))
    assert [own[4]] == likely.of(FileEntry("x/env-10.tar", 2_000_000, b"", False))
    assert [] == likely.of(FileEntry("new.tar", 5_000_000, b"", False))


@pytest.mark.alone
def test_many_part_files_are_matched_quickly() -> None:
    """A host would compare each of thousands of part files with all that it has, for minutes."""
    own = [own_file(n // 2_000, f"part-{n % 2_000:05}.parquet", n) for n in range(32_000)]
    arriving = [FileEntry(f"part-{n:05}.parquet", 5_000_000, b"", False) for n in range(2_000)]
    began = time.monotonic()
    likely = LikelyFiles(own)
    found = [likely.of(file) for file in arriving]

    assert time.monotonic() - began < 0.7
    assert all(
        len(files) == 3 and {one.path for one in files} == {file.path}
        for files, file in zip(found, arriving, strict=True)
    )
