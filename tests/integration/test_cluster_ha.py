"""`torrentdist ha` on a real cluster: the leader, the standbys, the history, and a transfer."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest
from cluster_fixtures import Cluster, NewCluster, until
from patience import patient

MASTERS = {"master-1", "master-2", "master-3"}


def roles(cluster: Cluster) -> dict[str, dict[str, object]]:
    return {view["id"]: view for view in cluster.run("ha", "roles").ok()}


def ready_standbys(cluster: Cluster) -> list[str]:
    found: list[str] = []

    def look() -> bool:
        found[:] = [r["id"] for r in cluster.get(cluster.leader(), "/v1/roles") or () if r["state"] == "standby"]
        return len(found) == 2

    until(look, "two standbys in the queue")
    return found


@pytest.mark.case("D12")
def test_a_transfer_ends_at_the_named_master(battered: Cluster) -> None:
    """If this fails, an operator cannot move the leadership off a host before taking it down."""
    ready_standbys(battered)
    old = battered.leader()
    target = max(battered.standbys())
    epoch = battered.run("ha", "leader").ok()["epoch"]
    headers = {"X-Request-Id": f"transfer-{epoch}"}
    response = battered.http.post(battered.url(old) + "/v1/transfer", json={"master": target}, headers=headers)
    leader = battered.run("ha", "leader").ok()
    last = battered.run("ha", "failovers", "-n", "1").ok()
    again = battered.http.post(battered.url(target) + "/v1/transfer", json={"master": target}, headers=headers)
    repeated = battered.run("ha", "transfer", target).ok()
    ready_standbys(battered)
    battered.run("ha", "transfer", old).ok()
    late = battered.http.post(battered.url(old) + "/v1/transfer", json={"master": target}, headers=headers)

    assert (response.status_code, response.json()["leader"]) == (200, target)
    assert leader["leader"] == target
    assert leader["epoch"] > epoch
    assert [(f["previous"], f["current"], f["reason"]) for f in last] == [(old, target, "transferred")]
    assert repeated["leader"] == target
    assert (again.status_code, again.json()["previous"]) == (200, old)
    assert (late.status_code, late.json()["error"], battered.leader()) == (503, "target_not_ready", old)


@pytest.mark.case("D12")
def test_a_transfer_to_an_unknown_or_frozen_master_is_refused_and_changes_nothing(battered: Cluster) -> None:
    """If this fails, a mistyped name or a dead target costs the cluster its leader."""
    ready_standbys(battered)
    before = battered.run("ha", "leader").ok()
    frozen = battered.standbys()[0]
    unknown = battered.run("ha", "transfer", "nobody")
    battered.dev.signal(frozen, signal.SIGSTOP)
    # Through a command, which is slow to start on a busy machine, the frozen master would already
    # be an unknown one.
    refused = battered.http.post(battered.url(battered.leader()) + "/v1/transfer", json={"master": frozen})
    after = battered.run("ha", "leader").ok()

    assert (unknown.code, unknown.stdout) == (3, "")
    assert (refused.status_code, refused.json()["error"]) == (503, "target_not_ready")
    assert after == before


def test_roles_tell_each_masters_own_words_and_a_frozen_one_delays_them_a_second(battered: Cluster) -> None:
    """If this fails, an operator takes a dead master for a healthy one, or waits for it."""
    ready_standbys(battered)
    leader = battered.leader()
    whole = roles(battered)
    frozen = battered.standbys()[0]
    battered.dev.signal(frozen, signal.SIGSTOP)
    began = time.monotonic()
    answer = battered.get(leader, "/v1/roles")
    seconds = time.monotonic() - began
    states = {view["id"]: view["state"] for view in answer}

    assert whole.keys() == MASTERS
    assert {view["state"] for view in whole.values()} == {"leader", "standby"}
    assert whole[leader]["state"] == "leader"
    assert all(view["ready"] and view["lag"] == 0 and view["version"] for view in whole.values())
    assert len({view["epoch"] for view in whole.values()}) == 1
    assert states[frozen] == "unreachable"
    assert seconds < patient(2.0)


@pytest.mark.case("A29")
def test_a_master_without_the_bundles_lags_and_gets_no_leadership_and_is_given_what_it_lacks(
    new_cluster: NewCluster, tmp_path: Path
) -> None:
    """If this fails, a master leads that lacks bundles it must hold, or a bundle that began with
    too few copies keeps too few."""
    cluster = new_cluster(masters=2, supervisors=0)
    leader, standby = cluster.leader(), cluster.standbys()[0]
    content = tmp_path / "content"
    content.mkdir()
    (content / "big").write_bytes(bytes(range(256)) * 4096)
    cluster.kill(standby)
    until(lambda: not cluster.registered(standby, at=leader), "its session is over")
    few = cluster.run("upload", content, "--id", "b", "--min-replicas", 2, "--timeout", 5)
    cluster.write_settings(standby, {"swarm": {"download_limit": 20_000}})
    cluster.start(standby)
    until(lambda: roles(cluster).get(standby, {}).get("lag") == 1, "the newcomer lags")
    refused = cluster.run("ha", "transfer", standby)
    flagged = cluster.get(leader, "/v1/cluster")["bundles"]["under_replicated"]
    measured = cluster.http.get(cluster.url(leader) + "/metrics").text

    assert (few.code, few.json["achieved"], few.json["replicas"]) == (10, False, 1)
    assert refused.code == 5
    assert cluster.leader() == leader
    counted = re.search(r"(?m)^torrentdist_bundles_under_replicated\S* 1", measured)
    assert (flagged, counted is not None) == (1, True)
    cluster.reconfigure(standby, {})
    until(lambda: len(cluster.holders("b", at=leader)) == 2, "it has what it lacked")
    assert cluster.get(leader, "/v1/cluster")["bundles"]["under_replicated"] == 0


def test_the_history_names_the_newest_first_and_why(battered: Cluster) -> None:
    """If this fails, nobody can tell afterwards why the leader changed."""
    ready_standbys(battered)
    old = battered.leader()
    battered.kill(old)
    new = battered.leader()
    two = battered.run("ha", "failovers", "-n", "2").ok()

    assert (two[0]["previous"], two[0]["current"], two[0]["reason"]) == (old, new, "died")
    assert two[0]["at"] >= two[1]["at"]
