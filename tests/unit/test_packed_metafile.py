"""What is read from a metafile with packs, and what is refused in one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from torrentdist.bundle import bencode, metafile, safe_paths
from torrentdist.bundle.file_tree import FileEntry, TreeFile
from torrentdist.bundle.metafile import WireFile, parse_metafile, read_files, with_trackers
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.bundle.packs.pack_manifest import PackedFiles, encode_packed
from torrentdist.model.errors import TorrentdistError

PIECE = 32 * 1024
ROOT = b"r" * 32
SMALL = (
    FileEntry("a", 3, b"a" * 32, True),
    FileEntry("d/b", 4, b"b" * 32, False),
    FileEntry("d/z", 9, b"z" * 32, False),
)
PACKS = {b"00000": 7, b"00001": 9}
LOOSE = {b"c": 5, b"d": {b"large": PIECE}}


def tree(sizes: dict[bytes, Any]) -> dict[bytes, Any]:
    """Returns a part of a file tree. A file's root is made of its name."""
    return {
        name: tree(size)
        if isinstance(size, dict)
        else {b"": {b"length": size, b"pieces root": hashlib.sha256(name).digest()} if size else {b"length": 0}}
        for name, size in sizes.items()
    }


def packed(
    small: Sequence[FileEntry] = SMALL,
    counts: Sequence[int] = (2, 1),
    packs: dict[bytes, int] = PACKS,
    executable: Sequence[int] = (1,),
    loose: dict[bytes, Any] = LOOSE,
) -> bytes:
    manifest: dict[bytes, Any] = {
        **encode_packed(small, counts), b"empty dirs": [], b"executable": [*executable], b"symlinks": {},
    }  # fmt: skip
    info: dict[bytes, Any] = {
        b"file tree": {b"files": tree(loose), b"packs": tree(packs)},
        b"meta version": 2,
        b"name": b"content",
        b"piece length": PIECE,
        b"private": 1,
        b"torrentdist": {b"manifest": hashlib.sha256(bencode.encode(manifest)).digest(), b"schema": 2},
    }
    return bencode.encode({b"info": info, b"manifest": manifest, b"piece layers": {}})


def root(name: bytes) -> bytes:
    return hashlib.sha256(name).digest()


def test_files_of_packs_and_loose_ones_are_one_tree() -> None:
    """A small file would be missing from its bundle, or lie in another place."""
    meta = parse_metafile(packed())
    loose = [FileEntry("c", 5, root(b"c"), False), FileEntry("d/large", PIECE, root(b"large"), True)]

    assert (SMALL[0], loose[0], SMALL[1], loose[1], SMALL[2]) == meta.files
    assert PackedFiles(SMALL, (2, 1)) == meta.packed
    assert not meta.single_file
    assert (
        WireFile("c", "content/c", 5, root(b"c")),
        WireFile("d/large", "content/d/large", PIECE, root(b"large")),
        WireFile("../packs/00000", "packs/00000", 7, root(b"00000")),
        WireFile("../packs/00001", "packs/00001", 9, root(b"00001")),
    ) == meta.wire_files


def test_a_loose_file_lies_as_deep_as_in_a_bundle_without_packs() -> None:
    """A bundle that can be made could not be fetched, since its packs add a directory."""
    deepest: dict[bytes, Any] = {b"f": 5}
    for _ in range(safe_paths.MAX_DEPTH - 1):
        deepest = {b"d": deepest}

    files = parse_metafile(packed(loose=deepest, executable=())).files
    assert safe_paths.MAX_DEPTH == max(len(file.path.split("/")) for file in files)
    with pytest.raises(TorrentdistError, match="levels"):
        parse_metafile(packed(loose={b"d": deepest}, executable=()))


def test_an_index_reads_the_same_files_without_checks() -> None:
    """A host would not find what it has, and fetch it again."""
    assert [
        TreeFile(b"c", 5, root(b"c")),
        TreeFile(b"d/large", PIECE, root(b"large")),
        TreeFile(b"../packs/00000", 7, root(b"00000")),
        TreeFile(b"../packs/00001", 9, root(b"00001")),
        TreeFile(b"a", 3, b"a" * 32),
        TreeFile(b"d/b", 4, b"b" * 32),
        TreeFile(b"d/z", 9, b"z" * 32),
    ] == list(read_files(packed()))


def test_an_index_reads_each_file_of_a_bundle_without_packs_once(tmp_path: Path) -> None:
    """A host would not find what it has, or count it twice."""
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    meta = make_metafile(tmp_path)

    assert [TreeFile(file.path.encode(), 1, file.root) for file in meta.files] == list(read_files(meta.raw))


def test_what_is_damaged_is_no_metafile() -> None:
    """A damaged file would raise an error that nobody expects."""
    for raw in (b"", b"d", b"d4:infod1:ae", b"le"):
        with pytest.raises(TorrentdistError, match="canonical bencode"):
            list(read_files(raw))
        with pytest.raises(TorrentdistError, match="canonical bencode"):
            with_trackers(raw, ["http://127.0.0.1/a"])
    with pytest.raises(TorrentdistError, match="info dictionary"):
        list(read_files(b"de"))


def test_a_manifest_that_the_digest_does_not_cover_is_refused() -> None:
    """One digest would stand for two bundles."""
    top: Any = bencode.decode(packed())
    top[b"manifest"][b"empty dirs"] = [b"e"]

    with pytest.raises(TorrentdistError, match="not the one that its info dictionary names"):
        parse_metafile(bencode.encode(top))


def grown(size: int) -> list[FileEntry]:
    return [SMALL[0], FileEntry("d/b", size, b"b" * 32, False), SMALL[2]]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (packed(packs={b"00000": 7, b"1": 9}), "its packs are not those of its manifest"),
        (packed(packs={b"00000": 7}), "its packs are not those of its manifest"),
        (packed(packs={**PACKS, b"00002": 9}), "its packs are not those of its manifest"),
        (packed(packs={b"00000": 8, b"00001": 9}), "a pack is not as long as its files"),
        (packed(packs={b"00000": 7, b"00001": 8}), "a pack is not as long as its files"),
        (packed([FileEntry("e", 0, b"", False)], [1], {b"00000": 0}), "a pack is empty"),
        (packed(grown(PIECE + 1), packs={b"00000": PIECE + 4, b"00001": 9}), "larger than a piece"),
        (packed(executable=[2]), "executable that is not there"),
    ],
)
def test_packs_that_cannot_be_are_refused(raw: bytes, said: str) -> None:
    """A file would be cut out of bytes that are not its own."""
    with pytest.raises(TorrentdistError, match=said):
        parse_metafile(raw)


def test_packs_and_their_files_are_as_large_as_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle that can be made could not be read, or a pack would fill the memory."""
    largest = FileEntry("a", PIECE, ROOT, False)
    assert largest in parse_metafile(packed([largest], [1], {b"00000": PIECE})).files
    one = packed([SMALL[0]], [1], {b"00000": 3})
    monkeypatch.setattr(metafile, "MAX_PACK_BYTES", 3)
    assert parse_metafile(one)
    monkeypatch.setattr(metafile, "MAX_PACK_BYTES", 2)
    with pytest.raises(TorrentdistError, match="has more than 2 bytes"):
        parse_metafile(one)
    monkeypatch.undo()
    assert parse_metafile(packed([FileEntry("a", 1, ROOT, False)], [1], {b"00000": 1}))
