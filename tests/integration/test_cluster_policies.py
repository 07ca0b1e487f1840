"""What the leader of a real cluster goes on doing by itself: waves, standing orders, the ends of
distributions, retention rules and quotas."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_fixtures import Cluster, make_source, running_cluster, until

HOSTS = ["supervisor-1", "supervisor-2", "supervisor-3"]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {"swarm": {"fetching_secs": 0.2, "seeding_secs": 1.0}}
    with running_cluster(settings, work=tmp_path_factory.mktemp("fleet"), masters=1, supervisors=3) as cluster:
        yield cluster


def assigned(cluster: Cluster, bundle: str) -> list[str]:
    view = cluster.get("master-1", f"/v1/bundles/{bundle}/hosts")
    return [host["supervisor"] for host in view["hosts"] if "wave" not in host.get("reason", "")]


def distribution(cluster: Cluster, bundle: str) -> Any:
    return cluster.get("master-1", f"/v1/bundles/{bundle}/distribution")


def test_waves_reach_every_host_one_after_another(fleet: Cluster, tmp_path: Path) -> None:
    """If this fails, hosts behind the first wave never get the bundle, or the command that waits
    never ends."""
    fleet.upload(make_source(tmp_path / "src", 1), "waves", replicas=1)
    spread = fleet.run("bundle", "distribute", "waves", "--canary", "1", "--concurrency", "1").ok()
    waited = fleet.run("bundle", "wait", "waves", "--on", "100%").ok()
    until(lambda: distribution(fleet, "waves")["state"] == "complete", "the leader ends the distribution")
    view = distribution(fleet, "waves")

    assert (3, 3, 3) == (spread["hosts"], spread["done"], waited["done"])
    assert (3, 3, 3, "") == (view["told"], view["wave"], view["waves"], view["reason"])


def test_a_share_of_the_hosts_gets_it_for_a_time(fleet: Cluster, tmp_path: Path) -> None:
    """If this fails, a preheat of half the hosts reaches all of them, or they keep it for ever. It
    takes long: eight hosts start."""
    fleet.upload(make_source(tmp_path / "src", 3), "half", replicas=1)
    spread = fleet.run("bundle", "distribute", "half", "--share", "50%", "--keep", "10s").ok()
    until(lambda: assigned(fleet, "half") == [], "the hosts need not keep it any more", seconds=70)

    assert (2, 2) == (spread["hosts"], spread["done"])
    assert distribution(fleet, "half") is None
    assert "available" == fleet.run("bundle", "show", "half").ok()["state"]


def test_a_standing_order_waits_for_hosts_that_register_later(fleet: Cluster, tmp_path: Path) -> None:
    """If this fails, a new host runs jobs without what every host should have; or the order cannot
    be ended."""
    fleet.upload(make_source(tmp_path / "src", 4), "standing", replicas=1)
    fleet.dev.signal(HOSTS[2], signal.SIGTERM)
    until(lambda: not fleet.registered(HOSTS[2], at="master-1"), "the last host is gone")
    first = fleet.run("bundle", "distribute", "standing", "--everywhere").ok()
    until(lambda: distribution(fleet, "standing")["state"] == "standing", "the order stands")
    fleet.start(HOSTS[2])
    until(lambda: assigned(fleet, "standing") == HOSTS, "the new host is told")
    both = fleet.run("bundle", "wait", "standing").ok()
    removal = fleet.run("bundle", "cancel", "standing").ok()
    again = fleet.run("bundle", "cancel", "waves")

    assert (2, 3) == (first["hosts"], both["done"])
    assert "cancelled" == removal["state"]
    assert 9 == again.code, again.stderr


def test_a_cancelled_distribution_is_given_up(fleet: Cluster, tmp_path: Path) -> None:
    """If this fails, a distribution that was begun by mistake loads holders and disks to its
    end."""
    view = fleet.upload(make_source(tmp_path / "src", 5, 3_000_000), "mistake", replicas=1)
    fleet.run("bundle", "distribute", "mistake", "--rate", "100k", "--wait", "0").ok()
    objects = [fleet.store(name) / "objects" / view["digest"] for name in HOSTS]
    until(lambda: all(path.exists() for path in objects), "every host fetches")
    fleet.run("bundle", "cancel", "mistake", "--dry-run").ok()
    running = distribution(fleet, "mistake")["state"]
    fleet.run("bundle", "cancel", "mistake").ok()
    until(lambda: not any(path.exists() for path in objects), "no host keeps what has arrived")

    assert "running" == running
    assert [] == assigned(fleet, "mistake")


def test_a_rate_slows_a_distribution_down(fleet: Cluster, tmp_path: Path) -> None:
    """If this fails, a limit that protects the source does nothing."""
    fleet.upload(make_source(tmp_path / "src", 6, 600_000), "slow", replicas=1)
    spread = fleet.run("bundle", "distribute", "slow", "--rate", "200k", "--supervisors", HOSTS[0]).ok()

    assert spread["seconds"] > 2


def test_a_local_user_waits_for_no_rate(fleet: Cluster, tmp_path: Path) -> None:
    """If this fails, a reader on a host waits for an hour for what comes slowly in the
    background."""
    digest = fleet.upload(make_source(tmp_path / "src", 7, 3_000_000), "hurried", replicas=1)["digest"]
    fleet.run("bundle", "distribute", "hurried", "--rate", "10k", "--wait", "0").ok()
    until(lambda: all((fleet.store(name) / "objects" / digest).exists() for name in HOSTS), "every host fetches")
    bundle = f"{fleet.url(HOSTS[0])}/v1/host/bundles/hurried"
    fleet.http.post(f"{bundle}/fetch").raise_for_status()
    until(lambda: fleet.http.get(bundle).json()["state"] == "done", "the reader has it")
    waits = fleet.http.get(f"{fleet.url(HOSTS[1])}/v1/host/bundles/hurried").json()["state"]
    fleet.run("bundle", "cancel", "hurried").ok()

    assert "fetching" == waits


def test_a_retention_rule_keeps_the_newest(fleet: Cluster, tmp_path: Path) -> None:
    """If this fails, a nightly upload fills the disks, or a dry run removes something."""
    for n in range(4):
        fleet.upload(make_source(tmp_path / f"src-{n}", 10 + n), f"nightly-{n}", replicas=1)
    fleet.run("bundle", "distribute", "nightly-1").ok()
    fleet.run("bundle", "pin", "nightly-0").ok()
    until(lambda: distribution(fleet, "nightly-1")["state"] == "complete", "the distribution is over")
    rule = ("bundle", "retention", "nightly-*", "--keep", "2")
    dry = fleet.run(*rule, "--dry-run").ok()
    before = fleet.run("bundle", "retention").ok()
    fleet.run(*rule).ok()
    until(lambda: _gone(fleet, "nightly-1"), "the rule is applied", seconds=30)
    left = [view["id"] for view in fleet.run("bundle", "ls").ok() if view["id"].startswith("nightly")]
    listed = fleet.run("bundle", "retention").ok()
    fleet.run("bundle", "retention", "nightly-*", "--remove").ok()

    assert {"nightly-1": "2 newer ones match nightly-*"} == dry["goes"]
    assert {"nightly-0": ["pinned"], "nightly-2": ["newest"], "nightly-3": ["newest"]} == dry["stays"]
    assert [] == before
    assert ["nightly-0", "nightly-2", "nightly-3"] == left
    assert [("nightly-*", 2)] == [(rule["pattern"], rule["keep"]) for rule in listed]
    assert [] == fleet.run("bundle", "retention").ok()
    assert 3 == fleet.run("bundle", "retention", "nightly-*", "--remove").code


def _gone(cluster: Cluster, bundle: str) -> bool:
    return cluster.status("master-1", f"/v1/bundles/{bundle}") == 404


def test_a_quota_refuses_with_the_figures(fleet: Cluster, tmp_path: Path) -> None:
    """If this fails, one team fills the disks of all others, or learns only that it may not."""
    token = tmp_path / "token"
    made = ("token", "create", "team", "--role", "uploader", "--max-bytes", "500k", "--max-distributions", "1")
    token.write_text(fleet.run(*made).ok()["token"])
    token.chmod(0o600)
    own = {"client__token_file": token}
    for n in range(2):
        make_source(tmp_path / f"src-{n}", 20 + n)
    fleet.run("upload", tmp_path / "src-0", "--id", "team-0", **own).ok()
    refused = fleet.run("upload", tmp_path / "src-1", "--id", "team-1", **own)
    fleet.run("token", "quota", "team", "--max-bytes", "0").ok()
    fleet.run("upload", tmp_path / "src-1", "--id", "team-1", **own).ok()
    fleet.run("bundle", "distribute", "team-0", "--rate", "1k", "--wait", "0", **own).ok()
    second = fleet.run("bundle", "distribute", "team-1", "--wait", "0", **own)
    view = fleet.run("token", "quota", "team").ok()
    fleet.run("bundle", "cancel", "team-0", **own).ok()
    fleet.run("bundle", "distribute", "team-1", **own).ok()

    assert (4, 4) == (refused.code, second.code)
    assert "'team' is used up: its bundles have 260 KiB" in refused.stderr
    assert "500 KiB are allowed" in refused.stderr
    assert "1 distributions are running, and 1 are allowed at once" in second.stderr
    assert (0, 533332, 1, 1) == (view["max_bytes"], view["bytes"], view["max_distributions"], view["distributions"])
