"""`torrentdist doctor` on a real cluster, whole and broken."""

from __future__ import annotations

import os
import pwd
import signal
from pathlib import Path
from typing import Any

from cluster_fixtures import Cluster, Ran

from torrentdist.launcher.guardian_start import why_no_namespaces


def jobs_run_as_root() -> bool:
    """Whether this machine lacks the user that workers run as, so that the doctor warns rightly."""
    return os.geteuid() == 0 and not any(user.pw_name == "torrentdist-jobs" for user in pwd.getpwall())


def troubles(ran: Ran) -> set[tuple[str, str, str]]:
    """Returns the findings without those about other tests' tokens, and bundles with too few
    replicas, in the shared cluster."""
    no_trouble = {"bundles", "quotas", *(["workers"] if why_no_namespaces() or jobs_run_as_root() else [])}
    return {
        (f["check"], f["subject"], f["verdict"])
        for f in ran.json["findings"]
        if f["verdict"] != "ok" and f["check"] not in no_trouble
    }


def checks(view: Any) -> set[str]:
    return {finding["check"] for finding in view["findings"]}


def test_a_whole_cluster_is_in_order(cluster: Cluster) -> None:
    """If this fails, the doctor raises false alarms, and operators stop listening."""
    client = cluster.run("doctor")
    master = cluster.run("doctor", "--config", cluster.dev.config_of("master-1"))

    assert client.code == 0
    assert {(check, verdict) for check, _, verdict in troubles(client)} == {("ensemble", "warn"), ("acl", "warn")}
    assert checks(client.json) >= {
        "reachable",
        "leader",
        "version",
        "bundles",
        "room",
        "hosts",
        "quotas",
        "swarm port",
        "way back",
        "supervisor",
        "workers",
    }
    assert ["4 s"] == [f["detail"] for f in client.json["findings"] if f["check"] == "session"]
    assert master.code == 0
    assert checks(master.json) >= {"reachable", "leader", "disk", "open files", "zookeeper", "session", "acl"}
    assert {check for check, _, verdict in troubles(master) if verdict == "warn"} == {"ensemble", "acl"}
    assert master.seconds < 60


def test_a_frozen_master_is_named_by_who_cannot_reach_it(battered: Cluster) -> None:
    """If this fails, an operator learns that something is wrong, but not where."""
    frozen = battered.standbys()[0]
    battered.dev.signal(frozen, signal.SIGSTOP)
    ran = battered.run("doctor")

    assert ran.code == 5
    assert ("reachable", battered.url(frozen), "fail") in troubles(ran)
    assert {check for check, _, verdict in troubles(ran) if verdict == "fail"} == {"reachable", "masters' links"}
    assert ran.seconds < 60


def test_what_is_wrong_with_a_hosts_own_files_is_told(cluster: Cluster, tmp_path: Path) -> None:
    """If this fails, a token that everyone can read, or a mistyped key, is found only by
    accident."""
    token = tmp_path / "token"
    token.write_text("secret")
    token.chmod(0o644)
    config = tmp_path / "bad.toml"
    config.write_text("[client]\nmastres = []\n")
    readable = cluster.run("doctor", client__token_file=token)
    mistyped = cluster.run("doctor", "--config", config)

    assert readable.code == 2
    assert ("secrets", "client.token_file", "fail") in troubles(readable)
    assert (mistyped.code, troubles(mistyped)) == (2, {("configuration", "", "fail")})
