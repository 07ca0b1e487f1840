"""What a metafile says of its files, packs and directories."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from torrentdist.bundle.metafile import FileEntry, Metafile, Symlink, WireFile, metafile_of
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.bundle.packs.pack_manifest import PackedFiles
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest

LARGE = FileEntry("b/c/large", 35, b"l" * 32, False)
SMALL = (
    FileEntry("b/c/d/s", 3, b"s" * 32, False),
    FileEntry("b/empty", 0, b"", False),
    FileEntry("b/t", 4, b"t" * 32, True),
    FileEntry("u", 9, b"u" * 32, False),
)
WIRE = WireFile("b/c/large", "content/b/c/large", 35, b"l" * 32)
FIRST = WireFile("../packs/00000", "packs/00000", 7, b"p" * 32)
SECOND = WireFile("../packs/00001", "packs/00001", 9, b"q" * 32)
META = Metafile(
    digest=Digest("0" * 64),
    name="content",
    piece_length=16,
    single_file=False,
    files=(LARGE, *SMALL),
    symlinks=(Symlink("x/y/link", "u"),),
    empty_dirs=("v/w",),
    piece_layers={},
    raw=b"",
    wire_files=(WIRE, FIRST, SECOND),
    packed=PackedFiles(SMALL, (3, 1)),
)


def test_each_small_file_lies_in_its_pack() -> None:
    """A file would be cut out of another pack, or from a wrong byte on."""
    assert [False, True, True] == [file.is_pack for file in META.wire_files]
    assert [(FIRST, SMALL[:3]), (SECOND, SMALL[3:])] == META.packs
    assert {
        "b/c/large": (WIRE, 0),
        "b/c/d/s": (FIRST, 0),
        "b/t": (FIRST, 3),
        "u": (SECOND, 0),
    } == META.whereabouts
    with pytest.raises(ValueError, match="zip"):
        _ = msgspec.structs.replace(META, packed=PackedFiles(SMALL, (4,))).packs


def test_sizes_are_those_of_the_torrent() -> None:
    """Room would be reserved twice for small files, or not at all."""
    assert (51, 16, 5, 5) == (META.size, META.packed_size, META.num_pieces, META.file_count)


def test_a_swarm_keeps_no_small_files() -> None:
    """A master would keep a million names in memory for each swarm."""
    kept = META.for_swarm

    assert (META.digest, META.wire_files, META.size) == (kept.digest, kept.wire_files, kept.size)
    assert ((), (), (), PackedFiles((), ())) == (kept.files, kept.symlinks, kept.empty_dirs, kept.packed)


def test_every_directory_on_the_way_to_an_entry_is_named() -> None:
    """A directory would not be made, or get no mode."""
    assert ("b", "b/c", "b/c/d", "v", "v/w", "x", "x/y") == META.directories


def test_only_the_metafile_of_a_digest_is_taken_for_it(tmp_path: Path) -> None:
    """A host would fetch other content than it was told."""
    (tmp_path / "f").write_bytes(b"x")
    meta = make_metafile(tmp_path / "f")

    assert meta == metafile_of(meta.raw, meta.digest)
    for raw, digest in ((meta.raw, "1" * 64), (meta.raw + b"!", meta.digest), (b"", meta.digest)):
        with pytest.raises(TorrentdistError) as caught:
            metafile_of(raw, digest)
        assert ("corrupt", f"the metafile of {digest}") == (caught.value.code, caught.value.fields["path"])
