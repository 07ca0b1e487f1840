"""The files of a metafile's tree, one at a time, and its limits from both sides."""

from __future__ import annotations

from typing import Any

import pytest

from torrentdist.bundle import bencode, safe_paths
from torrentdist.bundle.bencode import BencodeError
from torrentdist.bundle.file_tree import MAX_PIECE_LENGTH, MAX_PIECES, TreeFile, read_tree
from torrentdist.model.errors import TorrentdistError

ROOT = b"r" * 32
LARGEST = MAX_PIECES * MAX_PIECE_LENGTH
EMPTY: dict[bytes, Any] = {b"": {b"length": 0}}


def a_file(size: int = 1, root: bytes = ROOT) -> dict[bytes, Any]:
    return {b"": {b"length": size, b"pieces root": root}}


def read(tree: Any) -> list[TreeFile]:
    return list(read_tree(bencode.encode(tree)))


def refusal(tree: Any) -> str:
    with pytest.raises(TorrentdistError) as caught:
        read(tree)

    assert "invalid_metafile" == caught.value.code
    return caught.value.message


def test_files_come_with_their_paths_sizes_and_roots() -> None:
    """A file would be stored under another name or with another length."""
    tree = {b"a": a_file(5), b"d": {b"e": EMPTY, b"f": {b"g": a_file(LARGEST)}}, b"z": a_file()}

    assert [
        TreeFile(b"a", 5, ROOT),
        TreeFile(b"d/e", 0, b""),
        TreeFile(b"d/f/g", LARGEST, ROOT),
        TreeFile(b"z", 1, ROOT),
    ] == read(tree)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (a_file(LARGEST + 1), "the size of 'a' is missing or out of bounds"),
        ({b"": {b"length": -1}}, "the size of 'a' is missing or out of bounds"),
        ({b"": {b"length": b"1", b"pieces root": ROOT}}, "the size of 'a' is missing or out of bounds"),
        ({b"": {b"pieces root": ROOT}}, "the size of 'a' is missing or out of bounds"),
        ({b"": {b"length": 10**19}}, "the size of 'a' is missing or out of bounds"),
        (a_file(0), "the pieces root of 'a' does not fit its size"),
        ({b"": {b"length": 1}}, "the pieces root of 'a' does not fit its size"),
        (a_file(1, b"r" * 31), "the pieces root of 'a' does not fit its size"),
        ({b"": {b"length": 1, b"pieces root": 1}}, "the pieces root of 'a' does not fit its size"),
        ({b"": {b"length": 0, b"x": 1}}, "'a' has unknown attributes"),
        ({b"": {b"length": LARGEST, b"pieces root": ROOT, b"x": 1}}, "'a' has unknown attributes"),
        ({b"": {b"length": 0}, b"b": EMPTY}, "'a' is a file and a directory at once"),
        ({b"": 1}, "a file of the file tree is missing or no dictionary"),
        ({b"": [0] * 30}, "'a' is no file: it has more than 20 values"),
        ({}, "the file tree has a directory without files"),
        (1, "an entry of the file tree is missing or no dictionary"),
    ],
)
def test_an_entry_that_is_no_file_says_why(entry: Any, said: str) -> None:
    """An operator would read of a metafile that is wrong, and not of what is wrong with it."""
    assert refusal({b"a": entry}).endswith(said)


@pytest.mark.parametrize("tree", [b"", b"le", b"i1e", b"4:tree"])
def test_a_tree_is_a_dictionary(tree: bytes) -> None:
    """A metafile without files would raise an error that nobody expects."""
    with pytest.raises(TorrentdistError, match="missing or no dictionary"):
        list(read_tree(tree))


def test_names_are_sorted_and_safe() -> None:
    """One bundle would have two digests, or a file would leave its directory."""
    entry = bencode.encode(EMPTY)
    for names in ((b"1:b", b"1:a"), (b"1:a", b"1:a")):
        with pytest.raises(BencodeError, match="not sorted and unique"):
            list(read_tree(b"d%s%s%s%se" % (names[0], entry, names[1], entry)))

    assert "cannot be used" in refusal({b"..": EMPTY})


def test_a_tree_as_deep_as_allowed_is_read() -> None:
    """A bundle that can be uploaded could not be downloaded, or a stock client could not read
    it."""

    def nested(levels: int) -> Any:
        return {b"d": nested(levels - 1)} if levels > 1 else {b"f": EMPTY}

    assert safe_paths.MAX_DEPTH == read(nested(safe_paths.MAX_DEPTH))[0].path.count(b"/") + 1
    assert f"deeper than {safe_paths.MAX_DEPTH}" in refusal(nested(safe_paths.MAX_DEPTH + 1))


def test_a_path_as_long_as_allowed_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle at the limit would be refused, or one above it could not be stored."""
    monkeypatch.setattr(safe_paths, "MAX_PATH_BYTES", 5)

    assert b"ab/cd" == read({b"ab": {b"cd": EMPTY}})[0].path
    assert "longer than 5 bytes" in refusal({b"ab": {b"cde": EMPTY}})


def test_entries_and_their_paths_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small metafile would describe a tree that fills the memory."""
    monkeypatch.setattr(safe_paths, "MAX_ENTRIES", 2)
    tree = {b"d": {b"a": EMPTY, b"b": EMPTY, b"c": EMPTY}}

    assert 3 == len(read(tree))
    assert "more than 2 files" in refusal({**tree, b"e": EMPTY})
    monkeypatch.setattr(safe_paths, "MAX_ALL_PATHS_BYTES", 9)
    assert 3 == len(read(tree))
    monkeypatch.setattr(safe_paths, "MAX_ALL_PATHS_BYTES", 8)
    assert "too long paths" in refusal(tree)
