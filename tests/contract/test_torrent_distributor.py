"""TorrentCodeDistributor keeps the contract of plug-ins, with real engines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from torrentdist.model.errors import TorrentdistError
from torrentdist.testing import CodeDistributorConformance, PluginHosts
from torrentdist.testing.sample_trees import NESTED, SMALL


class TestTorrentCodeDistributor(CodeDistributorConformance):
    plugin = "torrentdist.distributor.torrent:TorrentCodeDistributor"

    @pytest.fixture
    def options(self) -> Mapping[str, Any]:
        return {"stall_secs": 5.0}

    @pytest.mark.case("A25")
    def test_a_swarm_without_a_seed_is_given_up(self, trio: PluginHosts) -> None:
        """If this fails, a download waits for ever for a peer that never comes."""
        metafile = trio.a.offer("etl-42", SMALL)
        trio.a.host.crash()
        failure = trio.b.failure("etl-42", metafile)

        assert isinstance(failure, TorrentdistError)
        assert failure.code == "timed_out"

    def test_damage_of_an_earlier_run_is_replaced(self, trio: PluginHosts) -> None:
        """If this fails, holes that a crash left in a file of the right size count as content."""
        metafile = trio.a.offer("etl-42", NESTED)
        large = trio.b.dest_dir("etl-42") / "data/deeper/still deeper/large.bin"
        large.parent.mkdir(parents=True)
        large.write_bytes(bytes(len(NESTED["data/deeper/still deeper/large.bin"])))

        assert trio.b.download("etl-42", metafile) == NESTED

    def test_a_bundle_that_is_cleaned_up_is_seeded_no_more(self, trio: PluginHosts) -> None:
        """If this fails, a removed bundle goes on spreading."""
        metafile = trio.a.upload("etl-42", SMALL)
        trio.a.plugin.cleanup("etl-42")

        assert trio.b.failure("etl-42", metafile) is not None

    def test_the_metafile_is_the_bundles_own(self, trio: PluginHosts) -> None:
        """If this fails, one bundle has two metafiles, and so two swarms."""
        metafile = trio.a.upload("etl-42", SMALL)

        assert metafile == trio.a.host.metafile("etl-42")
