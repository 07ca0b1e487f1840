"""What a cluster whose plug-in moves bytes outside the swarm says to a limit."""

from __future__ import annotations

from pathlib import Path

from cluster_fixtures import NewCluster, make_source


def test_a_rate_that_no_host_would_keep_is_refused(new_cluster: NewCluster, tmp_path: Path) -> None:
    """If this fails, an operator believes that --rate protects the links, and all hosts fetch at
    full speed."""
    cluster = new_cluster({"codedistributor": {"class": "local"}}, masters=1, supervisors=1)
    cluster.upload(make_source(tmp_path / "source", 5), "etl-1", replicas=1)
    rated = ("bundle", "distribute", "etl-1", "--rate", "10M")
    tried = [cluster.run(*rated, *more) for more in ((), ("--dry-run",))]
    done = cluster.run("bundle", "distribute", "etl-1").ok()

    assert [4, 4] == [each.code for each in tried]
    assert "limit_not_kept" in tried[0].stderr
    assert 1 == done["done"]
