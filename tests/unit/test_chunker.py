"""Files are cut into chunks by their content, always at the same places."""

from __future__ import annotations

import os
from itertools import accumulate
from pathlib import Path

import pytest

from torrentdist.bundle.hashing import LOOK_RANGE, FileHash, FileToHash, hash_files
from torrentdist.bundle.metafile_maker import make_metafile, make_metafile_and_recipe
from torrentdist.bundle.reuse.chunk_plan import share
from torrentdist.bundle.reuse.chunker import RecipeMaker, can_cut, cut, cut_file
from torrentdist.bundle.reuse.recipe import MOST, FileRecipe, parse_recipe
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
