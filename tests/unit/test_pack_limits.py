"""Packs of small files exactly at their limits: which files are packed, where a pack ends, and what
a manifest may say."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from torrentdist.bundle import bencode, metafile_maker, safe_paths
from torrentdist.bundle.file_tree import FileEntry
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.bundle.packs import pack_manifest, pack_plan
from torrentdist.bundle.packs.pack_manifest import PackedFiles, encode_packed, parse_packed
from torrentdist.bundle.packs.pack_plan import (
    FEWEST,
    LEAST_LIMIT,
    LEAST_PACK,
    MOST_GROWTH,
    MOST_LOOSE,
    MOST_PACK,
    MOST_PACKS,
    USUAL_PACK,
    pack_counts,
    pack_growth,
    pack_order,
    small_limit,
)
from torrentdist.model.errors import TorrentdistError
from torrentdist.testing.sample_trees import write_tree

PIECE = 16 * LEAST_LIMIT
ENDS, GOES_ON = bytes(32), b"\xff" * 32
"""A root that ends a pack wherever it may end, and one that never does."""


@pytest.mark.parametrize(
    ("sizes", "limit"),
    [
        ([1] * FEWEST, 0),
        ([1] * (FEWEST + 1), LEAST_LIMIT),
        ([0] * 1000, 0),
        ([0] * 1000 + [1] * FEWEST, 0),
        ([LEAST_LIMIT] * (FEWEST + 1), LEAST_LIMIT),
        ([LEAST_LIMIT + 1] * (FEWEST + 1), 0),
        ([1] * (FEWEST + 1) + [LEAST_LIMIT + 1] * MOST_LOOSE, LEAST_LIMIT),
        ([1] * (FEWEST + 1) + [LEAST_LIMIT + 1] * (MOST_LOOSE + 1), 2 * LEAST_LIMIT),
        ([PIECE + 1] * (MOST_LOOSE + 1), 0),
        ([PIECE] * (MOST_LOOSE + 1), PIECE),
    ],
)
def test_only_many_small_files_are_packed(sizes: list[int], limit: int) -> None:
    """A bundle of few files would be packed for nothing, or one of many would be slow."""
    assert limit == small_limit(sizes, PIECE)


def test_no_file_that_is_larger_than_a_piece_is_packed() -> None:
    """A swarm could not check the file by itself."""
    assert LEAST_LIMIT // 2 == small_limit([1] * (FEWEST + 1), LEAST_LIMIT // 2)


def test_packs_go_directory_by_directory() -> None:
    """A change of one directory would change the packs of others."""
    paths = [b"b/x", b"a", b"a-b/c", b"a/b/c", b"a/z", b"a/b", b"z"]

    assert [b"a", b"z", b"a/b", b"a/z", b"a/b/c", b"a-b/c", b"b/x"] == [paths[number] for number in pack_order(paths)]


@pytest.mark.parametrize(
    ("files", "counts"),
    [
        ([], []),
        ([(0, ENDS)], []),
        ([(LEAST_PACK, ENDS), (1, ENDS)], [1, 1]),
        ([(LEAST_PACK - 1, ENDS), (1, ENDS), (1, ENDS)], [2, 1]),
        ([(LEAST_PACK, GOES_ON), (1, GOES_ON)], [2]),
        ([(MOST_PACK, GOES_ON), (1, GOES_ON)], [1, 1]),
        ([(MOST_PACK // 8, GOES_ON)] * 8 + [(0, ENDS)], [9]),
        ([(MOST_PACK // 8, GOES_ON)] * 9, [8, 1]),
        ([(LEAST_PACK, ENDS), (0, ENDS), (0, ENDS)], [3]),
        ([(0, ENDS), (MOST_PACK, GOES_ON)], [2]),
        ([(0, ENDS), (MOST_PACK + 1, GOES_ON), (1, GOES_ON)], [2, 1]),
        ([(USUAL_PACK // 2, b"\x80" + bytes(31)), (1, GOES_ON)], [2]),
        ([(USUAL_PACK // 2, b"\x7f" + b"\xff" * 31), (1, GOES_ON)], [1, 1]),
    ],
)
def test_a_pack_ends_where_its_files_say(files: list[tuple[int, bytes]], counts: list[int]) -> None:
    """Two hosts would make different packs of the same files, and share nothing."""
    assert counts == pack_counts(files)


@pytest.mark.parametrize(
    ("size", "growth"),
    [
        (0, 1),
        (MOST_PACKS * USUAL_PACK, 1),
        (MOST_PACKS * USUAL_PACK + 1, 2),
        (MOST_PACKS * USUAL_PACK * 2, 2),
        (MOST_PACKS * USUAL_PACK * 2 + 1, 4),
        (MOST_PACKS * USUAL_PACK * MOST_GROWTH * 9, MOST_GROWTH),
    ],
)
def test_packs_of_many_bytes_are_larger(size: int, growth: int) -> None:
    """A million images would be a hundred thousand packs, and slow as files are."""
    assert growth == pack_growth(size)


def test_the_number_of_packs_is_bounded() -> None:
    """A bundle whose small files are as large as a pack would have a pack for each."""
    files = [(USUAL_PACK, hashlib.sha256(bytes([number % 256, number // 256])).digest()) for number in range(12_000)]
    counts = pack_counts(files)

    assert len(files) == sum(counts)
    assert MOST_PACKS / 2 < len(counts) <= MOST_PACKS
    assert max(counts) * USUAL_PACK <= MOST_PACK * pack_growth(len(files) * USUAL_PACK)


@pytest.mark.parametrize(("growth", "counts"), [(1, [1, 1, 1]), (2, [2, 1])])
def test_a_larger_pack_ends_later(monkeypatch: pytest.MonkeyPatch, growth: int, counts: list[int]) -> None:
    """Packs would not grow, or never end."""
    monkeypatch.setattr(pack_plan, "pack_growth", lambda size: growth)

    assert counts == pack_counts([(LEAST_PACK, ENDS)] * 3)
    assert [8 * growth, 1] == pack_counts([(MOST_PACK // 8, GOES_ON)] * (8 * growth + 1))


FILES = (
    FileEntry("a", 5, b"a" * 32, True),
    FileEntry("d/b", 0, b"", False),
    FileEntry("d/c", 7, b"c" * 32, False),
)


def columns(**changed: Any) -> dict[bytes, bytes]:
    values = {**encode_packed(FILES, [1, 2]), **{name.replace("_", " ").encode(): to for name, to in changed.items()}}
    return {key: bencode.encode(value) for key, value in values.items()}


def numbers(*values: int) -> bytes:
    return b"".join(value.to_bytes(4, "little") for value in values)


def test_a_manifest_comes_back_as_it_was_made() -> None:
    """A file would be stored under another name, or not be executable."""
    assert PackedFiles(FILES, (1, 2)) == parse_packed(columns())


@pytest.mark.parametrize(
    "changed",
    [
        {"sizes": b""},
        {"sizes": numbers(5, 0)},
        {"sizes": numbers(5, 0, 16 * 1024 * 1024 + 1)},
        {"sizes": b"abc"},
        {"sizes": 1},
        {"names": [b"a\0b\0c"]},
        {"names": {b"a": b"b"}},
        {"names": [b"a", b"b", b"c"]},
        {"names": {b"a": b"b", b"c": b"d"}},
        {"packed_executable": b""},
        {"packed_executable": b"\1\0"},
        {"packs": b""},
        {"packs": numbers(3, 0)},
        {"packs": numbers(2)},
        {"packs": numbers(4)},
        {"counts": numbers(2, 2)},
        {"counts": numbers(3, 0)},
        {"counts": numbers(3)},
        {"roots": b"a" * 32},
        {"roots": b"a" * 96},
        {"names": b"a\0b"},
        {"names": b"a\0c\0b"},
        {"names": b"a\0b\0b"},
        {"names": b"a\0..\0c"},
        {"directories": b"d\0"},
        {"directories": b"d\0d"},
        {"directories": b"\0.."},
        {"directories": b"\0d/../e"},
        {"directories": b"\0" + b"/".join([b"d"] * safe_paths.MAX_DEPTH)},
        {"directories": b""},
    ],
)
def test_a_manifest_that_claims_what_cannot_be_is_refused(changed: dict[str, Any]) -> None:
    """A metafile from outside could write files anywhere, or name one file twice."""
    with pytest.raises(TorrentdistError) as caught:
        parse_packed(columns(**changed))

    assert "invalid_metafile" == caught.value.code


def test_executable_files_are_told_by_their_bits() -> None:
    """Other files than those that were packed would be executable."""
    ones = {0, 7, 8, 9, 16}
    files = tuple(FileEntry(f"f{number:02}", 1, b"r" * 32, number in ones) for number in range(17))
    encoded = encode_packed(files, [17])

    assert bytes([0b10000001, 0b11, 1]) == encoded[b"packed executable"]
    assert files == parse_packed({key: bencode.encode(part) for key, part in encoded.items()}).files


def test_numbers_are_little_endian() -> None:
    """Hosts with other processors would read other sizes."""
    assert numbers(1, 2**31) == b"\1\0\0\0\0\0\0\x80" == pack_manifest.numbers([1, 2**31])
    assert [1, 2**31] == list(pack_manifest.parse_numbers(numbers(1, 2**31)))


def test_as_many_files_as_allowed_are_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle that can be made could not be read, or a hostile one would fill the memory."""
    largest = FileEntry("a", 16 * 1024 * 1024, b"a" * 32, False)

    assert (largest,) == parse_packed(
        {key: bencode.encode(part) for key, part in encode_packed([largest], [1]).items()}
    ).files
    for name, most in (("MAX_ENTRIES", 3), ("MAX_ALL_PATHS_BYTES", len("d/") * 2)):
        monkeypatch.setattr(safe_paths, name, most)
        assert FILES == parse_packed(columns()).files
        monkeypatch.setattr(safe_paths, name, most - 1)
        with pytest.raises(TorrentdistError, match=r"more than|too long"):
            parse_packed(columns())
        monkeypatch.undo()


def test_a_directory_as_deep_as_allowed_is_taken() -> None:
    """A bundle that can be made could not be read."""
    deepest = "/".join(["d"] * (safe_paths.MAX_DEPTH - 1))
    files = (FILES[0], FileEntry(f"{deepest}/b", 7, b"c" * 32, False))

    assert files == parse_packed({key: bencode.encode(part) for key, part in encode_packed(files, [2]).items()}).files


def test_the_paths_of_packs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few names could describe paths that fill the memory."""
    monkeypatch.setattr(safe_paths, "MAX_PATH_BYTES", 3)
    assert FILES == parse_packed(columns()).files
    monkeypatch.setattr(safe_paths, "MAX_PATH_BYTES", 2)
    with pytest.raises(TorrentdistError, match="too long"):
        parse_packed(columns())


@pytest.mark.parametrize(("most", "is_read"), [(300 * 37, False), (300 * 41, True)])
def test_a_tree_whose_metafile_would_be_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, is_read: bool
) -> None:
    """An upload would read a million files, and then be refused by each master with a riddle."""
    write_tree(tmp_path, {f"f{number:03}": bytes([number % 251]) for number in range(300)})
    monkeypatch.setattr(metafile_maker, "MAX_METAFILE_BYTES", most)
    read: list[int] = []
    with pytest.raises(TorrentdistError) as error:
        make_metafile(tmp_path, progress=lambda done, size: read.append(done))

    assert error.value.code == "invalid_bundle"
    assert "too many files" in error.value.message
    assert is_read == bool(read)
