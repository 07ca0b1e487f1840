"""Objects become the bundle that a directory with the same files is."""

from __future__ import annotations

from pathlib import Path

import pytest

from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.client.bundles.chunked_upload import read_chunk
from torrentdist.client.storage import object_hashing
from torrentdist.client.storage.object_hashing import expect_unchanged, hash_objects
from torrentdist.client.storage.object_listing import list_objects, listing_of
from torrentdist.client.storage.object_upload import reader_of
from torrentdist.model.errors import TorrentdistError
from torrentdist.testing.sample_trees import some_bytes, write_tree

KB = 1024


@pytest.mark.parametrize("size", [0, 1, 16 * KB, 16 * KB + 1, 32 * KB, 32 * KB + 1, 64 * KB, 300 * KB, 9000 * KB + 7])
def test_the_digest_is_that_of_the_directory(tmp_path: Path, size: int) -> None:
    """The same data would be another bundle, and be sent again."""
    write_tree(tmp_path / "top", {"a/x": some_bytes(size, 1), "a.b": b"1", "a/y/z": some_bytes(40 * KB, 2)})
    told: list[tuple[int, int]] = []
    listing = list_objects(f"file://{tmp_path / 'top'}")
    meta = hash_objects(listing, lambda done, total: told.append((done, total)))

    assert make_metafile(tmp_path / "top", packed=False).digest == meta.digest
    assert (meta.size, meta.size) == told[-1]


def test_the_reader_reads_as_from_the_directory(tmp_path: Path) -> None:
    """Masters would be sent other bytes than those that were hashed."""
    write_tree(tmp_path / "top", {"a": some_bytes(5000, 1), "b": b"", "c": some_bytes(70_000, 2)})
    meta, read = make_metafile(tmp_path / "top", packed=False), reader_of(list_objects(f"file://{tmp_path / 'top'}"))

    for offset, length in ((0, 100), (4990, 20), (4999, 1), (5000, 70_000), (74_999, 10), (75_000, 1)):
        assert read_chunk(meta, tmp_path / "top", offset, length) == read(offset, length)


def test_an_object_that_changes_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle would hold a mixture of two versions."""
    write_tree(tmp_path / "top", {"a": b"1" * 5000})
    listing = list_objects(f"file://{tmp_path / 'top'}")
    (tmp_path / "top" / "a").write_bytes(b"2" * 6000)
    with pytest.raises(TorrentdistError, match="changed while it was being read"):
        expect_unchanged(listing)
    with pytest.raises(TorrentdistError, match="changed while it was being read"):
        hash_objects(listing, lambda done, total: None)
    monkeypatch.setattr(object_hashing, "expect_unchanged", lambda listing: None)
    (tmp_path / "top" / "a").write_bytes(b"2" * 4000)
    with pytest.raises(TorrentdistError, match="changed while it was being read"):
        hash_objects(listing, lambda done, total: None)


@pytest.mark.parametrize("names", [["a/../b"], ["a", "a/b"], ["a//b"]])
def test_names_that_no_bundle_can_hold_are_refused(names: list[str]) -> None:
    """Hosts would refuse the bundle after everything was read."""
    found = {f"bucket/data/{name}": {"size": 1, "type": "file"} for name in names}
    with pytest.raises(TorrentdistError) as caught:
        listing_of("s3://bucket/data", None, "bucket/data", found)

    assert "bad_name" == caught.value.code
