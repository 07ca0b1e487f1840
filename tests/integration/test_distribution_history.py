"""The history of distributions in a real cluster: followed by the leader, copied by the others,
and there again after all masters were killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cluster_fixtures import Cluster, make_source, until


@pytest.fixture
def cluster(battered: Cluster) -> Cluster:
    return battered


def history(cluster: Cluster, master: str, bundle: str) -> list[Any]:
    every: list[Any] = cluster.http.get(f"{cluster.url(master)}/v1/distributions").json()
    return [one for one in every if one["bundle"] == bundle]


def ended(cluster: Cluster, *bundles: str) -> list[dict[str, Any]]:
    """Returns the events of ended distributions of these bundles that all masters have written, in
    their order."""
    files = [path for master in cluster.masters() for path in (cluster.store(master) / "events").iterdir()]
    lines = [json.loads(line) for path in files for line in path.read_text().splitlines() if line.endswith("}")]
    told = [line for line in lines if line["event"] == "distribution_ended" and line["bundle"] in bundles]
    return sorted(told, key=lambda line: line["at"])


def told_bundles(cluster: Cluster, *bundles: str) -> list[str]:
    return [line["bundle"] for line in ended(cluster, *bundles)]


def test_history_outlives_all_masters(cluster: Cluster, tmp_path: Path) -> None:
    """After a night with restarts nobody could say how long a distribution took, or where its bytes
    came from; or the report would count it once more for each restart."""
    cluster.upload(make_source(tmp_path / "told", 1), "told")
    cluster.run("bundle", "distribute", "told", "--wait", "100%").ok()
    leader = cluster.leader()
    until(
        lambda: [one["done"] for one in history(cluster, leader, "told") if one["ended_at"]] == [2],
        "the leader keeps it",
    )
    [before] = history(cluster, leader, "told")
    until(
        lambda: all(history(cluster, master, "told") == [before] for master in cluster.masters()),
        "standbys copy it",
        40,
    )

    cluster.kill(*cluster.masters())
    cluster.start(*cluster.masters())
    [shown] = cluster.run("bundle", "history", "told").ok()
    everywhere = [history(cluster, master, "told") for master in cluster.masters()]
    cluster.upload(make_source(tmp_path / "after", 3), "after")
    cluster.run("bundle", "distribute", "after", "--wait", "100%").ok()
    until(lambda: told_bundles(cluster, "told", "after") == ["told", "after"], "the end of the next one is written", 40)
    [event] = ended(cluster, "told")

    assert before["run"] == event["distribution"]
    assert [(2, 2, 0, False, [])] == [tuple(event[key] for key in ("hosts", "done", "left", "cancelled", "failures"))]
    assert [before[key] for key in ("half_secs", "most_secs", "all_secs", "began_at", "ended_at")] == [
        event[key] for key in ("secs_50", "secs_90", "secs_100", "began_at", "ended_at")
    ]
    assert before == shown
    assert [[before]] * 3 == everywhere
    assert ("told", 2, 2) == (shown["bundle"], shown["hosts"], shown["done"])
    assert 0 <= shown["half_secs"] <= shown["most_secs"] <= shown["all_secs"] < 60
    assert 2 * shown["size"] <= sum(shown["sources"].values())


def test_a_failover_goes_on_with_the_same_distribution(cluster: Cluster, tmp_path: Path) -> None:
    """A distribution during which the leader dies would be two, or begin when the new leader
    begins."""
    cluster.upload(make_source(tmp_path / "moved", 2), "moved")
    [away, _] = cluster.supervisors()
    cluster.kill(away)
    cluster.run("bundle", "distribute", "moved", "--supervisors", ",".join(cluster.supervisors()), "--wait", "0")
    leader = cluster.leader()
    until(lambda: [one["done"] for one in history(cluster, leader, "moved")] == [1], "one host has it")
    [begun] = history(cluster, leader, "moved")
    others = [master for master in cluster.masters() if master != leader]
    until(
        lambda: all([one["run"] for one in history(cluster, m, "moved")] == [begun["run"]] for m in others),
        "copied",
        40,
    )
    cluster.kill(leader)
    until(lambda: cluster.leader() in others, "another master leads")
    cluster.start(away)

    def over() -> list[tuple[str, int]]:
        return [(one["run"], one["done"]) for one in history(cluster, cluster.leader(), "moved") if one["ended_at"]]

    until(lambda: over() == [(begun["run"], 2)], "the other host gets it too", 40)
    until(lambda: told_bundles(cluster, "moved") == ["moved"], "the new leader writes its end, once")

    cluster.start(leader)
    cluster.upload(make_source(tmp_path / "slow", 3, 3_000_000), "slow")
    cluster.run("bundle", "distribute", "slow", "--rate", "10k", "--wait", "0").ok()
    until(lambda: history(cluster, cluster.leader(), "slow"), "it has begun")
    cluster.run("bundle", "cancel", "slow").ok()
    until(lambda: told_bundles(cluster, "moved", "slow") == ["moved", "slow"], "its end is written too")
    [last] = ended(cluster, "slow")

    assert (True, 0, 2) == (last["cancelled"], last["done"], last["left"])
    assert (last["secs_50"], last["failures"]) == (None, [])
