"""A real cluster that loses hosts: it names who is missing, and nobody who left on purpose."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from cluster_fixtures import Cluster, running_cluster, until


@pytest.fixture(scope="module")
def shrinking() -> Iterator[Cluster]:
    with running_cluster(masters=2, supervisors=3) as cluster:
        until(lambda: all(is_remembered(cluster, name) for name in ("supervisor-2", "supervisor-3")))
        yield cluster


def is_remembered(cluster: Cluster, supervisor: str) -> bool:
    logs = ((cluster.dir / f"{name}.log").read_text() for name in cluster.masters())
    return any(f'"/known-supervisors/{supervisor}"' in log for log in logs)


def known(cluster: Cluster) -> list[str]:
    """Returns who is gone, according to each master."""
    views = [cluster.get(name, "/v1/cluster") for name in cluster.masters() if cluster.alive(name)]
    return sorted({gone["id"] for view in views if view for gone in view["gone"]})


def test_a_killed_host_is_named_everywhere_and_one_that_stops_cleanly_is_not(shrinking: Cluster) -> None:
    """If this fails, a host that dies is nobody's business, and the Overview says that all is well;
    or each rolling restart rings an alarm."""
    shrinking.dev.signal("supervisor-3", signal.SIGTERM)
    until(lambda: registered(shrinking) == 2, "it has left")
    shrinking.kill("supervisor-2")
    until(lambda: "supervisor-2" in known(shrinking), "the other one is missed", 60.0)
    overviews = [shrinking.get(name, "/ui/?format=json") for name in shrinking.masters()]
    metrics = [shrinking.http.get(shrinking.url(name) + "/metrics").text for name in shrinking.masters()]
    doctor, top = shrinking.run("doctor").json, shrinking.run("top", "--once").json
    listed = shrinking.run("cluster").json["gone"]
    page = shrinking.http.get(shrinking.url("master-1") + "/ui/hosts/supervisor-2", headers={"accept": "text/html"})

    assert ["supervisor-2"] == known(shrinking)
    assert [["gone"]] * 2 == [[item["what"] for item in view["attention"]] for view in overviews]
    assert all(re.search(r'(?m)^torrentdist_gone\{.*role="supervisor"\} 1', text) for text in metrics)
    assert "supervisor-2" in [f["subject"] for f in doctor["findings"] if f["check"] == "hosts"]
    assert ["supervisor-2"] == top["attention"][0]["subjects"]
    assert [("supervisor-2", "supervisor")] == [(gone["id"], gone["role"]) for gone in listed]
    assert (200, True) == (page.status_code, "host forget supervisor-2" in page.text)
    shrinking.run("host", "forget", "supervisor-2").ok()
    assert [] == known(shrinking)
    shrinking.start("supervisor-2", "supervisor-3")
    until(lambda: registered(shrinking) == 3, "both are back")
    refused = shrinking.run("host", "forget", "supervisor-2")
    assert 9 == refused.code


def registered(cluster: Cluster) -> int:
    view: Any = cluster.get("master-1", "/v1/cluster")
    return len(view["supervisors"])
