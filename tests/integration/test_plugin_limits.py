"""A cluster whose plug-in moves bytes outside the swarm: limits, and uploads over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from chunked_uploads import Chunked
from cluster_fixtures import Cluster, make_source, picture, running_cluster, until


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster({"codedistributor": {"class": "local"}}, masters=2, supervisors=1) as cluster:
        yield cluster


def test_a_rate_that_no_host_would_keep_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    """If this fails, an operator believes that --rate protects the links, and all hosts fetch at
    full speed."""
    cluster.upload(make_source(tmp_path / "source", 5), "etl-1", replicas=1)
    rated = ("bundle", "distribute", "etl-1", "--rate", "10M")
    tried = [cluster.run(*rated, *more) for more in ((), ("--dry-run",))]
    done = cluster.run("bundle", "distribute", "etl-1").ok()

    assert [4, 4] == [each.code for each in tried]
    assert "limit_not_kept" in tried[0].stderr
    assert 1 == done["done"]


def test_an_upload_over_http_reaches_every_host(cluster: Cluster, tmp_path: Path) -> None:
    """An upload from behind a firewall would succeed, and its bundle would never leave the
    leader."""
    source = make_source(tmp_path / "source", 6, 900_000)
    upload = Chunked(cluster, source)
    upload.open("sent")
    offset = upload.offset()
    upload.put(offset, len(upload.data))
    finished = upload.finish()
    until(lambda: 2 == len(cluster.holders("sent", at="master-1")), "both masters hold it")
    done = cluster.run("bundle", "distribute", "sent", "--wait", "100%").ok()

    assert (200, "") == finished
    assert 1 == done["done"]
    assert picture(source) == picture(cluster.content(cluster.supervisors()[0], upload.meta.digest))
