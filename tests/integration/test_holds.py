"""Holds on a host's bundles: what somebody has mounted is neither evicted nor dropped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cluster_fixtures import Cluster, make_source, throughout, until

NAME = "hold-1"


def gateway(cluster: Cluster, host: str) -> str:
    return str(cluster.dev.member(host).gateway)


def fetched(cluster: Cluster, host: str, bundle: str) -> None:
    """Returns when the host has a bundle that it was not told to keep."""
    cluster.http.post(f"{gateway(cluster, host)}/v1/host/bundles/{bundle}/fetch").raise_for_status()
    view = f"{gateway(cluster, host)}/v1/host/bundles/{bundle}"
    until(lambda: cluster.http.get(view).json().get("state") == "done", "the bundle is here")


def hold(cluster: Cluster, host: str, bundle: str, digest: str, user: str = "team-a/etl-0") -> dict[str, Any]:
    body = {"bundle": bundle, "digest": digest, "target": "/pods/1/mount", "user": user}
    answer = cluster.http.put(f"{gateway(cluster, host)}/v1/host/holds/{NAME}", json=body)
    return dict(answer.json(), status=answer.status_code)


def end(cluster: Cluster, host: str) -> list[dict[str, Any]]:
    answer = cluster.http.delete(f"{gateway(cluster, host)}/v1/host/holds/{NAME}")
    return list(answer.raise_for_status().json())


def pruned(cluster: Cluster, host: str) -> list[str]:
    answer = cluster.http.post(f"{gateway(cluster, host)}/v1/host/prune", params={"older_than": "0"})
    return list(answer.raise_for_status().json()["removed"])


def test_what_is_held_is_not_pruned_until_the_hold_ends(cluster: Cluster, tmp_path: Path) -> None:
    """If this fails, a pod loses its files while it reads them, or a host keeps them for ever."""
    digest = cluster.upload(make_source(tmp_path / "source", 901), "held-1")["digest"]
    host = cluster.supervisors()[0]
    fetched(cluster, host, "held-1")
    view = hold(cluster, host, "held-1", digest)

    assert (200, "held-1", str(cluster.dir / host / "bundles" / digest)) == (
        view["status"], view["bundle"], str(Path(view["content"]).parent).replace("objects", "bundles")
    )  # fmt: skip
    assert digest not in pruned(cluster, host)
    assert [NAME] == [one["name"] for one in end(cluster, host)]
    assert [] == end(cluster, host)
    assert digest in pruned(cluster, host)


def test_nothing_is_held_that_is_not_here(cluster: Cluster, tmp_path: Path) -> None:
    """If this fails, a mount begins on content that never was here."""
    digest = cluster.upload(make_source(tmp_path / "source", 902), "held-2")["digest"]
    host = cluster.supervisors()[0]
    answers = [hold(cluster, host, bundle, d) for bundle, d in (("held-2", digest), ("held-2", "0" * 64))]

    assert [(404, "bundle_not_found")] * 2 == [(one["status"], one["error"]) for one in answers]
    assert [] == cluster.http.get(f"{gateway(cluster, host)}/v1/host/holds").json()


def test_a_removed_bundle_stays_until_its_last_hold_ends(battered: Cluster, tmp_path: Path) -> None:
    """If this fails, `bundle rm` takes files from under a pod, or they stay on the host for ever.
    It waits for three announces and a restart, so it takes long: 8 s."""
    cluster = battered
    digest = cluster.upload(make_source(tmp_path / "source", 903), "held-3")["digest"]
    host = cluster.supervisors()[0]
    fetched(cluster, host, "held-3")
    hold(cluster, host, "held-3", digest)
    shown: dict[str, Any] = {}

    def names_the_pod() -> bool:
        shown.update(cluster.run("bundle", "show", "held-3").ok()["used_by"])
        return bool(shown)

    until(names_the_pod, "the cluster knows of the pod")
    removed = cluster.run("bundle", "rm", "held-3").ok()
    cluster.kill(host)
    cluster.start(host)

    assert {host: ["team-a/etl-0"]} == shown == removed["used_by"]
    until(lambda: cluster.http.get(f"{gateway(cluster, host)}/v1/host/holds").json()[0]["removed"], "it heard of it")
    assert throughout(lambda: cluster.published(host, digest), 3.0)
    assert hold(cluster, host, "held-3", digest)["status"] == 200, "the same hold, once more"
    end(cluster, host)
    until(lambda: not cluster.content(host, digest).exists(), "its content is gone")


@pytest.mark.parametrize("change", [{"digest": "x"}, {"bundle": "../x"}, {"target": 7}, {"more": 1}])
def test_a_hold_is_checked(cluster: Cluster, change: dict[str, object]) -> None:
    """If this fails, a name from outside reaches the host's disk unchecked."""
    body = {"bundle": "b", "digest": "0" * 64, "target": "/t"} | change
    url = f"{gateway(cluster, cluster.supervisors()[0])}/v1/host/holds/{NAME}"

    assert cluster.http.put(url, json=body).status_code == 400
