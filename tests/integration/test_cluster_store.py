"""What hosts keep in their stores, and hand out of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster_fixtures import Cluster

from torrentdist.testing.trees import some_bytes, write_tree


@pytest.mark.case("G3")
def test_a_bundle_that_was_downloaded_twice_can_go(cluster: Cluster, tmp_path: Path) -> None:
    """Each bundle that a host ever downloaded again would stay until its disk is full."""
    write_tree(tmp_path / "source", {"data.bin": some_bytes(200_000, 31)})
    digest = cluster.upload(tmp_path / "source", "twice")["digest"]
    for number in range(2):
        cluster.run("download", "twice", tmp_path / f"dest-{number}").ok()

    young = cluster.run("bundle", "prune", "--older-than", "1h").ok()
    pruned = cluster.run("bundle", "prune").ok()

    reasons = [kept["reasons"] for kept in young["stays"] if kept["ids"] == ["twice"]]
    assert [["used_lately"]] == reasons
    assert digest in pruned["removed"]
