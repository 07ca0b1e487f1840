"""LocalCodeDistributor keeps the contract of plug-ins, and moves on from a bad holder to the next
one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from torrentdist.model.errors import TorrentdistError
from torrentdist.testing import CodeDistributorConformance, FileFault, PluginHosts
from torrentdist.testing.sample_trees import SMALL, some_bytes

ONE_LARGE = {"large.bin": some_bytes(1_000_000, 7)}


class TestLocalCodeDistributor(CodeDistributorConformance):
    plugin = "torrentdist.distributor.local:LocalCodeDistributor"

    @pytest.fixture
    def options(self) -> Mapping[str, Any]:
        return {"stall_secs": 5.0}

    def failed(self, trio: PluginHosts, metafile: bytes) -> TorrentdistError:
        failure = trio.c.failure("etl-42", metafile)

        assert isinstance(failure, TorrentdistError)
        return failure

    def test_the_next_holder_goes_on_where_one_broke_off(self, trio: PluginHosts) -> None:
        """If this fails, every broken connection costs the whole file again."""
        metafile = trio.a.offer("etl-42", ONE_LARGE)
        trio.b.offer("etl-42", ONE_LARGE)
        trio.b.host.withdraw("etl-42")
        trio.a.host.spoil_files(FileFault.CUT)
        trio.c.failure("etl-42", metafile)
        arrived = (trio.c.dest_dir("etl-42") / "large.bin").stat().st_size
        trio.a.host.withdraw("etl-42")
        trio.b.host.publish("etl-42")
        downloaded = trio.c.download("etl-42", metafile)

        assert downloaded == ONE_LARGE
        assert arrived > 0
        assert trio.b.host.asked_files() == [("large.bin", f"bytes={arrived}-")]

    @pytest.mark.parametrize("fault", [FileFault.CUT, FileFault.SILENT, FileFault.DAMAGED])
    def test_one_good_holder_is_enough(self, trio: PluginHosts, fault: FileFault) -> None:
        """If this fails, a single bad master keeps a bundle from all hosts."""
        metafile = trio.a.offer("etl-42", ONE_LARGE)
        trio.b.offer("etl-42", ONE_LARGE)
        trio.a.host.spoil_files(fault)

        assert trio.c.download("etl-42", metafile) == ONE_LARGE

    def test_a_dead_holder_is_passed_over(self, trio: PluginHosts) -> None:
        """If this fails, a dead master whose session has not expired yet stops every download."""
        metafile = trio.a.offer("etl-42", SMALL)
        trio.b.offer("etl-42", SMALL)
        trio.a.host.crash()

        assert trio.c.download("etl-42", metafile) == SMALL

    @pytest.mark.case("A25")
    @pytest.mark.parametrize("fault", [FileFault.CUT, FileFault.SILENT, FileFault.DAMAGED])
    def test_bad_holders_alone_are_a_failure(self, trio: PluginHosts, fault: FileFault) -> None:
        """If this fails, damaged or missing bytes count as the bundle, or the download never
        ends."""
        metafile = trio.a.offer("etl-42", SMALL)
        trio.a.host.spoil_files(fault)
        failure = self.failed(trio, metafile)

        assert failure.code == "bundle_unavailable"
        assert "a: " in failure.message

    def test_no_holder_is_said(self, trio: PluginHosts) -> None:
        """If this fails, the user does not learn that a holder has to come back."""
        metafile = trio.a.upload("etl-42", SMALL)
        failure = self.failed(trio, metafile)

        assert failure.code == "bundle_unavailable"
        assert failure.fields["detail"] == "no live master holds it"

    def test_damage_of_an_earlier_run_is_replaced(self, trio: PluginHosts) -> None:
        """If this fails, holes that a crash left in a file of the right size count as content."""
        metafile = trio.a.offer("etl-42", ONE_LARGE)
        (trio.c.dest_dir("etl-42") / "large.bin").write_bytes(bytes(len(ONE_LARGE["large.bin"])))
        full_of_holes = trio.c.download("etl-42", metafile)
        (trio.b.dest_dir("etl-42") / "large.bin").write_bytes(bytes(1000))
        wrong_beginning = trio.b.download("etl-42", metafile)

        assert full_of_holes == ONE_LARGE
        assert wrong_beginning == ONE_LARGE
