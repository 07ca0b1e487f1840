"""Objects become the bundle that a directory with the same files is."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.client.bundles.chunked_upload import read_chunk
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.client.storage import object_hashing
from torrentdist.client.storage.object_hashing import expect_unchanged, hash_objects
from torrentdist.client.storage.object_listing import list_objects, listing_of
from torrentdist.client.storage.object_upload import reader_of, upload_objects
from torrentdist.model.configuration.config import ClientConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.testing.sample_trees import some_bytes, write_tree

KB = 1024
PARTS = 400


class SlowFiles(LocalFileSystem):  # type: ignore[misc]
    """A directory that is read as slowly as a far storage. `bad` cannot be read."""

    protocol = "slow"
    reads: ClassVar[list[str]] = []
    begun: ClassVar[threading.Event]

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        return str(super()._strip_protocol(str(path).removeprefix("slow://")))

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        time.sleep(0.003)
        if path.endswith("bad"):
            raise OSError("no such block")
        self.reads.append(path)
        self.begun.set()
        return bytes(super().cat_file(path, start, end, **options))


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with one file of PARTS parts."""
    monkeypatch.setattr(object_hashing, "PART_BYTES", 16 * KB)
    fsspec.register_implementation("slow", SlowFiles, clobber=True)
    SlowFiles.reads.clear()
    SlowFiles.begun = threading.Event()
    write_tree(tmp_path / "slow", {"large": bytes(PARTS * 16 * KB)})
    yield tmp_path / "slow"
    assert PARTS > len(SlowFiles.reads)


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


def test_an_object_that_cannot_be_read_ends_it_at_once(slow: Path) -> None:
    """A failed upload would read terabytes to their end before it says so."""
    (slow / "bad").write_bytes(b"1" * 100)
    with pytest.raises(TorrentdistError, match="no such block"):
        hash_objects(list_objects(f"slow://{slow}"), lambda done, total: None)


@pytest.mark.anyio
async def test_an_upload_that_is_given_up_reads_no_further(slow: Path) -> None:
    """Ctrl-C would leave a command that reads on, and a program that uploads would read for what
    nobody waits for."""
    client = MasterClient(ClientConfig(masters=["http://127.0.0.1:1"]))
    uploading = asyncio.create_task(upload_objects(client, f"slow://{slow}"))
    assert await asyncio.to_thread(SlowFiles.begun.wait, 20.0)
    uploading.cancel()
    await asyncio.get_running_loop().shutdown_default_executor()

    assert uploading.cancelled()
