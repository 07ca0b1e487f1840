"""FsCodeDistributor keeps the contract of plug-ins, on a directory and on a real S3 endpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from torrentdist.model.errors import TorrentdistError
from torrentdist.testing import CodeDistributorConformance, PluginHosts
from torrentdist.testing.sample_trees import NESTED, SMALL


class TestFsCodeDistributorOnDirectory(CodeDistributorConformance):
    plugin = "torrentdist.distributor.fs:FsCodeDistributor"

    @pytest.fixture
    def storage(self, tmp_path: Path) -> Path:
        return tmp_path / "storage"

    @pytest.fixture
    def options(self, storage: Path) -> Mapping[str, Any]:
        return {"url": storage.as_uri()}

    def break_sources(self, trio: PluginHosts, options: Mapping[str, Any]) -> None:
        storage = Path(str(options["url"]).removeprefix("file://"))
        storage.rename(storage.with_suffix(".away"))

    def mend_sources(self, trio: PluginHosts, options: Mapping[str, Any]) -> None:
        storage = Path(str(options["url"]).removeprefix("file://"))
        storage.with_suffix(".away").rename(storage)

    def place(self, storage: Path, bundle_id: str) -> Path:
        """Returns the only directory of this bundle in the storage."""
        (place,) = (storage / bundle_id).iterdir()
        return place

    def test_an_unfinished_upload_does_not_exist_for_readers(self, trio: PluginHosts, storage: Path) -> None:
        """If this fails, a download begins with the unfinished files of an upload."""
        metafile = trio.a.upload("etl-42", NESTED)
        (self.place(storage, "etl-42") / "complete.json").unlink()
        failure = trio.b.failure("etl-42", metafile)

        assert isinstance(failure, TorrentdistError)
        assert failure.code == "bundle_unavailable"
        assert trio.b.plugin.get_replication_count("etl-42") == 0

    def test_a_broken_upload_goes_on(self, trio: PluginHosts, storage: Path) -> None:
        """If this fails, every retry of a large upload begins with the first byte, or keeps half an
        object."""
        trio.a.upload("etl-42", NESTED)
        place = self.place(storage, "etl-42")
        kept, half, *_ = sorted(place.glob("?" * 64))
        half.write_bytes(half.read_bytes()[:-1])
        (place / "complete.json").unlink()
        before = kept.stat().st_mtime_ns
        metafile = trio.a.upload("etl-42", NESTED)

        assert before == kept.stat().st_mtime_ns
        assert trio.b.download("etl-42", metafile) == NESTED

    def test_equal_files_are_stored_once(self, trio: PluginHosts, storage: Path) -> None:
        """If this fails, users pay for copies in the storage, and names in a bundle must be valid
        names in the storage."""
        trio.a.upload("etl-42", NESTED)
        contents = {content for content in NESTED.values() if content}

        assert len(contents) == len(list(self.place(storage, "etl-42").glob("?" * 64)))

    def test_cleaning_up_takes_only_what_was_put_there(self, trio: PluginHosts, storage: Path, tmp_path: Path) -> None:
        """If this fails, another user's directory in the storage, or one behind a symlink, is
        deleted."""
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "precious").write_text("keep me")
        trio.a.upload("etl-42", SMALL)
        (storage / "etl-42" / "notes.txt").write_text("somebody's")
        (storage / "etl-42" / ("f" * 64)).symlink_to(outside)
        (self.places_of_ours(storage) / "link").symlink_to(outside)
        trio.a.plugin.cleanup("etl-42")

        assert (outside / "precious").read_text() == "keep me"
        assert [path.name for path in (storage / "etl-42").iterdir() if not path.is_symlink()] == ["notes.txt"]

    def places_of_ours(self, storage: Path) -> Path:
        (place,) = (path for path in (storage / "etl-42").iterdir() if path.is_dir() and not path.is_symlink())
        return place

    def test_a_metafile_that_points_elsewhere_is_refused(self, trio: PluginHosts, tmp_path: Path) -> None:
        """If this fails, a forged metafile makes a host read from any place that its credentials
        open."""
        metafile = trio.a.upload("etl-42", SMALL)
        elsewhere = metafile.replace(b"/storage/", b"/secrets/")
        other_object = metafile.replace(b'"object":"', b'"object":"../../')
        failures = [trio.b.failure("etl-42", forged) for forged in (elsewhere, other_object)]

        assert [getattr(failure, "code", None) for failure in failures] == ["invalid_metafile", "invalid_metafile"]

    @pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: bytes([data[0] ^ 1]) + data[1:]])
    def test_a_damaged_object_is_a_failure(
        self, trio: PluginHosts, storage: Path, damage: Callable[[bytes], bytes]
    ) -> None:
        """If this fails, bytes that the storage lost or changed reach jobs."""
        metafile = trio.a.upload("etl-42", SMALL)
        for stored in self.place(storage, "etl-42").glob("?" * 64):
            stored.write_bytes(damage(stored.read_bytes()))
        failure = trio.b.failure("etl-42", metafile)

        assert isinstance(failure, TorrentdistError)
        assert failure.code == "corrupt"

    def test_the_storage_counts_while_there_is_no_holder(self, trio: PluginHosts) -> None:
        """If this fails, a bundle that the storage still has is called lost."""
        trio.a.upload("etl-42", SMALL)

        assert trio.b.plugin.get_replication_count("etl-42") == 1
        assert trio.b.plugin.get_replication_count("etl-4") == 0
