"""The history of distributions in a real cluster: followed by the leader, copied by the others,
and there again after all masters were killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cluster_fixtures import Cluster, NewCluster, make_source, until


def history(cluster: Cluster, master: str) -> list[Any]:
    found: list[Any] = cluster.http.get(f"{cluster.url(master)}/v1/distributions").json()
    return found


def test_history_outlives_all_masters(new_cluster: NewCluster, tmp_path: Path) -> None:
    """After a night with restarts nobody could say how long a distribution took, or where its bytes
    came from."""
    cluster = new_cluster(masters=3, supervisors=2)
    cluster.upload(make_source(tmp_path / "told", 1), "told")
    cluster.run("bundle", "distribute", "told", "--wait", "100%").ok()
    leader = cluster.leader()
    until(lambda: [one["done"] for one in history(cluster, leader) if one["ended_at"]] == [2], "the leader keeps it")
    [before] = history(cluster, leader)
    until(lambda: all(history(cluster, master) == [before] for master in cluster.masters()), "standbys copy it", 40)

    cluster.kill(*cluster.masters())
    cluster.start(*cluster.masters())
    [shown] = cluster.run("bundle", "history", "told").ok()

    assert before == shown
    assert all([before] == history(cluster, master) for master in cluster.masters())
    assert ("told", 2, 2) == (shown["bundle"], shown["hosts"], shown["done"])
    assert 0 <= shown["half_secs"] <= shown["most_secs"] <= shown["all_secs"] < 60
    assert 2 * shown["size"] <= sum(shown["sources"].values())


def test_a_failover_goes_on_with_the_same_distribution(new_cluster: NewCluster, tmp_path: Path) -> None:
    """A distribution during which the leader dies would be two, or begin when the new leader
    begins."""
    cluster = new_cluster(masters=3, supervisors=2)
    cluster.upload(make_source(tmp_path / "moved", 2), "moved")
    [away, _] = cluster.supervisors()
    cluster.kill(away)
    cluster.run("bundle", "distribute", "moved", "--supervisors", ",".join(cluster.supervisors()), "--wait", "0")
    leader = cluster.leader()
    until(lambda: [one["done"] for one in history(cluster, leader)] == [1], "one host has it")
    [begun] = history(cluster, leader)
    others = [master for master in cluster.masters() if master != leader]
    until(lambda: all([one["run"] for one in history(cluster, m)] == [begun["run"]] for m in others), "copied", 40)
    cluster.kill(leader)
    until(lambda: cluster.leader() in others, "another master leads")
    cluster.start(away)

    def over() -> list[tuple[str, int]]:
        return [(one["run"], one["done"]) for one in history(cluster, cluster.leader()) if one["ended_at"]]

    until(lambda: over() == [(begun["run"], 2)], "the other host gets it too", 40)
