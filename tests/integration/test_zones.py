"""Hosts in two zones: a bundle crosses the border about once, and the border opens if nothing
comes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cluster_fixtures import Cluster, make_source, running_cluster, until

SIZE = 3_000_000
LIMIT = 1_500_000
ZONES = ("east", "west")
HOSTS = 3
"""In each zone."""


@pytest.fixture(scope="module")
def zoned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {"swarm": {"upload_limit": LIMIT, "download_limit": LIMIT}}
    work = tmp_path_factory.mktemp("zones")
    with running_cluster(settings, work=work, masters=1, supervisors=HOSTS * len(ZONES), zones=ZONES) as cluster:
        yield cluster


def fleet(cluster: Cluster, bundle: str) -> Any:
    url = f"{cluster.url('master-1')}/v1/bundles/{bundle}/hosts"
    answer = httpx.get(url, headers=cluster.dev.headers(), verify=cluster.dev.trust(), trust_env=False)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_bundle_crosses_the_border_about_once(zoned: Cluster, tmp_path: Path) -> None:
    """Bytes between zones cost money, and three hosts would fetch two copies or more from the
    other zone."""
    zoned.upload(make_source(tmp_path / "source", 1, SIZE), "first", replicas=1)
    said = zoned.run("bundle", "distribute", "first", "--wait", "100%")

    assert sorted(one["copies"] for one in said.ok()["zones"])[1] == pytest.approx(1, abs=0.15)
    told = fleet(zoned, "first")
    copies = {one["zone"]: one["copies"] for one in told["zones"]}
    assert sorted(copies.values())[0] == 0
    assert 0.95 <= sorted(copies.values())[1] <= 1.15
    assert {host["from_masters"] for host in told["hosts"] if host["outside"]} == {0}


def test_the_border_opens_if_nothing_comes_through(zoned: Cluster, tmp_path: Path) -> None:
    """Hosts whose neighbours abroad hang would wait for ever, though a master has everything."""
    east, west = ([name for name in zoned.supervisors() if int(name[-1]) % 2 == place] for place in (0, 1))
    zoned.upload(make_source(tmp_path / "source", 2, SIZE), "second", replicas=1)
    zoned.run("bundle", "distribute", "second", "--wait", "0").ok()
    until(lambda: any(host["done"] for host in fleet(zoned, "second")["hosts"]), "something arrives")
    fetching_abroad = {host["supervisor"] for host in fleet(zoned, "second")["hosts"] if host["outside"]}
    stopped = west if fetching_abroad & set(east) else east
    try:
        for name in stopped:
            os.kill(zoned.dev.member(name).pid, signal.SIGSTOP)
        others = set(zoned.supervisors()) - set(stopped)
        until(
            lambda: others <= {h["supervisor"] for h in fleet(zoned, "second")["hosts"] if h["state"] == "done"},
            "the others have it",
            60,
        )
    finally:
        for name in stopped:
            os.kill(zoned.dev.member(name).pid, signal.SIGCONT)
    assert others


def test_pieces_cross_the_border_in_a_cluster_with_tls(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A host would refuse what other hosts ask of it, and each zone would wait until its border
    opens. It takes long because every host of the cluster gets certificates."""
    work = tmp_path_factory.mktemp("zones-tls")
    with running_cluster({}, work=work, masters=1, supervisors=4, zones=ZONES, tls=True) as cluster:
        cluster.upload(make_source(work / "source", 3, SIZE), "secret", replicas=1)
        cluster.run("bundle", "distribute", "secret", "--wait", "100%").ok()
        copies = sorted(one["copies"] for one in fleet(cluster, "secret")["zones"])

    assert copies[0] == 0
    assert 0.5 <= copies[1] <= 1.3
